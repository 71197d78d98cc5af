// One chart: lines over steps with the healthy band, the current value next to its reference, and event markers.

import { fill, h } from "./dom.js";
import { Figure } from "./figure.js";
import { range } from "./healthy.js";
import { stem } from "./panels.js";
import { clock, number, step } from "./words.js";

const BASELINE_POINTS = 20;

export class Chart extends Figure {
  constructor({ uPlot, course, panel, open }) {
    super({ uPlot, course, open, title: panel.title, note: panel.note });
    this.panel = panel;
    this.healthy = range(course.catalogue.get(panel.names[0])?.healthy);
  }

  /** Return whether the chart draws a signal that is evidence. */
  shows(evidence) {
    const shown = new Set([...this.panel.names.map(stem), ...(this.panel.also ?? [])]);
    return [...evidence].some((name) => shown.has(stem(name)) || shown.has(name));
  }

  make() {
    const { panel } = this;
    this.canvas.make({
      n: panel.lines.length,
      banded: !this.course.series.exact,
      log: panel.floor !== undefined,
      from: panel.from,
      to: panel.to,
      healthy: this.healthy,
      limits: this.limits,
    });
    this.data();
  }

  /** The horizontal lines to draw, each a value `at` which something is told, and its `kind`, watch or act. */
  get limits() {
    return [];
  }

  range() {
    super.range();
    this.say(null);
  }

  data() {
    const { series } = this.course;
    if (this.canvas.banded !== !series.exact) return this.make();
    const columns = this.panel.names.flatMap((name) => {
      const { mean, min, max } = series.signals[name];
      const isThere = this.#has(mean);
      return (series.exact ? [mean] : [mean, min, max]).map((values) => this.#drawable(values, isThere));
    });
    this.canvas.data([series.step, ...columns]);
    this.#name(series);
    this.say(null);
  }

  /** Show a legend if there is more than one line. */
  #name({ signals }) {
    const drawn = this.panel.lines
      .map((line, i) => ({ ...line, i }))
      .filter(({ name }) => this.#has(signals[name].mean));
    fill(this.legend, drawn.length > 1 && drawn.map(({ i, label }) => h("span", { class: `legend line-${i}` }, label)));
  }

  /** Show the values at the cursor, or the newest value next to its reference. */
  say(at) {
    const { series } = this.course;
    const values = this.panel.names.map((name) => series.signals[name].mean);
    if (at !== null) {
      this.now.textContent = values.map((column) => number(column[at])).join(" · ");
      this.against.textContent = `step ${step(series.step[at])}`;
      return;
    }
    const end = series.step.findLastIndex((step, i) => values[0][i] !== null && step <= this.course.view[1]);
    this.now.textContent = number(values[0][end]);
    this.against.textContent = this.course.isAtEnd || end < 0 ? this.reference() : `step ${step(series.step[end])}`;
    this.canvas.describe(this.#summary(values));
  }

  /** Return each line's newest value and its range, e.g. "reward newest 0.41, from 0.35 to 0.78". */
  #summary(values) {
    const parts = this.panel.lines.map(({ label }, i) => {
      const known = values[i].filter((value) => typeof value === "number");
      if (!known.length) return null;
      const name = this.panel.lines.length > 1 && label ? `${label} ` : "";
      return `${name}newest ${number(known.at(-1))}, from ${number(Math.min(...known))} to ${number(Math.max(...known))}`;
    });
    const steps = this.course.series.step;
    return steps.length ? [...parts.filter(Boolean), `steps ${step(steps[0])} to ${step(steps.at(-1))}`].join("; ") : "";
  }

  lines(at) {
    const { series, catalogue } = this.course;
    const unit = unitWords(catalogue.get(this.panel.names[0])?.unit);
    const values = this.panel.lines.map(({ name, label }) => {
      const named = label && this.panel.lines.length > 1 ? label : this.panel.title.toLowerCase();
      return `${named} ${number(series.signals[name].mean[at])}${unit}`;
    });
    return [`step ${step(series.step[at])}, ${clock(series.closed_at[at])}`, ...values];
  }

  rows() {
    const { series, catalogue } = this.course;
    const columns = this.panel.names.flatMap((name) => {
      const unit = catalogue.get(name)?.unit;
      const statistics = series.exact ? ["mean"] : ["mean", "min", "max"];
      return statistics.map((statistic) => ({
        head: `${name}${series.exact ? "" : ` ${statistic}`}${unit ? ` (${unit})` : ""}`,
        values: series.signals[name][statistic],
      }));
    });
    const time = (at) => new Date(1000 * at).toISOString();
    const body = series.step.map((at, i) => [at, time(series.closed_at[i]), ...columns.map(({ values }) => values[i])]);
    return [["step", "closed at (UTC)", ...columns.map(({ head }) => head)], ...body];
  }

  /** Return the reference of the newest value, from the whole run. */
  reference() {
    const words = this.course.catalogue.get(this.panel.names[0])?.healthy;
    if (words) return `healthy ${words.replace("<=", "≤").replace(">=", "≥")}`;
    const values = this.course.whole.signals[this.panel.names[0]]?.mean ?? [];
    const known = values.filter((value) => typeof value === "number");
    if (!known.length) return "";
    if (this.panel.reference === "peak") return `peak ${number(Math.max(...known))}`;
    const first = known.slice(0, BASELINE_POINTS).sort((a, b) => a - b);
    return `initially ${number(first[Math.floor(first.length / 2)])}`;
  }

  /** Whether there is data to draw: a logarithmic scale cannot show a series of zeros. */
  #has(values) {
    return values.some((value) => value !== null && (value > 0 || this.panel.floor === undefined));
  }

  /** Infinities cannot be drawn; values below the floor are drawn on it. */
  #drawable(values, isThere) {
    const { floor = -Infinity } = this.panel;
    return values.map((value) => (isThere && typeof value === "number" ? Math.max(value, floor) : null));
  }
}

/** Units that are no more than a number are not told. */
const PLAIN = new Set(["ratio", "fraction", "chi2", "reward", undefined]);
const unitWords = (unit) => (PLAIN.has(unit) ? "" : ` ${unit}`);
