// Numbers over time, collected from updates while the page is open, and small charts
// of them.

import { h, s, setText } from "./dom.js";
import { duration } from "./format.js";

const SPAN = 300_000;
const HEIGHT = 84;
const MAX_SAMPLES = 2000;

/** Collects the totals of each snapshot. */
export class Collector {
  samples = [];

  add({ now, totals, calls }) {
    const last = this.samples.at(-1);
    if (last && now - last.at < 900) return;
    // After a restart of the daemon, its totals begin at zero.
    if (last && totals.grants < last.grants) this.samples = [];
    this.samples.push({ at: now, calls, ...totals });
    while (this.samples[0].at < now - SPAN - 5000 || this.samples.length > MAX_SAMPLES) this.samples.shift();
  }

  /** Rates per second of a total, between consecutive samples. */
  rates(key) {
    return this.#pairs((one, next, seconds) => Math.max(0, (next[key] - one[key]) / seconds));
  }

  /** Mean time that the grants between consecutive samples waited, in milliseconds. */
  waits() {
    return this.#pairs((one, next) => next.grants > one.grants ? (next.waited_ms - one.waited_ms) / (next.grants - one.grants) : 0);
  }

  #pairs(value) {
    return this.samples.slice(1).map((next, index) => {
      const one = this.samples[index];
      return { at: next.at, value: value(one, next, (next.at - one.at) / 1000) };
    });
  }
}

/** Chart of one number over the last five minutes. */
export function chart(title, format) {
  const latest = h("span", { class: "latest" }, "–");
  const top = h("span", { class: "muted small number" });
  const picture = s("svg", { role: "img", class: "chart", preserveAspectRatio: "none", viewBox: `0 0 300 ${HEIGHT}`, "aria-label": title });
  const root = h("figure", { class: "panel" },
    h("figcaption", {}, h("span", {}, title), latest),
    h("div", { class: "plot" }, top, picture),
    h("p", { class: "muted small split", "aria-hidden": "true" }, h("span", {}, "−5 min"), h("span", {}, "now")));
  return {
    root,
    update(points, now) {
      const last = points.at(-1);
      if (!last) {
        setText(top, "collecting");
        return;
      }
      const most = Math.max(...points.map((point) => point.value));
      const scale = niceAbove(most);
      setText(latest, format(last.value));
      setText(top, format(scale));
      picture.setAttribute("aria-label", `${title}: now ${format(last.value)}, at most ${format(most)} in the last five minutes`);
      const x = (at) => 300 - ((now - at) / SPAN) * 300;
      const y = (value) => HEIGHT - 2 - (value / scale) * (HEIGHT - 6);
      const line = points.map((point) => `${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`).join("L");
      const from = x(points[0].at).toFixed(1);
      const to = x(last.at).toFixed(1);
      picture.replaceChildren(
        s("line", { x1: 0, x2: 300, y1: HEIGHT - 1, y2: HEIGHT - 1, class: "rule" }),
        s("line", { x1: 0, x2: 300, y1: 4, y2: 4, class: "rule faint" }),
        s("path", { d: `M${from} ${HEIGHT - 1}L${line}L${to} ${HEIGHT - 1}Z`, class: "area" }),
        s("path", { d: `M${line}`, class: "line" }));
    },
  };
}

/** Returns the next round number: 1, 2 or 5 times a power of ten. */
function niceAbove(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((round) => round >= value) ?? value;
}

export const perSecond = (value) => `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)}/s`;
export const milliseconds = (value) => duration(value < 1 ? Math.ceil(value) : value);
