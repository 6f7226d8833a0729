// Picture of a lock's holds over time: holders in color, gaps, losses, waiters.

import { h, s } from "./dom.js";
import { duration, holderKey, holderName, now, plural, timeOfDay } from "./format.js";

const LANE = 40;
const TOP = 18;
const QUEUE = 42;
const AXIS = 22;
const HUES = 8;
const MAX_HOLDS = 300;
/** Ranges in milliseconds. None fits the last holds. */
const RANGES = [["Fit", null], ["1 min", 60e3], ["10 min", 600e3], ["1 h", 3600e3], ["6 h", 21600e3]];
const FITTED_HOLDS = 12;
const MIN_FIT = 30e3;
const TICKS = [1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3];

/** Returns the holds that a history contains, the oldest first. */
export function holdsOf(history, lock) {
  const holds = new Map();
  for (const event of [...history].reverse()) {
    if (event.kind === "granted") {
      holds.set(event.token, { holder: event.holder, token: event.token, from: event.at, to: null, lost: null });
    } else if (event.kind === "released" || event.kind === "lost") {
      const hold = holds.get(event.token) ?? {
        holder: event.holder, token: event.token, from: event.at - (event.held_for ?? 0),
      };
      // The first end of a grant counts: its holder may release it after the loss.
      if (!hold.to) holds.set(event.token, { ...hold, to: event.at, lost: event.kind === "lost" ? event.text : null });
    }
  }
  if (lock?.token && lock.since !== null && !holds.has(lock.token)) {
    holds.set(lock.token, { holder: lock.holder, token: lock.token, from: lock.since, to: null, lost: null });
  }
  // A grant without an end that is not current: its end is no longer in the history.
  const all = [...holds.values()].filter((hold) => hold.to !== null || hold.token === lock?.token);
  return all.sort((one, other) => one.from - other.from).slice(-MAX_HOLDS);
}

/** Number of waiters over time. Waiters from before the history are added to all steps. */
function queueOf(history, waiting) {
  const queued = new Map();
  const steps = [];
  let length = 0;
  for (const event of [...history].reverse()) {
    const key = holderKey(event.holder);
    const own = queued.get(key) ?? 0;
    const leaves = ["granted", "refused", "canceled"].includes(event.kind) && own > 0;
    if (event.kind !== "queued" && !leaves) continue;
    const change = leaves ? -1 : 1;
    queued.set(key, own + change);
    length += change;
    steps.push({ at: event.at, length });
  }
  const unknown = Math.max(0, waiting - length);
  return steps.map(({ at, length: known }) => ({ at, length: known + unknown }));
}

export function timeline() {
  const picture = s("svg", { role: "img", class: "timeline", preserveAspectRatio: "none" });
  const legend = h("ul", { class: "legend", "aria-label": "Holders" });
  const ranges = h("div", { class: "ranges", role: "group", "aria-label": "Range" });
  const box = h("div", { class: "picture" }, picture);
  const root = h("div", {}, box, h("div", { class: "split" }, legend, ranges));
  let data = null;
  let chosen = null;
  const buttons = RANGES.map(([text, length]) => {
    const button = h("button", { type: "button", class: "quiet", "aria-pressed": "false" }, text);
    button.addEventListener("click", () => { chosen = length; draw(); });
    ranges.append(button);
    return { button, length };
  });
  const draw = () => {
    if (!data || !box.clientWidth) return;
    const length = chosen ?? fitting(data.holds);
    for (const { button, length: own } of buttons) button.setAttribute("aria-pressed", String(own === chosen));
    const colors = colorsOf(data.holds);
    render(picture, { ...data, length, width: box.clientWidth, colors });
    renderLegend(legend, data.holds, colors);
  };
  const resized = new ResizeObserver(draw);
  resized.observe(box);
  return {
    root,
    update(history, lock) {
      data = { holds: holdsOf(history, lock), queue: queueOf(history, lock.waiting), lock };
      draw();
    },
    tick: draw,
    destroy: () => resized.disconnect(),
  };
}

/** Returns the length of a range that contains the last holds. */
function fitting(holds) {
  const start = holds.at(-Math.min(holds.length, FITTED_HOLDS))?.from ?? now();
  return Math.max(MIN_FIT, (now() - start) * 1.04);
}

/** Assigns colors in the order of the first hold, so that neighbors differ. */
function colorsOf(holds) {
  const colors = new Map();
  for (const { holder } of holds) {
    const key = holderKey(holder);
    if (!colors.has(key)) colors.set(key, colors.size % HUES);
  }
  return colors;
}

function render(picture, { holds, queue, lock, length, width, colors }) {
  const end = now();
  const start = end - length;
  const right = width - 10;
  const x = (at) => Math.max(0, Math.min(right, ((at - start) / length) * right));
  const height = TOP + LANE + 10 + QUEUE + AXIS;
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("height", height);
  const visible = holds.filter((hold) => (hold.to ?? end) >= start);
  picture.setAttribute("aria-label", summary(visible, lock, length));
  const baseline = TOP + LANE + 10 + QUEUE;
  picture.replaceChildren(...[
    hatch(),
    s("rect", { x: 0, y: TOP, width: right, height: LANE, rx: 6, class: "gap" }),
    ...axis(start, length, right, baseline),
    ...visible.flatMap((hold) => bar(hold, x, end, colors)),
    ...queueArea(queue, lock.waiting, x, start, end, baseline),
    visible.length > 0 ? [] : s("text", { x: right / 2, y: TOP + LANE / 2 + 4.5, "text-anchor": "middle", class: "axis" }, "no hold in this time"),
    s("line", { x1: right, x2: right, y1: TOP - 6, y2: baseline, class: "now" }),
    s("text", { x: right, y: TOP - 8, "text-anchor": "end", class: "axis" }, "now"),
  ].flat());
}

function hatch() {
  return s("defs", {}, s("pattern", {
    id: "lost", width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
  }, s("rect", { width: 4, height: 8, class: "hatch" })));
}

function bar(hold, x, end, colors) {
  const from = x(hold.from);
  const width = Math.max(2, x(hold.to ?? end) - from - (hold.to ? 1 : 0));
  const name = holderName(hold.holder);
  const times = `${timeOfDay(hold.from)} – ${hold.to ? timeOfDay(hold.to) : "now"} (${duration((hold.to ?? end) - hold.from)})`;
  const lost = hold.lost === null ? "" : `\n${hold.lost}`;
  const parts = [s("rect", { x: from, y: TOP, width, height: LANE, rx: Math.min(6, width / 2), class: `hold hue${colors.get(holderKey(hold.holder))}` },
    s("title", {}, `${name}\n${times}\ntoken ${hold.token}${lost}`))];
  if (hold.lost !== null) {
    const tail = Math.min(width, 22);
    parts.push(s("rect", { x: from + width - tail, y: TOP, width: tail, height: LANE, rx: Math.min(6, tail / 2), fill: "url(#lost)", class: "lost" }));
    parts.push(s("path", { d: `M${from + width - 5} ${TOP - 9}h10l-5 7z`, class: "mark" }));
  }
  const room = width - (hold.lost === null ? 14 : 36);
  const letters = Math.floor(room / 7.2);
  if (letters >= 4) {
    const text = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
    parts.push(s("text", { x: from + 8, y: TOP + LANE / 2 + 4.5, class: "who" }, text));
  }
  return parts;
}

function queueArea(steps, waiting, x, start, end, baseline) {
  const most = Math.max(1, waiting, ...steps.map((step) => step.length));
  const y = (length) => baseline - (length / most) * (QUEUE - 16);
  const visible = steps.filter((step) => step.at >= start);
  const before = steps.filter((step) => step.at < start).at(-1);
  const first = before?.length ?? (visible.length > 0 ? Math.max(0, visible[0].length - 1) : waiting);
  let path = `M${x(start)} ${baseline}V${y(first)}`;
  for (const step of visible) path += `H${x(step.at)}V${y(step.length)}`;
  path += `H${x(end)}V${baseline}Z`;
  const label = most === 1 && first === 0 && waiting === 0 && visible.length === 0 ? "no waiters" : `waiters (up to ${most})`;
  return [
    s("path", { d: path, class: "queue" }),
    s("text", { x: 2, y: baseline - QUEUE + 10, class: "axis" }, label),
  ];
}

function axis(start, length, right, baseline) {
  const step = TICKS.find((tick) => (right / length) * tick >= 76) ?? TICKS.at(-1);
  const parts = [s("line", { x1: 0, x2: right, y1: baseline, y2: baseline, class: "rule" })];
  for (let ago = step; ago < length; ago += step) {
    const at = right * (1 - ago / length);
    if (at < 24) break;
    parts.push(s("line", { x1: at, x2: at, y1: TOP, y2: baseline + 4, class: "rule" }));
    parts.push(s("text", { x: at, y: baseline + 16, "text-anchor": "middle", class: "axis" }, `−${duration(ago).replace(".0", "")}`));
  }
  return parts;
}

/** Returns the names of the holders, with the process where a name is not unique. */
function distinctNames(holds) {
  const holders = new Map(holds.map(({ holder }) => [holderKey(holder), holder]));
  const known = [...holders.values()].map(holderName);
  const isUnique = (name) => known.indexOf(name) === known.lastIndexOf(name);
  return new Map([...holders].map(([key, holder]) => {
    const name = holderName(holder);
    return [key, isUnique(name) || !holder?.pid ? name : `${name} (pid ${holder.pid})`];
  }));
}

function renderLegend(legend, holds, colors) {
  const names = distinctNames(holds);
  const shown = [...colors].slice(-6);
  const items = shown.map(([key, color]) => [`hue${color}`, names.get(key)]);
  items.push(["lost", "lost"], ["gap", "free"]);
  const text = JSON.stringify(items);
  if (legend.shown === text) return;
  legend.shown = text;
  legend.replaceChildren(...items.map(([color, name]) => h("li", {}, h("span", { class: `swatch ${color}`, "aria-hidden": "true" }), name)));
}

function summary(holds, lock, length) {
  const lost = holds.filter((hold) => hold.lost !== null).length;
  const current = lock.holder && lock.token !== null ? `; now held by ${holderName(lock.holder)}` : "";
  return `Holds of the last ${duration(length)}: ${plural(holds.length, "hold")}, ${lost} lost${current}. The table of events has the details.`;
}
