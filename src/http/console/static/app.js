// Entry: selects the view by the address, and updates it from one event stream.

import { h, setText } from "./dom.js";
import { syncClock } from "./format.js";
import { Collector } from "./charts.js";
import { daemonView, healthOf } from "./daemon.js";
import { lockView } from "./lock.js";
import { locksView } from "./locks.js";
import { emptyState, setPill } from "./parts.js";

const TICK = 250;
const RETRY = 1000;
/** Time without a stream after which the page reports an outage. */
const OUTAGE = 1500;

const main = document.getElementById("main");
const health = document.getElementById("health");
const notice = document.getElementById("notice");
const about = document.getElementById("about");
const collector = new Collector();

let view = null;
let source = null;
let retry = 0;
let outage = 0;

function viewFor(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?");
  const parts = path.split("/");
  try {
    if (path === "") return locksView(new URLSearchParams(query), { go });
    if (path === "daemon") return daemonView(collector);
    if (parts.length === 3 && parts[0] === "lock") return lockView(...parts.slice(1).map(decodeURIComponent));
  } catch {
    // An address with an invalid escape names no view.
  }
  return {
    root: h("div", { class: "view" }, h("section", { class: "panel" },
      emptyState("There is no such view", h("a", { href: "#/", class: "button" }, "All locks")))),
    title: "Not found", nav: "", query: "view=locks&limit=1", update() {}, tick() {},
  };
}

function go(address) {
  location.hash = address;
}

/** Replaces the view. The focus stays in a search field of the same view. */
function navigate() {
  const before = view;
  view?.destroy?.();
  const active = document.activeElement?.id;
  const selection = active ? document.activeElement.selectionStart : null;
  view = viewFor(location.hash);
  main.replaceChildren(view.root);
  document.title = `${view.title} – Leasehold`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view.nav) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const same = active && before?.title === view.title ? document.getElementById(active) : null;
  if (same && main.contains(same)) {
    same.focus({ preventScroll: true });
    if (selection !== null && same.type !== "radio") same.setSelectionRange(selection, selection);
  } else if (before) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  connect();
}

function connect() {
  source?.close();
  clearTimeout(retry);
  const own = new EventSource(`/console/api/events?${view.query}`);
  source = own;
  own.addEventListener("view", (event) => {
    if (own === source) receive(JSON.parse(event.data));
  });
  own.addEventListener("error", () => {
    if (own !== source) return;
    // Each failed attempt is reported: the first one counts.
    outage ||= setTimeout(() => {
      setPill(health, "Reconnecting", "warn");
      showNotice("No connection to the daemon. The page shows the last known state.");
    }, OUTAGE);
    // The browser retries a broken stream, but not a refused one.
    if (own.readyState === EventSource.CLOSED) retry = setTimeout(() => reconnect(own), RETRY);
  });
}

/** Finds out why a stream was refused, and connects again. */
async function reconnect(own) {
  if (own !== source) return;
  const stop = new AbortController();
  try {
    const answer = await fetch(own.url, { signal: stop.signal });
    if (answer.status === 400) {
      endOutage();
      setPill(health, "Refused", "warn");
      showNotice((await answer.json()).error.message);
      return;
    }
    stop.abort();
  } catch {
    // The daemon does not answer.
  }
  if (own === source) connect();
}

function endOutage() {
  clearTimeout(outage);
  outage = 0;
}

function receive(snapshot) {
  endOutage();
  syncClock(snapshot.now);
  collector.add(snapshot);
  showNotice(null);
  setPill(health, ...healthOf(snapshot.health));
  setText(about, `Leasehold ${snapshot.health.version}`);
  view.update(snapshot);
  document.documentElement.dataset.ready = "true";
}

function showNotice(text) {
  notice.hidden = text === null;
  setText(notice, text ?? "");
}

addEventListener("hashchange", navigate);
setInterval(() => { if (!document.hidden) view.tick(); }, TICK);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
navigate();
