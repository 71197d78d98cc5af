// Formats numbers and times. Ages follow the service's clock, because a browser's clock may be hours off.

export const isKnown = (value) => value !== null && value !== undefined;

/** Format with three significant digits, or more; null and NaN become a dash, "inf" stays. */
export function number(value, digits = 3) {
  if (!isKnown(value) || Number.isNaN(value)) return "–";
  if (typeof value === "string") return value;
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return Number(value.toPrecision(digits)).toExponential().replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const shown = Math.max(digits, Math.floor(Math.log10(size)) + 1);
  return size >= 1000 ? value.toLocaleString("en", { maximumSignificantDigits: shown }) : String(Number(value.toPrecision(digits)));
}

/** Format the values of an axis, each with enough digits to tell it from the next. */
export function tickLabels(values) {
  const known = values.filter((value) => value !== null);
  return values.map((value) => {
    if (value === null) return "";
    const nearest = Math.min(...known.filter((other) => other !== value).map((other) => Math.abs(other - value)));
    let digits = 3;
    while (digits < 12 && Math.abs(Number(value.toPrecision(digits)) - value) > nearest / 20) digits++;
    return number(value, digits);
  });
}

/** Format whole steps with separators. */
export const step = (value) => (isKnown(value) ? value.toLocaleString("en") : "–");

/** Format a fraction as percent; small values are not rounded to 0%. */
export function percent(value) {
  if (!isKnown(value) || typeof value === "string") return "–";
  if (value > 0 && value < 0.01) return "<1%";
  return `${Math.round(value * 100)}%`;
}

/** Format a duration in its largest whole unit: 40 s, 14 min, 3 h, 2 d. */
export function span(seconds) {
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ]) {
    if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  }
  if (seconds >= 1) return `${Math.round(seconds)} s`;
  return seconds >= 0.1 ? `${Number(seconds.toPrecision(1))} s` : "under 0.1 s";
}

/** Format the age of a time in seconds since the epoch. */
export function ago(at) {
  if (at === null) return "never";
  const seconds = now() - at;
  return seconds < 1 ? "now" : `${span(seconds)} ago`;
}

const TIME = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" };
const DATE = { year: "numeric", month: "short", day: "numeric" };

/** Format a time with its date and its zone: "Nov 25, 2026, 09:14 GMT+1". */
export const clock = (at) => new Date(at * 1000).toLocaleString([], { ...DATE, ...TIME });

/** Format the time of day with its zone, and with the date unless it is today by the service's clock. */
export function hour(at) {
  const isToday = new Date(at * 1000).toDateString() === new Date(now() * 1000).toDateString();
  return isToday ? new Date(at * 1000).toLocaleTimeString([], TIME) : clock(at);
}

/** Return the browser's time zone at a time: "GMT+1". */
export const zone = (at) =>
  new Intl.DateTimeFormat([], TIME).formatToParts(at * 1000).find(({ type }) => type === "timeZoneName").value;

export const plural = (n, one, many = `${one}s`) => `${step(n)} ${n === 1 ? one : many}`;

/** Format a kind of verdict: "No drift found". */
export const kindWords = (kind) => capital(kind.replaceAll("_", " "));

/** Return a verdict in words: its kind, and why, which may be a remark in parentheses. */
export const verdictWords = ({ kind, why }) => [`${kindWords(kind)}${!why ? "" : why.startsWith("(") ? " " : ": "}`, why];

/** Return what qualifies the words of a risk of collapse: " (not calibrated), driven by reward". */
export function riskWords({ calibration, driven_by: drivers }) {
  return (calibration ? ` (${calibration})` : "") + (drivers.length ? `, driven by ${drivers.join(" and ")}` : "");
}

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const TOLERATED_MS = 5000; // The Date header has whole seconds, and the response takes time to arrive.

let aheadMs = 0;

/** Set the offset from the Date header of a response. */
export function learn(date) {
  const off = Date.parse(date) - Date.now();
  if (!Number.isNaN(off)) aheadMs = Math.abs(off) > TOLERATED_MS ? off : 0;
}

/** Return the service's time in seconds since the epoch. */
export const now = () => (Date.now() + aheadMs) / 1000;
