// Text of numbers, times, holders and commands.

const numbers = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** Offset of the daemon's clock from this page's monotonic clock. */
let offset = null;

/** Records the daemon's time in Unix milliseconds. The least delayed message counts. */
export function syncClock(now) {
  const measured = now - performance.now();
  // A daemon whose clock was set is followed.
  if (offset === null || measured > offset || offset - measured > 2000) offset = measured;
}

/** Returns the daemon's current time in Unix milliseconds. */
export const now = () => performance.now() + (offset ?? Date.now() - performance.now());

export const count = (number) => numbers.format(number);

/** Returns "1 lock" or "2 locks". */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Formats a duration in milliseconds with at most two units. */
export function duration(milliseconds) {
  const ms = Math.max(0, milliseconds);
  if (ms < 1) return ms > 0 ? "< 1 ms" : "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  const units = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, length]) => seconds >= length);
  let rest = seconds;
  const parts = [];
  for (const [unit, length] of units.slice(first, first + 2)) {
    const amount = Math.floor(rest / length);
    if (amount > 0) parts.push(`${amount} ${unit}`);
    rest -= amount * length;
  }
  return parts.join(" ");
}

/** Formats a duration that a display counts: whole seconds. */
export const coarse = (ms) => (ms < 1000 ? "< 1 s" : duration(Math.floor(ms / 1000) * 1000).replace(".0", ""));

/** Formats a time of day, with the date unless it is recent. */
export function timeOfDay(at) {
  const text = clock.format(at);
  return now() - at > 43_200_000 ? `${day.format(at)}, ${text}` : text;
}

/** Returns the name of a holder's program. */
export const clientName = (holder) => holder?.client || "unnamed client";

/** Returns the program and the place of a holder, for sentences and pictures. */
export function holderName(holder) {
  if (!holder) return "unknown holder";
  const place = holder.pod || holder.host;
  const program = clientName(holder).replace(/^leasehold (lock|elect): /, "");
  return place ? `${program} on ${place}` : program;
}

/** Returns place, process and labels of a holder. */
export function holderDetail(holder) {
  if (!holder) return "";
  const labels = Object.entries(holder.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return [holder.pod, holder.host, holder.pid && `pid ${holder.pid}`, ...labels].filter(Boolean).join(" · ");
}

/** Key that distinguishes holders. A pod is the same worker after a restart of its process. */
export const holderKey = (holder) =>
  holder ? [holder.client, holder.host, holder.pod, holder.pod ? "" : holder.pid].join("\n") : "";

/** Address of a lock's page. */
export const lockLink = (lock) =>
  `#/lock/${encodeURIComponent(lock.namespace)}/${encodeURIComponent(lock.name)}`;

/** Quotes a word for a POSIX shell. */
export const quote = (word) =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** Returns a command line about a lock, for an operator at this daemon. */
export function command(verb, lock, health, ...rest) {
  const words = ["leasehold", verb];
  const isOption = lock.name.startsWith("-");
  if (!isOption) words.push(quote(lock.name));
  words.push(...rest);
  if (lock.namespace !== "default") words.push("--namespace", quote(lock.namespace));
  if (health.endpoint !== null) words.push("--endpoint", quote(health.endpoint));
  if (isOption) words.push("--", quote(lock.name));
  return words.join(" ");
}
