// Parts that several views share.

import { h, setText, setAttribute } from "./dom.js";
import { clientName, coarse, holderDetail, now } from "./format.js";

/** Texts of the states of a lock. */
export const STATES = {
  held: { text: "Held", tone: "ok" },
  silent: { text: "Holder not connected", tone: "warn" },
  at_risk: { text: "At risk", tone: "warn" },
  ending: { text: "Lost, not free yet", tone: "bad" },
  peer: { text: "Held at a peer", tone: "info" },
  waiting: { text: "Waiting for a lease", tone: "warn" },
  free: { text: "Free", tone: "none" },
};

/** Label with a color. The text carries the meaning. */
export function pill(text, tone) {
  return h("span", { class: `pill ${tone}` }, text);
}

export function setPill(node, text, tone) {
  setText(node, text);
  const name = `pill ${tone}`;
  if (node.className !== name) node.className = name;
}

/** Bar of the time that is left, with its text. `tick` moves it. */
export function timeBar() {
  const level = h("span", { class: "level" });
  const text = h("span", { class: "left" });
  const track = h("span", { class: "track", "aria-hidden": "true" }, level);
  const root = h("span", { class: "bar" }, track, text);
  let shown = null;
  const tick = () => {
    if (!shown) return;
    track.hidden = shown.ends === null;
    if (shown.ends === null) {
      setText(text, shown.state === "peer" ? "known to its daemon" : "—");
      setAttribute(root, "data-tone", "none");
      return;
    }
    const left = Math.max(0, shown.ends - now());
    const share = Math.min(1, left / Math.max(shown.full ?? left, 1));
    level.style.transform = `scaleX(${share.toFixed(3)})`;
    setAttribute(root, "data-tone", STATES[shown.state]?.tone === "ok" && share < 0.25 ? "warn" : STATES[shown.state]?.tone);
    const full = shown.full ? ` of ${coarse(shown.full)}` : "";
    setText(text, shown.state === "ending" ? `free in ${coarse(left)}` : `${coarse(left)}${full}`);
  };
  return { root, tick, update(lock) { shown = lock; tick(); } };
}

/** Time since an instant. `tick` counts it up. */
export function since() {
  const root = h("span", { class: "number" });
  let from = null;
  const tick = () => setText(root, from === null ? "—" : coarse(now() - from));
  return { root, tick, update(at) { from = at; tick(); } };
}

/** Holder in two lines: name, details. */
export function holderCell() {
  const name = h("span", { class: "strong" });
  const detail = h("span", { class: "muted small" });
  return {
    root: h("span", { class: "stack" }, name, detail),
    update(holder, absent) {
      setText(name, holder ? clientName(holder) : absent);
      name.className = holder ? "strong" : "muted";
      setText(detail, holderDetail(holder));
      detail.hidden = !detail.textContent;
    },
  };
}

/** Text of a leader's value: as text, else its first bytes. */
export function valueText(value) {
  if (!value) return null;
  if (value.text !== null) return value.text === "" ? null : value.text;
  return `${value.bytes} bytes (binary)`;
}

/** Command with a button that copies it. */
export function copyable(text) {
  const code = h("code", { tabindex: "0", role: "textbox", "aria-readonly": "true", "aria-label": "Command" }, text);
  const button = h("button", { type: "button", class: "quiet" }, "Copy");
  const done = h("span", { class: "visually-hidden", role: "status" });
  button.addEventListener("click", async () => {
    try {
      // Available only over HTTPS and on loopback.
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    setText(button, "Copied");
    setText(done, "The command is copied");
    setTimeout(() => { setText(button, "Copy"); setText(done, ""); }, 2000);
  });
  return { root: h("span", { class: "command" }, code, button, done), update: (next) => setText(code, next) };
}

/** Message in place of a list without items. */
export function emptyState(title, ...content) {
  return h("div", { class: "empty" },
    h("img", { src: "/console/empty.svg", alt: "", width: "96", height: "72" }),
    h("h2", {}, title), ...content);
}

/** Titles and tones of the events of the history. */
const EVENTS = {
  queued: ["Queued", "none"],
  granted: ["Granted", "ok"],
  refused: ["Refused", "warn"],
  canceled: ["Canceled", "none"],
  released: ["Released", "none"],
  lost: ["Lost", "bad"],
  at_risk: ["At risk", "warn"],
  out_of_risk: ["Out of risk", "ok"],
  step_down_requested: ["Step-down", "warn"],
  held_by_peer: ["Held at a peer", "info"],
  store_failed: ["Store failed", "bad"],
  renewal_failed: ["Renewal failed", "warn"],
  lease_lost: ["Lease lost", "bad"],
};

/** Returns the title and the tone of an event. */
export const eventKind = (event) => EVENTS[event.kind] ?? [event.kind.replaceAll("_", " "), "none"];

/** Returns a sentence with a capital letter and a period. */
export const sentence = (text) => (text === "" ? "" : `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`);
