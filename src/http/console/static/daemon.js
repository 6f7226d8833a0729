// Health of the daemon and its storage, with charts and the locks that need attention.

import { h, reconcile, replaceIfChanged, setText } from "./dom.js";
import { coarse, count, duration, holderName, lockLink, now, plural } from "./format.js";
import { chart, milliseconds, perSecond } from "./charts.js";
import { historyTable } from "./lock.js";
import { pill, setPill } from "./parts.js";

/** Creates the view. `collector` has the numbers since the page was opened. */
export function daemonView(collector) {
  const grants = chart("Grants", perSecond);
  const waits = chart("Mean wait for a grant", milliseconds);
  const calls = chart("Storage calls", perSecond);
  const status = pill("", "none");
  const problem = h("p", { class: "diagnosis", hidden: true });
  const facts = h("dl", { class: "facts" });
  const totals = h("dl", { class: "facts" });
  const storage = h("dl", { class: "facts" });
  const table = callTable();
  const risk = lockList("No grant is at risk.", (lock) => `${coarse(Math.max(0, (lock.ends ?? now()) - now()))} left`);
  const longest = lockList("No lock is held.", (lock) => (lock.since === null ? "" : coarse(now() - lock.since)));
  const queues = lockList("No acquire waits.", (lock) => plural(lock.waiting, "waiter"));
  const busiest = lockList("No grant in the last minutes.", (lock) => plural(lock.grants, "grant"));
  const events = historyTable("The daemon's history is empty, or off.", true, lockLink);
  const section = (title, ...content) => h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), content);
  const root = h("div", { class: "view" },
    h("div", { class: "heading" }, h("h1", {}, "Daemon"), status),
    problem,
    h("div", { class: "columns three" }, grants.root, waits.root, calls.root),
    h("div", { class: "columns three" },
      section("At risk", risk.root), section("Held longest", longest.root), section("Most waiters", queues.root)),
    h("div", { class: "columns three" },
      section("Busiest in the last two minutes", busiest.root), section("This daemon", facts), section("Since its start", totals)),
    section("Storage", storage, table.root),
    section("Latest events", events.root));
  let latest = null;
  return {
    root,
    title: "Daemon",
    nav: "daemon",
    query: "view=daemon",
    update(snapshot) {
      latest = snapshot;
      const { health, daemon, store, totals: sums, counts } = snapshot;
      setPill(status, ...healthOf(health));
      problem.hidden = health.unavailable === null;
      setText(problem, health.unavailable ?? "");
      this.drawCharts();
      risk.update(snapshot.at_risk);
      longest.update(snapshot.longest);
      queues.update(snapshot.queues);
      busiest.update(snapshot.busiest);
      list(facts, [
        ["Version", health.version], ["Process", `${daemon.pid} on ${daemon.host}`],
        ["Running for", coarse(snapshot.now - daemon.started)],
        ["Clients connect to", daemon.listen.join(", ")],
        ["Sessions", count(counts.sessions)],
        ["History", daemon.history_limit === 0 ? "off" : `up to ${plural(daemon.history_limit, "event")}`],
      ]);
      list(totals, [
        ["Grants", count(sums.grants)], ["Handed off locally", count(sums.handoffs)], ["Refused", count(sums.refused)],
        ["Released", count(sums.released)], ["Lost", count(sums.lost)],
        ["Mean wait", sums.grants === 0 ? "—" : duration(sums.waited_ms / sums.grants)],
      ]);
      list(storage, [["Store", store.description], ["Shared with peers", store.shared ? "yes" : "no"]]);
      table.update(store.calls);
      events.update(snapshot.events);
    },
    drawCharts() {
      grants.update(collector.rates("grants"), latest.now);
      waits.update(collector.waits(), latest.now);
      calls.update(collector.rates("calls"), latest.now);
    },
    tick() {
      risk.tick();
      longest.tick();
    },
  };
}

/** Text and tone of the daemon's health. */
export function healthOf(health) {
  if (health.draining) return ["Shutting down", "bad"];
  return health.unavailable === null ? ["Ready", "ok"] : ["Grants no locks", "bad"];
}

function list(root, rows) {
  replaceIfChanged(root, rows, () => rows.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", { class: "number" }, value))));
}

function lockList(none, textOf) {
  const empty = h("p", { class: "muted" }, none);
  const items = h("ul", { class: "short" });
  const known = new Map();
  return {
    root: h("div", {}, empty, items),
    update(locks) {
      empty.hidden = locks.length > 0;
      reconcile(items, known, locks, (lock) => `${lock.namespace}\n${lock.name}`, (lock) => {
        const holder = h("span", { class: "muted small" });
        const text = h("span", { class: "number" });
        const part = {
          root: h("li", {}, h("a", { href: lockLink(lock) }, lock.name), text, holder),
          update(next) {
            part.lock = next;
            setText(holder, next.holder ? holderName(next.holder) : "");
            part.tick();
          },
          tick() { setText(text, textOf(part.lock)); },
        };
        return part;
      }, (part, lock) => part.update(lock));
    },
    tick() {
      for (const part of known.values()) part.tick();
    },
  };
}

function callTable() {
  const body = h("tbody", {});
  const table = h("table", { class: "calls" },
    h("caption", { class: "visually-hidden" }, "Storage calls since the start"),
    h("thead", {}, h("tr", {}, ["Call", "Purpose", "Number"].map((text) => h("th", { scope: "col" }, text)))), body);
  const none = h("p", { class: "muted" }, "This store counts no calls: it is part of the daemon.");
  return {
    root: h("div", {}, none, table),
    update(calls) {
      table.hidden = calls.length === 0;
      none.hidden = calls.length > 0;
      replaceIfChanged(body, calls, () => calls.map((call) =>
        h("tr", {}, h("td", {}, call.operation), h("td", {}, call.purpose), h("td", { class: "number" }, count(call.count)))));
    },
  };
}
