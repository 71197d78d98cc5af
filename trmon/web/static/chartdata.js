// The data behind a run's charts: signals over the displayed steps, the events at each step, what the diagnosis means for the
// charts, and the state in the address.

import { unanswered, get } from "./api.js";
import { isNew } from "./dom.js";
import { catalogueOfSignals, signalsOf } from "./panels.js";

export const POINTS = 320; // About one a pixel of a chart: more would only weigh.
const WAIT_MS = 120;
const LEAST_STEPS = 10;
const SMOOTHING = "trmon.smoothing";
export const MOST_SMOOTHING = 0.99;

const CHANGES_MS = 60_000;

const NOTHING = { exact: true, step: [], count: [], closed_at: [], signals: {} };

export class ChartData extends EventTarget {
  series = NOTHING;
  whole = NOTHING; // The series over all steps.
  chosen = null;
  markers = [];
  interval = null; // The steps in which the run broke.
  evidence = new Map();
  kind = "watch"; // How urgent it is: act or watch.
  panels = [];
  extent = [0, 1];
  view = [0, 1];
  smoothing = Math.min(Number(localStorage.getItem(SMOOTHING)) || 0, MOST_SMOOTHING);
  #timer = null;
  #asked = null;
  #fits = true;
  #changes = [];
  #changesAt = 0;
  #facts = null;
  names = new Set();
  #scalars = [];

  /** `given` is the state in the address; `signal` ends the view. */
  constructor(path, given, signal) {
    super();
    Object.assign(this, { path, given, signal, attempt: given.attempt, byTime: given.by === "time" });
    signal.addEventListener("abort", () => {
      clearTimeout(this.#timer);
      this.#asked?.abort();
    });
  }

  /** Whether the times at which steps closed are those of the training: a log without times has those of its import. */
  get hasTimes() {
    return this.#facts?.run.config.imported?.timed !== false;
  }

  /** Draw charts over the time at which steps closed, or over steps. */
  drawBy(byTime) {
    this.byTime = byTime;
    write({ by: byTime ? "time" : null }, this.path);
    this.dispatchEvent(new Event("axis"));
  }

  /** Draw an exponential moving average of this weight over the lines, or none with 0; this browser keeps it. */
  smooth(weight) {
    this.smoothing = weight;
    localStorage.setItem(SMOOTHING, weight);
    this.dispatchEvent(new Event("smoothing"));
  }

  /** Return where a step lies on the horizontal axis: itself, or when it closed in seconds since the epoch. */
  position(at) {
    return this.byTime ? interpolated(this.series.step, this.series.closed_at, at) : at;
  }

  /** Return the step at a place on the horizontal axis. */
  stepAt(place) {
    return this.byTime ? interpolated(this.series.closed_at, this.series.step, place) : place;
  }

  /** Read which signals there are, in general and of this run. */
  async learn() {
    this.#readChanges();
    const [catalogue] = await Promise.all([catalogueOfSignals(), this.#readNames()]);
    this.catalogue = catalogue;
  }

  /** Read the series, once the signals are known. */
  async begin() {
    await this.#readAll();
    if (this.given.from !== null && this.given.to !== null) this.show(this.given.from, this.given.to);
  }

  /** Read the newest steps; a view of all steps grows with the run. */
  async follow() {
    await this.#readNames();
    this.#readChanges();
    return this.#readDrawn();
  }

  /** Whether the newest step is displayed. */
  get isAtEnd() {
    return this.view[1] >= this.extent[1];
  }

  /** Return the typical distance in steps between two reports. */
  get stride() {
    const { step: steps, count } = this.series;
    const later = count.slice(1).reduce((sum, n) => sum + n, 0);
    return later ? Math.max((steps.at(-1) - steps[0]) / later, 1) : 1;
  }

  /** Display other steps: with cached data at once, in full resolution once it is read. No range means all steps. */
  show(from = this.extent[0], to = this.extent[1]) {
    const [first, last] = this.extent;
    const width = Math.min(Math.max(to - from, LEAST_STEPS), Math.max(last - first, 1));
    const start = Math.min(Math.max(from, first), last - width);
    this.view = [Math.round(start), Math.round(start + width)];
    this.#fits = this.view[0] <= first && this.view[1] >= last;
    this.dispatchEvent(new Event("view"));
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#settle(), WAIT_MS);
  }

  /** Pan by a fraction of the displayed range. */
  pan(share) {
    const by = (this.view[1] - this.view[0]) * share;
    this.show(this.view[0] + by, this.view[1] + by);
  }

  /** Zoom the displayed range by `factor`, around the middle or around a step. */
  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    this.show(around - (around - this.view[0]) * factor, around + (this.view[1] - around) * factor);
  }

  /** Return the displayed step next to a step. */
  beside(step, by) {
    const steps = this.series.step;
    const at = steps.findIndex((other) => other >= step);
    return steps[Math.min(Math.max((at < 0 ? steps.length : at) + by, 0), steps.length - 1)];
  }

  /** Return the markers within some steps of a step. */
  markersNear(at, within) {
    return this.markers.filter((marker) => Math.abs(marker.step - at) <= within);
  }

  /** Read restarts, and changes of configuration and learning rate, once a minute: the service reads the whole run for it. */
  async #readChanges() {
    if (Date.now() - this.#changesAt < CHANGES_MS) return;
    this.#changesAt = Date.now();
    this.#changes = await get(`${this.path}/marks`, { attempt_id: this.attempt }).catch(() => this.#changes);
    if (this.#facts) this.mark(this.#facts);
  }

  /** Record the steps at which a finding and alerts began, policies changed, notes were written, and what else changed. */
  mark(facts) {
    this.#facts = facts;
    const { run, judged, alerts, policies, notes } = facts;
    this.kind = judged.verdict.kind === "act" ? "act" : "watch";
    this.interval = storyOf(facts)?.interval ?? null;
    this.evidence = evidenceOf(facts.diagnosis, this.kind);
    this.#arrange();
    this.extent = [this.extent[0], Math.max(this.extent[1], this.#fits ? 0 : run.last_step)];
    const of = alerts.filter((alert) => alert.severity !== "info");
    this.markers = [
      ...of.map((alert) => ({ step: alert.step, kind: alert.severity === "page" ? "act" : "watch", what: alert.title })),
      ...policies
        .slice(1)
        .map((version) => ({ step: this.stepOf(version), kind: "policy", what: `policy ${version.name}` }))
        .filter(({ step }) => step !== null),
      ...notes
        .filter((note) => note.step !== null)
        .map((note) => ({ step: note.step, kind: "note", what: `note: ${note.text}` })),
      ...this.#changes.map(({ step, kind, words }) => ({ step, kind, what: words })),
    ].sort((a, b) => a.step - b.step);
    this.dispatchEvent(new Event("markers"));
  }

  /** Record which signals exist; some appear at a later step. */
  async #readNames() {
    const names = await get(`${this.path}/signals/names`);
    // Those of evaluations may be older than the steps whose names these are.
    if (names.some((name) => !this.names.has(name))) this.#scalars = await get(`${this.path}/signals/scalars`);
    this.names = new Set([...this.names, ...names, ...this.#scalars.map(({ name }) => name)]);
    this.#arrange();
  }

  /** Order the panels, unless neither the signals nor those to look at first are others. */
  #arrange() {
    const evidence = [...this.evidence.keys()];
    if (isNew(this, this.names.size, evidence)) this.panels = signalsOf(this.names, evidence, this.#scalars);
  }

  /** Read the displayed range; a newer request replaces one that is in flight. */
  async #readDrawn() {
    try {
      await (this.#fits ? this.#readAll() : this.#readView());
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  async #readAll() {
    this.series = await this.#read({});
    this.whole = this.series;
    const { step: steps, count } = this.series;
    // A point is placed at the last step of its bucket.
    if (steps.length) this.extent = [Math.max(steps[0] - count[0] + 1, 0), Math.max(steps.at(-1), steps[0] + 1)];
    if (this.#fits) this.view = [...this.extent];
    this.dispatchEvent(new Event("series"));
  }

  async #readView() {
    const width = this.view[1] - this.view[0];
    const range = { from: Math.max(0, this.view[0] - width), to: this.view[1] + width };
    this.series = await this.#read({ ...range, points: 3 * POINTS });
    this.dispatchEvent(new Event("series"));
  }

  #read(query) {
    const names = this.panels.flatMap((panel) => panel.names).join(",");
    if (!names) return { ...NOTHING };
    this.#asked?.abort();
    this.#asked = new AbortController();
    const detail = { statistics: "mean,min,max", digits: 5, points: POINTS, attempt_id: this.attempt };
    return get(`${this.path}/signals`, { names, ...detail, ...query }, { signal: this.#asked.signal });
  }

  async #settle() {
    write(this.#fits ? { from: null, to: null } : { from: this.view[0], to: this.view[1] }, this.path);
    // If the service is unreachable, the badge shows it, and the data is read again once it is back.
    await this.#readDrawn().catch(unanswered);
  }

  /** Return the first step that used a version of the policy; null until the series has been read. */
  stepOf(version) {
    if (version.from_step) return version.from_step;
    const known = [this.whole, this.series];
    if (known.every((series) => series === NOTHING)) return null;
    const { step: steps, closed_at: closed } = known.find((series) => series.closed_at.at(-1) >= version.created_at) ?? {};
    return closed ? steps[closed.findIndex((at) => at >= version.created_at)] : this.extent[1];
  }
}

/** Return the value at `x` on the line through the points; beyond its ends, on its last segment. */
function interpolated(xs, ys, x) {
  if (xs.length < 2) return ys[0] ?? x;
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  const width = xs[high] - xs[low];
  return width > 0 ? ys[low] + ((x - xs[low]) / width) * (ys[high] - ys[low]) : ys[low];
}

const NUMBERS = ["step", "from", "to", "attempt"];

export function read() {
  const given = new URLSearchParams(location.search);
  const numbers = NUMBERS.map((name) => [name, /^\d+$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null]);
  return { ...Object.fromEntries(numbers), by: given.get("by") };
}

/** Change the given keys; null removes a key. Nothing is written once the user has left the run at `path`. */
export function write(changes, path = location.pathname) {
  if (path !== location.pathname) return;
  const kept = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) kept.delete(name);
    else kept.set(name, value);
  }
  const query = kept.toString().replaceAll("%2C", ",");
  history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
}

const REWARD = ["reward_collapse", "reward_decline"];

/** Return the finding that leads; null where none that counts stands. */
export const leadOf = (diagnosis) => (diagnosis?.word === "finding" ? diagnosis.findings[0] : null);

/** Return the facts of a standing illness, or null without one, as where a collapse is only predicted. */
export function storyOf({ diagnosis }) {
  const lead = leadOf(diagnosis);
  if (!diagnosis?.interval) return null;
  const fell = diagnosis.findings.find((one) => REWARD.includes(one.finding));
  return {
    began: diagnosis.since_step,
    found: lead.found_step,
    beyond: lead.beyond_step,
    interval: diagnosis.interval,
    fromStart: lead.from_start,
    lastGood: diagnosis.last_good_step,
    checkpoint: diagnosis.remedy?.checkpoint_step ?? null,
    rewardFell: fell && fell !== lead ? fell.since_step : null,
    lead,
  };
}

const kindOf = (severity) => (severity === "page" ? "act" : "watch");

/** Return the signals to draw first, by name, each with the `title` and the `kind` of what it is evidence of: those of the
 *  finding that leads, the chart of each other one, and without a finding what is outside its healthy range. */
export function evidenceOf(diagnosis, leadKind) {
  const lead = leadOf(diagnosis);
  const found = new Map();
  const add = (name, title, kind) => found.has(name) || found.set(name, { title, kind });
  if (!lead) for (const { signal } of diagnosis?.outside ?? []) add(signal, "outside its healthy range", "watch");
  else for (const name of [lead.chart, ...lead.evidence.map(({ signal }) => signal)]) add(name, lead.title, leadKind);
  const counted = lead ? diagnosis.findings.filter(({ severity }) => severity !== "info") : [];
  for (const { chart, title, severity } of counted) add(chart, title, kindOf(severity));
  return found;
}

/** Return the limits of findings that stand on the scale of one of the named signals, each `at` a value with its `kind`. */
export function limitsOf(diagnosis, names) {
  const limits = (diagnosis?.findings ?? []).flatMap(({ severity, evidence }) =>
    evidence
      .filter((item) => names.includes(item.signal) && item.is_on_scale)
      .map(({ limit: at }) => ({ at, kind: kindOf(severity) })),
  );
  return limits.filter(({ at }, i) => limits.findIndex((other) => other.at === at) === i);
}
