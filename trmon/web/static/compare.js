// Two to eight runs side by side: where they part, their signals over each other, and how they differ.

import { compareAddress, follow, get, keyOf, loaded, runPath } from "./api.js";
import { breakable, choice, fill, h, isNew, table } from "./dom.js";
import { catalogueOfSignals, signalWords } from "./panels.js";
import { axes, inks, plot } from "./plot.js";
import { capital, isKnown, kindWords, number, span, step } from "./words.js";

const REFRESH_MS = 5000;
const LETTERS = "ABCDEFGH";
const MOST = LETTERS.length;

export async function mount(stage, { live }) {
  const view = new CompareView(stage, new URLSearchParams(location.search));
  stage.title("Compare");
  await view.read();
  const concerns = ({ data }) => view.shows(data);
  follow(live, { stage, concerns, read: () => view.read(), refreshMs: REFRESH_MS });
}

class CompareView {
  #charts = [];
  #found = null;

  constructor(stage, query) {
    this.stage = stage;
    this.runs = query.get("runs") ?? "";
    this.byTime = query.get("by") === "time";
    this.words = h("section", { class: "card panel stack", "aria-label": "Where they part", "aria-live": "polite" });
    this.charts = h("section", { class: "charts", "aria-label": "Charts" });
    this.differences = h("section", { class: "card panel scroll", "aria-label": "Differences" });
    this.axis = choice("Horizontal axis", ["Steps", "Time"], (at) => this.#by(at === 1));
    const { signal } = stage;
    window.addEventListener("themechange", () => this.#charts.forEach((chart) => chart.make()), { signal });
    signal.addEventListener("abort", () => this.#charts.forEach((chart) => chart.end()));
  }

  async read() {
    const query = { runs: this.runs, by: this.byTime ? "time" : "step" };
    const isFirst = this.#found === null;
    const [found, uPlot] = await Promise.all([get("/compare", query), plot(), isFirst && catalogueOfSignals()]);
    this.stage.signal.throwIfAborted();
    this.#found = found;
    if (isFirst) this.#frame();
    this.#draw(uPlot);
  }

  shows({ project, run }) {
    return this.#found?.runs.some(({ fleet }) => fleet.project === project && fleet.run === run);
  }

  #frame() {
    const head = h("header", {}, h("div", { class: "row" }, h("h1", {}, "Compare"), this.axis.element));
    this.stage.show(head, this.words, this.charts, this.differences);
  }

  #draw(uPlot) {
    const { runs, proposed, config } = this.#found;
    this.axis.press(Number(this.byTime));
    fill(
      this.words,
      runs.slice(1).map((run, i) => h("p", { class: "headline claim" }, parting(run, i + 1, runs.length))),
      proposed && h("p", { class: "quiet" }, "B was proposed: the sound run of the project whose configuration differs least."),
      h("ul", { class: "compared" }, runs.map((run, i) => entry(run, i, this.#without(run)))),
      runs.length < MOST && h("p", {}, h("button", { onclick: () => this.#add() }, "Add a run")),
    );
    this.#drawCharts(uPlot, runs);
    fill(this.differences, h("h2", {}, "Differences"), differences(this.#found), !config.length && h("p", { class: "quiet" }, "The configurations do not differ."));
  }

  /** The address of the comparison without a run; null where too few would be left. */
  #without(run) {
    const rest = this.#found.runs.filter((other) => other !== run);
    return rest.length < 2 ? null : compareAddress(rest.map(({ fleet }) => fleet)) + this.#axis();
  }

  #axis() {
    return this.byTime ? "&by=time" : "";
  }

  async #add() {
    const { openPalette } = await loaded(import("./palette.js"));
    openPalette({ compared: this.#found.runs.map(({ fleet }) => fleet), rest: this.#axis() });
  }

  #drawCharts(uPlot, runs) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.signals)))];
    if (isNew(this.charts, names)) {
      this.#charts.forEach((chart) => chart.end());
      this.#charts = names.map((name) => new CompareChart(uPlot, name));
      fill(this.charts, this.#charts.map((chart) => chart.element));
      this.#charts.forEach((chart) => chart.make());
    }
    this.#charts.forEach((chart) => chart.show(runs, { byTime: this.byTime }));
  }

  async #by(byTime) {
    this.byTime = byTime;
    const query = new URLSearchParams(location.search);
    if (byTime) query.set("by", "time");
    else query.delete("by");
    history.replaceState(null, "", `${location.pathname}?${decodeURIComponent(query.toString())}`);
    await this.read();
  }
}

/** Return where a run leaves the first one; the letters are needed only among several. */
const parting = (run, i, n) => (n > 2 ? `A and ${LETTERS[i]}: ${run.sentence}` : run.sentence);

const ownColour = (i) => ({ "--own": `var(--run-${i + 1})` });

function entry({ fleet }, i, without) {
  const { verdict } = fleet;
  return h(
    "li",
    { class: "row", style: ownColour(i) },
    h("span", { class: "swatch", "aria-hidden": "true" }),
    h("span", { class: "strong" }, LETTERS[i]),
    h("a", { href: runPath(fleet.project, fleet.run) }, breakable(keyOf(fleet))),
    h("span", { class: `kind kind-${verdict.kind}` }, kindWords(verdict.kind)),
    h("span", { class: "quiet" }, verdict.why),
    fleet.behind && h("span", { class: "behind" }, fleet.behind.words),
    without && h("a", { class: "link", href: without, "aria-label": `Drop ${LETTERS[i]} from the comparison` }, "Drop"),
  );
}

function differences({ runs, config, same_policy: isSamePolicy }) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.signals)))];
  const rows = [
    ["newest step", runs.map((run) => step(run.fleet.step))],
    ["policy", runs.map(({ policy }) => policy.name + (isSamePolicy ? "" : ` ${policy.hash.slice(0, 8)}`))],
    ...names.map((name) => [
      `${signalWords(name)}, newest`,
      runs.map((run) => number(run.signals[name]?.findLast((value) => value !== null))),
    ]),
    ...config.map(({ name, values, given }) => [name, values.map((value, i) => (given[i] ? JSON.stringify(value) : "–"))]),
  ];
  const heads = [h("span", { class: "sr" }, "difference"), ...runs.map((_, i) => LETTERS[i])];
  const body = rows.map(([name, values]) =>
    h("tr", {}, h("th", { scope: "row" }, capital(name)), values.map((value) => h("td", {}, value))),
  );
  return table({ class: "differences" }, heads, body);
}

const HEIGHT = 150;
const LOGARITHMIC = new Set(["kl_k3", "grad_norm"]);
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

class CompareChart {
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
    new ResizeObserver(() => this.#size()).observe(this.where);
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
    this.#u?.destroy();
  }

  #size() {
    const width = this.where.clientWidth;
    if (this.#u && width && width !== this.#u.width) this.#u.setSize({ width, height: HEIGHT });
  }

  #options() {
    const colours = inks(Array.from({ length: this.#n }, (_, i) => `run-${i + 1}`));
    const place = this.#byTime ? span : step;
    const isLog = LOGARITHMIC.has(this.name);
    const line = (stroke, i) => ({
      stroke,
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
      axes: axes(inks(), isLog, { values: (_, at) => at.map(place) }),
      series: [{}, ...Object.values(colours).map(line)],
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "compare" }, points: { size: 5 } },
      hooks: { setCursor: [(u) => this.#say(u.cursor.idx ?? null)] },
    };
  }

  /** Show the values at the cursor, or the newest ones. */
  #say(at) {
    const columns = this.#data.slice(1);
    const newest = (column) => (at === null ? column.findLast(isKnown) : nearest(column, at));
    fill(
      this.values,
      columns.map((column, i) => h("span", { class: "legend own", style: ownColour(i) }, `${LETTERS[i]} ${number(newest(column))}`)),
    );
    const place = at === null ? null : this.#data[0][at];
    this.place.textContent = place === null ? "newest" : this.#byTime ? span(place) : `step ${step(place)}`;
  }
}

/** Return a run's newest value until a place: runs have their points at different ones. */
function nearest(column, at) {
  for (let i = at; i >= 0; i--) if (isKnown(column[i])) return column[i];
  return null;
}
