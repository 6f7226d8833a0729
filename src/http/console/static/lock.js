// Page of one lock: state, diagnosis, timeline, waiters, actions, history.

import { h, reconcile, replaceIfChanged, setText } from "./dom.js";
import { clientName, coarse, holderDetail, holderKey, holderName, now, timeOfDay } from "./format.js";
import { adviceFor } from "./advice.js";
import { STATES, copyable, eventKind, pill, sentence, setPill, since, timeBar, valueText } from "./parts.js";
import { timeline } from "./timeline.js";

const NO_EVENT = "No event of this lock is in the daemon's history.";

/** Creates the view of one lock. */
export function lockView(namespace, name) {
  const status = pill("", "none");
  const election = pill("Election", "info");
  const diagnosis = h("p", { class: "diagnosis" });
  const problem = h("p", { class: "diagnosis bad", hidden: true });
  const facts = factList();
  const picture = timeline();
  const waiters = waiterList();
  const actions = actionList();
  const history = historyTable(NO_EVENT, false);
  const announcement = h("p", { class: "visually-hidden", role: "status" });
  const root = h("div", { class: "view" },
    h("div", { class: "heading" },
      h("a", { href: "#/", class: "back" }, "All locks"),
      h("h1", {}, h("span", { class: "muted" }, namespace === "default" ? "" : `${namespace} / `), name),
      election, status),
    announcement,
    h("section", { class: "panel", "aria-label": "Diagnosis" }, diagnosis, problem, facts.root),
    panel("Timeline", picture.root),
    h("div", { class: "columns" },
      panel("Waiters, in order", waiters.root),
      panel("Suggested actions", actions.root)),
    panel("History", history.root));
  let holder;
  return {
    root,
    title: `${name} – lock`,
    nav: "locks",
    query: `view=lock&${new URLSearchParams({ namespace, name })}`,
    update(snapshot) {
      const { lock } = snapshot;
      election.hidden = !lock.election;
      setPill(status, STATES[lock.state].text, STATES[lock.state].tone);
      setText(diagnosis, sentence(snapshot.summary));
      setText(problem, sentence(snapshot.store_error ?? ""));
      problem.hidden = snapshot.store_error === null;
      facts.update(snapshot);
      picture.update(snapshot.history, lock);
      waiters.update(snapshot.waiters);
      actions.update(snapshot);
      history.update(snapshot.history);
      const next = lock.holder ? holderName(lock.holder) : "free";
      if (holder !== undefined && holder !== next) {
        setText(announcement, lock.holder ? `The holder is now ${next}` : "The lock is free");
      }
      holder = next;
    },
    tick() {
      facts.tick();
      waiters.tick();
      picture.tick();
    },
    destroy: () => picture.destroy(),
  };
}

function panel(title, ...content) {
  return h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), content);
}

function factList() {
  const held = since();
  const bar = timeBar();
  const row = (label, ...content) => {
    const root = h("div", {}, h("dt", {}, label), h("dd", {}, content));
    return { root, value: root.lastElementChild };
  };
  const holder = row("Holder");
  const heldFor = row("Held for", held.root);
  const left = row("Time left", bar.root);
  const token = row("Token");
  const value = row("Value");
  const lease = row("Lease");
  const all = [holder, heldFor, left, token, value, lease];
  return {
    root: h("dl", { class: "facts" }, all.map((one) => one.root)),
    update({ lock, lease: state }) {
      const peer = lock.daemon ? `daemon ${lock.daemon}` : "";
      const details = [holderDetail(lock.holder), peer].filter(Boolean).join(" · ");
      replaceIfChanged(holder.value, [lock.holder, lock.state, details], () => [
        h("span", { class: "strong" }, lock.holder ? clientName(lock.holder) : lock.state === "peer" ? "a client of a peer" : "none"),
        h("span", { class: "muted small block" }, details)]);
      held.update(lock.since);
      heldFor.root.hidden = lock.since === null;
      bar.update(lock);
      left.root.hidden = lock.token === null;
      setText(token.value, lock.token === null ? "—" : String(lock.token));
      token.value.className = "number";
      const text = valueText(lock.value);
      value.root.hidden = !lock.election;
      replaceIfChanged(value.value, text, () => [text === null ? h("span", { class: "muted" }, "empty") : h("code", { class: "value" }, text)]);
      setText(lease.value, sentence(state).replace(/\.$/, ""));
    },
    tick() {
      held.tick();
      bar.tick();
    },
  };
}

function waiterList() {
  const list = h("ol", { class: "waiters" });
  const none = h("p", { class: "muted" }, "Nothing waits for this lock at this daemon.");
  const more = h("p", { class: "muted", hidden: true });
  const known = new Map();
  return {
    root: h("div", {}, none, list, more),
    update({ items, total }) {
      none.hidden = items.length > 0;
      list.hidden = items.length === 0;
      more.hidden = total <= items.length;
      setText(more, `and ${total - items.length} more`);
      reconcile(list, known, items, (one) => one.key, waiterRow, (row, one) => row.update(one));
    },
    tick() {
      for (const row of known.values()) row.tick();
    },
  };
}

function waiterRow() {
  const position = h("span", { class: "position" });
  const name = h("span", { class: "strong" });
  const detail = h("span", { class: "muted small" });
  const state = pill("No stream", "warn");
  const wait = h("span", { class: "number" });
  let shown;
  const tick = () => setText(wait, coarse(now() - shown.since) + (shown.until === null ? "" : ` of ${coarse(shown.until - shown.since)}`));
  return {
    root: h("li", {}, position, h("span", { class: "stack" }, name, detail, h("span", {}, state)), wait),
    update(waiter) {
      shown = waiter;
      setText(position, String(waiter.position));
      setText(name, clientName(waiter.holder));
      setText(detail, holderDetail(waiter.holder));
      state.hidden = waiter.connected;
      tick();
    },
    tick,
  };
}

function actionList() {
  const list = h("ul", { class: "actions" });
  let texts = [];
  return {
    root: list,
    update(snapshot) {
      const { lock } = snapshot;
      const advice = adviceFor({ ...snapshot, waiters: snapshot.waiters.items });
      // Another grant is another key, so that a command is never meant for a later holder.
      // The texts count down, and are not part of it: the focus on a command is kept.
      const key = [lock.token, holderKey(lock.holder), advice.map(({ title, command }) => [title, command])];
      replaceIfChanged(list, key, () => {
        texts = advice.map(() => h("p"));
        return advice.map((one, index) =>
          h("li", { class: one.danger ? "danger" : "" },
            h("h3", {}, one.title), texts[index], one.command && copyable(one.command).root));
      });
      advice.forEach((one, index) => setText(texts[index], one.text));
    },
  };
}

/** Table of events, the newest first. */
export function historyTable(empty, withLock, linkOf) {
  const body = h("tbody", { role: "rowgroup" });
  const head = ["Time", "Event", ...(withLock ? ["Lock"] : []), "Details"].map((text) => h("th", { scope: "col", role: "columnheader" }, text));
  const table = h("table", { role: "table", class: withLock ? "events with-lock" : "events" },
    h("caption", { class: "visually-hidden" }, "Events, the newest first"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), body);
  const none = h("p", { class: "muted" }, empty);
  const known = new Map();
  const cell = (name, ...content) => h("td", { role: "cell", class: name }, content);
  return {
    root: h("div", {}, none, table),
    update(events) {
      none.hidden = events.length > 0;
      table.hidden = events.length === 0;
      reconcile(body, known, events, (event) => event.number, (event) => eventRow(event), () => {});
    },
  };
  function eventRow(event) {
    const [title, tone] = eventKind(event);
    return {
      root: h("tr", { role: "row" },
          cell("at number", timeOfDay(event.at)),
          cell("kind", pill(title, tone)),
          withLock ? cell("lock", h("a", { href: linkOf(event.lock) }, event.lock.name)) : null,
          cell("text", event.text)),
    };
  }
}
