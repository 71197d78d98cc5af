// A signal of several runs over each other.

import { fill, h } from "./dom.js";
import { decades, inks } from "./plotoptions.js";
import { signalWords } from "./signalwords.js";
import { capital, number, span, step } from "./words.js";

const HEIGHT = 150;
const FONT = "11px system-ui, sans-serif";
const LOGARITHMIC = new Set(["kl_k3", "grad_norm"]);
const LETTERS = "ABCDEFGH";
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

export class CompareChart {
  #u = null;
  #data = [[]];
  #n = 0;
  #byTime = false;

  constructor(uPlot, name) {
    Object.assign(this, { uPlot, name });
    this.where = h("span", { class: "plot tall" });
    this.values = h("span", { class: "note" });
    this.place = h("span", { class: "quiet" });
    const words = [h("h2", {}, capital(signalWords(name))), this.place, this.values, h("span", {})];
    this.element = h("figure", { class: "card panel" }, h("figcaption", {}, words), this.where);
    this.resized = new ResizeObserver(() => this.#size());
    this.resized.observe(this.where);
  }

  /** Show runs, over steps or over the time since their starts. */
  show(runs, { byTime }) {
    const isLog = LOGARITHMIC.has(this.name);
    const drawn = (value) => (typeof value === "number" && (!isLog || value > 0) ? value : null);
    const tables = runs.map((run) => [
      byTime ? run.elapsed_seconds : run.step,
      (run.signals[this.name] ?? run.step.map(() => null)).map(drawn),
    ]);
    this.#data = this.uPlot.join(tables.filter(([places]) => places.length));
    const isSame = this.#n === runs.length && this.#byTime === byTime;
    Object.assign(this, { runs });
    this.#n = runs.length;
    this.#byTime = byTime;
    if (isSame && this.#u) this.#u.setData(this.#data);
    else this.make();
    this.#say(null);
  }

  /** Rebuild the plot, for other runs or another theme. */
  make() {
    this.#u?.destroy();
    this.#u = null;
    if (!this.#n) return;
    this.#u = new this.uPlot(this.#options(), this.#data, this.where);
  }

  end() {
    this.resized.disconnect();
    this.#u?.destroy();
  }

  #size() {
    const width = this.where.clientWidth;
    if (this.#u && width && width !== this.#u.width) this.#u.setSize({ width, height: HEIGHT });
  }

  #options() {
    const ink = inks();
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: ink.quiet, font: FONT, grid: { stroke: ink.line, width: 1 }, ticks: { show: false }, gap: 4 };
    const place = this.#byTime ? span : step;
    const isLog = LOGARITHMIC.has(this.name);
    const line = (i) => ({
      stroke: style.getPropertyValue(`--run-${i + 1}`).trim(),
      width: 1.5,
      dash: DASHES[Math.floor(i / 2) % DASHES.length],
      points: { show: false },
      spanGaps: true, // Runs have their points at different places.
    });
    return {
      width: this.where.clientWidth || 320,
      height: HEIGHT,
      legend: { show: false },
      padding: [6, 6, 0, 0],
      scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 } },
      axes: [
        { ...axis, size: 22, space: 70, values: (_, at) => at.map(place) },
        {
          ...axis,
          size: 50,
          space: 30,
          values: (_, at) => at.map((value) => (value === null ? "" : number(value))),
          ...(isLog ? { splits: decades, filter: (_, at) => at } : {}),
        },
      ],
      series: [{}, ...Array.from({ length: this.#n }, (_, i) => line(i))],
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "compare" }, points: { size: 5 } },
      hooks: { setCursor: [(u) => this.#say(u.cursor.idx ?? null)] },
    };
  }

  /** Show the values at the cursor, or the newest ones. */
  #say(at) {
    const columns = this.#data.slice(1);
    const newest = (column) => (at === null ? column.findLast((value) => known(value)) : nearest(column, at));
    fill(
      this.values,
      columns.map((column, i) =>
        h("span", { class: `legend run-${i + 1}` }, `${LETTERS[i]} ${number(newest(column))}`),
      ),
    );
    const place = at === null ? null : this.#data[0][at];
    this.place.textContent = place === null ? "newest" : this.#byTime ? span(place) : `step ${step(place)}`;
  }
}

const known = (value) => value !== null && value !== undefined;

/** Return a run's newest value until a place: runs have their points at different ones. */
function nearest(column, at) {
  for (let i = at; i >= 0; i--) if (known(column[i])) return column[i];
  return null;
}
