// List of the locks: counts, search, pages.

import { h, reconcile, setAttribute, setText } from "./dom.js";
import { count, lockLink, plural } from "./format.js";
import { STATES, copyable, emptyState, holderCell, pill, setPill, since, timeBar, valueText } from "./parts.js";

const PAGE_SIZE = 100;

const FILTERS = [
  ["all", "All"],
  ["elections", "Elections"],
  ["waiters", "With waiters"],
  ["at_risk", "At risk"],
];

const TILES = [
  ["held", "Held"],
  ["waiting", "Waiting acquires"],
  ["at_risk", "At risk"],
  ["sessions", "Sessions"],
];

/** Creates the view. `go` changes the address, `restart` the stream. */
export function locksView(parameters, { go }) {
  const state = {
    prefix: parameters.get("prefix") ?? "",
    namespace: parameters.get("namespace") ?? "",
    filter: FILTERS.some(([key]) => key === parameters.get("filter")) ? parameters.get("filter") : "all",
    after: parameters.get("after") ?? "",
    before: Number(parameters.get("before")) || 0,
  };
  const tiles = TILES.map(([key, label]) => ({ key, value: h("dd", {}, "–"), label }));
  const search = searchForm(state, (changes) => go(address({ ...state, after: "", before: 0, ...changes })));
  const table = lockTable();
  const empty = h("div", {});
  const pages = pager(state, go);
  const root = h("div", { class: "view" },
    h("h1", { class: "visually-hidden" }, "Locks"),
    h("dl", { class: "tiles" }, tiles.map(({ key, value, label }) =>
      h("div", { class: "tile", "data-key": key }, h("dt", {}, label), value))),
    h("section", { class: "panel flush", "aria-label": "Locks" }, search.root, table.root, empty, pages.root));
  let emptyKind = null;
  return {
    root,
    title: "Locks",
    nav: "locks",
    query: `view=locks&${query(state)}`,
    update(snapshot) {
      for (const { key, value } of tiles) {
        setText(value, count(snapshot.counts[key]));
        setAttribute(value.parentElement, "data-alarm", key === "at_risk" && snapshot.counts[key] > 0);
      }
      table.update(snapshot.locks);
      pages.update(snapshot);
      const kind = snapshot.locks.length > 0 ? null : isFiltered(state) ? "filtered" : "none";
      table.root.hidden = kind !== null;
      if (kind !== emptyKind) {
        emptyKind = kind;
        empty.replaceChildren(...(kind === null ? [] : [emptyFor(kind, state, snapshot.health)]));
      }
    },
    tick: table.tick,
    /** Keeps the elements if only the parameters of this view changed. */
    focus: () => search.focus(),
  };
}

const isFiltered = (state) =>
  state.prefix !== "" || state.namespace !== "" || state.filter !== "all" || state.after !== "";

function query(state) {
  const parameters = new URLSearchParams({ limit: PAGE_SIZE });
  for (const key of ["prefix", "namespace", "after"]) {
    if (state[key]) parameters.set(key, state[key]);
  }
  if (state.filter !== "all") parameters.set("filter", state.filter);
  return parameters;
}

function address(state) {
  const parameters = new URLSearchParams();
  for (const key of ["prefix", "namespace", "filter", "after", "before"]) {
    if (state[key] && state[key] !== "all") parameters.set(key, state[key]);
  }
  const text = parameters.toString();
  return text ? `#/?${text}` : "#/";
}

function searchForm(state, change) {
  const prefix = h("input", {
    type: "search", id: "prefix", value: state.prefix, autocomplete: "off", spellcheck: "false",
    maxlength: 256, placeholder: "Prefix",
  });
  const namespace = h("input", {
    type: "text", id: "namespace", value: state.namespace, autocomplete: "off", spellcheck: "false",
    maxlength: 63, placeholder: "All",
  });
  let timer = 0;
  const apply = () => {
    clearTimeout(timer);
    if (prefix.value !== state.prefix || namespace.value.trim() !== state.namespace) {
      change({ prefix: prefix.value, namespace: namespace.value.trim() });
    }
  };
  for (const input of [prefix, namespace]) {
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(apply, 200); });
  }
  const radios = FILTERS.map(([key, label]) => {
    const radio = h("input", { type: "radio", name: "filter", value: key, id: `filter-${key}` });
    radio.checked = key === state.filter;
    radio.addEventListener("change", () => change({ filter: key }));
    return [radio, h("label", { for: `filter-${key}` }, label)];
  });
  const root = h("form", { class: "search", role: "search" },
    h("div", { class: "field grow" }, h("label", { for: "prefix" }, "Name"), prefix),
    h("div", { class: "field" }, h("label", { for: "namespace" }, "Namespace"), namespace),
    h("fieldset", { class: "segments" }, h("legend", {}, "Filter"), h("div", {}, radios)));
  root.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  return { root, focus: () => prefix.focus() };
}

function lockTable() {
  const body = h("tbody", { role: "rowgroup" });
  const head = ["Lock", "Holder", "Token", "Waiters", "Held for", "Time left"].map((text) =>
    h("th", { scope: "col", role: "columnheader" }, text));
  const root = h("table", { role: "table", class: "locks" },
    h("caption", { class: "visually-hidden" }, "Locks with their holders, in the order of their names"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), body);
  const rows = new Map();
  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const row = step && event.target.closest("tr")?.[step];
    if (row) {
      event.preventDefault();
      row.querySelector("a").focus();
    }
  });
  return {
    root,
    update(locks) {
      reconcile(body, rows, locks, (lock) => `${lock.namespace}\n${lock.name}`, lockRow, (row, lock) => row.update(lock));
    },
    tick() {
      for (const row of rows.values()) row.tick();
    },
  };
}

function lockRow(lock) {
  const name = h("a", { class: "name", href: lockLink(lock) },
    lock.namespace === "default" ? null : h("span", { class: "muted" }, `${lock.namespace} / `), lock.name);
  const election = pill("Election", "info");
  const status = pill("", "none");
  const holder = holderCell();
  const value = h("code", { class: "value" });
  const token = h("span", { class: "number" });
  const waiters = h("span", { class: "number waiters" });
  const held = since();
  const bar = timeBar();
  const cell = (name, label, ...content) => h("td", { role: "cell", class: name, "data-label": label }, content);
  const root = h("tr", { role: "row" },
    cell("lock", "Lock", name, " ", election, " ", status),
    cell("holder", "Holder", holder.root, value),
    cell("token", "Token", token),
    cell("waiting", "Waiters", waiters),
    cell("held", "Held for", held.root),
    cell("time", "Time left", bar.root));
  let before;
  return {
    root,
    update(lock) {
      election.hidden = !lock.election;
      status.hidden = lock.state === "held";
      setPill(status, STATES[lock.state].text, STATES[lock.state].tone);
      holder.update(lock.holder, lock.state === "peer" ? "holder at a peer" : "no holder");
      const text = lock.election ? valueText(lock.value) : null;
      setText(value, text ?? "");
      value.hidden = text === null;
      setText(token, lock.token === null ? "—" : String(lock.token));
      setText(waiters, String(lock.waiting));
      setAttribute(waiters, "data-some", lock.waiting > 0);
      held.update(lock.since);
      bar.update(lock);
      if (before !== undefined && before !== lock.token) {
        root.classList.remove("changed");
        void root.offsetWidth;
        root.classList.add("changed");
      }
      before = lock.token;
    },
    tick() {
      held.tick();
      bar.tick();
    },
  };
}

function pager(state, go) {
  const text = h("span", { class: "muted number", role: "status" });
  const first = h("button", { type: "button", class: "quiet" }, "First page");
  const next = h("button", { type: "button", class: "quiet" }, "Next page");
  let cursor = null;
  let shown = 0;
  first.addEventListener("click", () => go(address({ ...state, after: "", before: 0 })));
  next.addEventListener("click", () => go(address({ ...state, after: cursor, before: state.before + shown })));
  return {
    root: h("div", { class: "pager" }, text, h("span", { class: "buttons" }, first, next)),
    update({ locks, next: after, total }) {
      cursor = after;
      shown = locks.length;
      const from = state.before + 1;
      setText(text, shown === 0 ? "" : shown === total ? plural(total, "lock")
        : `${count(from)}–${count(state.before + shown)} of ${plural(total, "lock")}`);
      first.hidden = state.after === "";
      next.hidden = after === null;
    },
  };
}

function emptyFor(kind, state, health) {
  if (kind === "filtered") {
    const clear = h("a", { href: "#/", class: "button" }, "Remove the filter");
    const what = state.prefix === "" ? "No lock matches this filter" : `No lock begins with “${state.prefix}”`;
    return emptyState(what, h("p", { class: "muted" }, "Only locks with a holder or a waiter at this daemon are listed."), clear);
  }
  const endpoint = health.endpoint === null ? "" : ` --endpoint ${health.endpoint}`;
  return emptyState("No lock is held",
    h("p", { class: "muted" }, "A lock appears here as soon as a client requests it. To try it:"),
    copyable(`leasehold lock${endpoint} my-first-lock -- sleep 60`).root);
}

