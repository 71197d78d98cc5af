// All charts of a run, which share one range of steps, one cursor and one set of markers, with the bars above them.

import { Chart, ReasonsChart } from "./chart.js";
import { MOST_SMOOTHING } from "./chartdata.js";
import { choice, figures, fill, h, isNew, refill } from "./dom.js";
import { signalWords } from "./panels.js";
import { plot } from "./plot.js";
import { percent, plural, step } from "./words.js";

const QUIET = "trmon.quiet";

export class Charts {
  element = h("section", { class: "charts", "aria-label": "Charts" });
  #charts = [];
  #quiet = [];
  #silent = h("div", { class: "charts" });
  #count = h("summary", {});
  #fold = h("details", { class: "silent", ontoggle: () => localStorage.setItem(QUIET, this.#fold.open ? "open" : "") });
  #panels = null;
  #facts = null;

  constructor(chartData, open) {
    this.chartData = chartData;
    this.open = open;
    chartData.addEventListener("view", () => this.#each((chart) => chart.range()));
    chartData.addEventListener("series", () => this.#draw());
    chartData.addEventListener("markers", () => this.redraw());
    chartData.addEventListener("axis", () => this.#each((chart) => chart.make()));
    chartData.addEventListener("smoothing", () => this.#each((chart) => chart.data()));
    this.#fold.append(this.#count, this.#silent);
    this.#fold.open = localStorage.getItem(QUIET) === "open";
    const { signal } = chartData;
    window.addEventListener("themechange", () => this.#each((chart) => chart.make()), { signal });
    signal.addEventListener("abort", () => this.#each((chart) => chart.canvas.end()));
  }

  /** Take the room of the charts that will be drawn. */
  takeRoom() {
    const n = this.chartData.panels.length;
    if (n) fill(this.element, figures(n));
  }

  /** Draw the charts once the library is loaded. */
  async begin() {
    this.uPlot = await plot();
    this.chartData.signal.throwIfAborted();
    this.#draw();
  }

  redraw() {
    this.#each((chart) => chart.canvas.redraw());
  }

  /** Outline the charts of what is evidence, and draw the limits; tell that of the risk what drives it. */
  outline(facts) {
    this.#facts = facts;
    this.#each((chart) => chart.mark());
    this.#each((chart) => chart.learn?.(facts));
  }

  #draw() {
    if (!this.uPlot) return;
    if (this.#panels !== this.chartData.panels && this.chartData.panels.length) this.#frame();
    this.#each((chart) => chart.data());
    this.#place();
  }

  #frame() {
    const { uPlot, chartData, open } = this;
    this.#panels = chartData.panels;
    this.#each((chart) => chart.canvas.end());
    this.#charts = chartData.panels.map((panel) => new (KINDS[panel.kind] ?? Chart)({ uPlot, chartData, panel, open }));
    this.#each((chart) => chart.mark());
    this.#quiet = this.#charts;
    this.#silent.replaceChildren();
    fill(this.element, this.#fold);
    this.#place();
    this.#each((chart) => chart.make());
    if (this.#facts) this.outline(this.#facts);
  }

  /** Put quiet charts into the fold; one that is not quiet any more leaves it, and none goes back. */
  #place() {
    const quiet = this.#quiet.filter((chart) => chart.isQuiet);
    if (quiet.length === this.#quiet.length && this.#silent.childElementCount === quiet.length) return;
    const woken = this.#quiet.filter((chart) => !quiet.includes(chart));
    this.#quiet = quiet;
    this.#fold.before(...woken.map(({ element }) => element));
    this.#fold.hidden = !quiet.length;
    const titles = quiet.map(({ panel }) => panel.title).join(", ");
    fill(this.#count, h("span", { class: "strong" }, plural(quiet.length, "quiet signal")), h("span", { class: "quiet" }, titles));
    fill(this.#silent, quiet.map(({ element }) => element));
  }

  #each(act) {
    this.#charts.forEach(act);
  }
}

const SHOWN = 6; // The drivers of the largest size; the others hardly matter.

class RiskChart extends Chart {
  #risk = null;
  #drivers = h("div", { class: "drivers" });

  constructor(given) {
    super(given);
    this.element.classList.add("beside");
    this.element.append(this.#drivers);
  }

  /** Show the drivers of the newest step, and the thresholds of the model that made the estimate. */
  learn({ diagnosis }) {
    const risk = diagnosis?.collapse_risk ?? null;
    if (JSON.stringify(risk) === JSON.stringify(this.#risk)) return;
    this.#risk = risk;
    fill(this.#drivers, risk && explained(risk, diagnosis.has_ended));
    this.limit(risk ? [{ at: risk.warn_at, kind: "watch" }] : []);
  }

  reference() {
    const worth = this.#risk?.calibration ? `; ${this.#risk.calibration}` : "";
    return this.#risk ? `warns at ${percent(this.#risk.warn_at)}${worth}` : "";
  }
}

const KINDS = { reasons: ReasonsChart, risk: RiskChart };

function explained(risk, hasEnded) {
  const shown = [...risk.drivers].sort((a, b) => Math.abs(b.log_odds) - Math.abs(a.log_odds)).slice(0, SHOWN);
  const most = Math.max(...shown.map(({ log_odds: size }) => Math.abs(size)));
  return [
    risk.level === "past" && h("p", { class: "quiet" }, `The ${hasEnded ? "run has ended" : "reward has collapsed"}: there is nothing left to predict.`),
    h("p", { class: "quiet" }, "What drives it, in log-odds"),
    h(
      "ol",
      {},
      shown.sort((a, b) => b.log_odds - a.log_odds).map((driver) => line(driver, most)),
    ),
    uncertain(risk),
  ];
}

function line({ input, words, log_odds: size }, most) {
  const style = { width: `${Math.round((100 * Math.abs(size)) / (most || 1))}%` };
  const bar = h("span", { class: "filled", style, "aria-hidden": "true", "data-sign": size < 0 ? "against" : "for" });
  return h(
    "li",
    { title: input },
    h("span", {}, words),
    h("span", { class: "track" }, bar),
    h("span", { class: "number" }, `${size < 0 ? "−" : "+"}${Math.abs(size).toFixed(2)}`),
  );
}

/** Say in one line which inputs the model lacks. */
function uncertain({ missing }) {
  const text = `Not sent: ${missing.map(signalWords).join(", ")}.`;
  return missing.length ? h("p", { class: "quiet uncertain", title: text }, text) : null;
}

const NEWEST = [1000, 200];

export class RangeBar {
  constructor(chartData, open) {
    Object.assign(this, { chartData, open });
    this.words = h("span", { class: "quiet" });
    this.field = h("input", { type: "number", min: 0, "aria-label": "Step", placeholder: "step" });
    this.all = h("button", { onclick: () => chartData.show() }, "All steps");
    this.newest = NEWEST.map((n) =>
      h("button", { onclick: () => this.#newest(n), "data-steps": n }, `Last ${step(n)}`),
    );
    const nearer = h("button", { "aria-label": "Closer", onclick: () => chartData.zoom(0.5) }, "+");
    const wider = h("button", { "aria-label": "Wider", onclick: () => chartData.zoom(2) }, "−");
    this.axis = choice("Horizontal axis", ["Steps", "Time"], (at) => chartData.drawBy(at === 1));
    this.weight = h("output", {});
    const oninput = () => chartData.smooth(this.slider.valueAsNumber);
    this.slider = h("input", { type: "range", min: 0, max: MOST_SMOOTHING, step: 0.01, oninput });
    const title = "exponential moving average";
    const smoothing = h("label", { class: "row tight quiet smoothing", title }, "Smoothing", this.slider, this.weight);
    const form = h(
      "form",
      { class: "row", onsubmit: (event) => this.#ask(event) },
      this.field,
      h("button", {}, "Open step"),
    );
    const parts = [this.all, this.newest, nearer, wider, this.axis.element, smoothing, this.words, form];
    this.element = h("div", { class: "row rangebar", role: "toolbar", "aria-label": "Steps" }, parts);
    for (const change of ["view", "series", "axis", "smoothing"]) chartData.addEventListener(change, () => this.draw());
  }

  draw() {
    const { view, extent, chosen } = this.chartData;
    this.words.textContent = `steps ${step(view[0])} to ${step(view[1])}`;
    this.all.setAttribute("aria-pressed", String(view[0] <= extent[0] && view[1] >= extent[1]));
    this.axis.element.hidden = !this.chartData.hasTimes;
    this.axis.press(Number(this.chartData.byTime));
    this.slider.value = this.chartData.smoothing;
    this.weight.value = this.chartData.smoothing ? this.chartData.smoothing.toFixed(2) : "off";
    this.slider.setAttribute("aria-valuetext", this.weight.value);
    for (const button of this.newest) button.hidden = extent[1] - extent[0] <= Number(button.dataset.steps);
    if (document.activeElement !== this.field) this.field.value = chosen ?? "";
  }

  #newest(n) {
    const last = this.chartData.extent[1];
    this.chartData.show(last - n, last);
  }

  #ask(event) {
    event.preventDefault();
    this.open(this.field.value === "" ? null : Number(this.field.value));
  }
}

const LISTED = 100; // The newest.

export class EventList {
  element = h("section", { class: "eventlist", "aria-label": "Events" });

  constructor(chartData, open) {
    Object.assign(this, { chartData, open });
    chartData.addEventListener("markers", () => this.#draw());
  }

  #draw() {
    const { markers } = this.chartData;
    if (!isNew(this.element, markers)) return;
    const items = markers.slice(-LISTED).map(({ step: at, what, kind }) =>
      h(
        "li",
        {},
        h("button", { class: "link", onclick: () => this.open(at) }, `step ${step(at)}`),
        h("span", { class: `kind-${kind}` }, what),
      ),
    );
    const summary = h("summary", { class: "quiet" }, plural(markers.length, "event"));
    const list = items.length > 0 && h("details", { "data-name": "events" }, summary, h("ol", {}, items));
    refill(this.element, list, markLegend(markers));
  }
}

const WORDS = {
  act: "page alert",
  watch: "warning",
  restart: "restart",
  change: "configuration or learning rate",
  checkpoint: "checkpoint",
  policy: "policy change",
  note: "note",
};

/** Return the legend of markers, or null without any. */
function markLegend(markers) {
  const kinds = Object.keys(WORDS).filter((kind) => markers.some((marker) => marker.kind === kind));
  if (!kinds.length) return null;
  const items = kinds.map((kind) => h("li", { class: `mark-${kind}` }, WORDS[kind]));
  return h("div", { class: "marks quiet" }, "Marks on the charts:", h("ul", { "aria-label": "Marks on the charts" }, items));
}
