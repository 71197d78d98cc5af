// The course of a run: its signals over the steps that are drawn, and what happened at which step.

import { ApiError, get } from "./api.js";
import { write } from "./permalink.js";
import { signalsOf } from "./panels.js";

const POINTS = 400;
const WAIT_MS = 120;
const LEAST_STEPS = 10;

export class Course extends EventTarget {
  chosen = null;
  markers = [];
  extent = [0, 1];
  view = [0, 1];
  #timer = null;
  #asked = null;
  #fits = true;
  #names = new Set();

  constructor(path, given) {
    super();
    this.path = path;
    this.attempt = given.attempt;
    this.given = given;
  }

  async begin() {
    const [catalogue] = await Promise.all([get("/signals").then(byName), this.#learn()]);
    this.catalogue = catalogue;
    await this.#readAll();
    if (this.given.from !== null && this.given.to !== null) this.show(this.given.from, this.given.to);
  }

  /** Read the newest steps; a view of all of them grows with the run. */
  async follow() {
    await this.#learn();
    return this.#readDrawn();
  }

  /** Whether the newest step is drawn. */
  get isAtEnd() {
    return this.view[1] >= this.extent[1];
  }

  /** How many steps apart two reports lie, on the whole. */
  get stride() {
    const { step: steps, count } = this.series;
    const later = count.slice(1).reduce((sum, n) => sum + n, 0);
    return later ? Math.max((steps.at(-1) - steps[0]) / later, 1) : 1;
  }

  /** Draw other steps: at once with what is known, and finer as soon as it is read. Without any, all steps. */
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

  /** Move by a share of what is drawn. */
  pan(share) {
    const by = (this.view[1] - this.view[0]) * share;
    this.show(this.view[0] + by, this.view[1] + by);
  }

  /** Draw `factor` times as many steps, around the middle or around a step. */
  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    this.show(around - (around - this.view[0]) * factor, around + (this.view[1] - around) * factor);
  }

  /** The step that is drawn next to another one. */
  beside(step, by) {
    const steps = this.series.step;
    const at = steps.findIndex((other) => other >= step);
    return steps[Math.min(Math.max((at < 0 ? steps.length : at) + by, 0), steps.length - 1)];
  }

  /** Remember at which steps alerts began and policies changed. */
  mark({ run, alerts, policies }) {
    this.extent = [this.extent[0], Math.max(this.extent[1], this.#fits ? 0 : run.last_step)];
    const of = alerts.items.filter((alert) => alert.severity !== "info");
    this.markers = [
      ...of.map((alert) => ({ step: alert.step, kind: alert.severity === "page" ? "act" : "watch", what: alert.rule })),
      ...policies
        .slice(1)
        .map((version) => ({ step: this.stepOf(version), kind: "policy", what: `policy ${version.name}` })),
    ];
    this.dispatchEvent(new Event("markers"));
  }

  end() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
  }

  /** Learn which signals there are; some come with a later step. */
  async #learn() {
    const found = new Set([...this.#names, ...(await get(`${this.path}/signals/names`))]);
    if (this.panels && found.size === this.#names.size) return;
    this.#names = found;
    this.panels = signalsOf(found);
  }

  /** Read what is drawn; a later question takes the place of one that is not answered yet. */
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
    // A point is at the last of the steps that it stands for.
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
    if (!names) return { exact: true, step: [], count: [], closed_at: [], signals: {} };
    this.#asked?.abort();
    this.#asked = new AbortController();
    const detail = { statistics: "mean,min,max", digits: 5, points: POINTS, attempt_id: this.attempt };
    return get(`${this.path}/signals`, { names, ...detail, ...query }, { signal: this.#asked.signal });
  }

  async #settle() {
    write(this.#fits ? { from: null, to: null } : { from: this.view[0], to: this.view[1] }, this.path);
    // A service that is away is shown by the badge, and read again when it is back.
    await this.#readDrawn().catch((error) => {
      if (!(error instanceof ApiError)) throw error;
    });
  }

  /** The step from which a version of the policy was in force. */
  stepOf(version) {
    if (version.from_step) return version.from_step;
    const { step: steps, closed_at: closed } =
      [this.whole, this.series].find((series) => series.closed_at.at(-1) >= version.created_at) ?? {};
    return closed ? steps[closed.findIndex((at) => at >= version.created_at)] : this.extent[1];
  }
}

const byName = (specs) => new Map(specs.map((spec) => [spec.name, spec]));
