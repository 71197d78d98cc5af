// Two to eight runs side by side: where they part, their signals over each other, and how they differ.

import { get } from "./api.js";
import { CompareChart } from "./comparechart.js";
import { fill, h } from "./dom.js";
import { follow } from "./following.js";
import { plot } from "./plot.js";
import { signalWords } from "./signalwords.js";
import { capital, kindWords, number, step } from "./words.js";

const REFRESH_MS = 5000;
const LETTERS = "ABCDEFGH";

export async function mountCompare(stage, { live }) {
  const view = new CompareView(stage, new URLSearchParams(location.search));
  stage.title("Compare");
  await view.read();
  const concerns = ({ data }) => view.shows(data);
  const stop = follow(live, { concerns, read: () => view.read(), fail: stage.fail, refreshMs: REFRESH_MS });
  return () => {
    stop();
    view.end();
  };
}

/** Return the address of a comparison of runs, given as { project, run }. */
export const compareAddress = (runs) =>
  `/compare?runs=${runs.map(({ project, run }) => `${encodeURIComponent(project)}/${encodeURIComponent(run)}`).join(",")}`;

class CompareView {
  #charts = [];
  #found = null;
  #names = "";

  constructor(stage, query) {
    this.stage = stage;
    this.runs = query.get("runs") ?? "";
    this.byTime = query.get("by") === "time";
    this.words = h("section", { class: "card panel stack", "aria-label": "Where they part", "aria-live": "polite" });
    this.charts = h("section", { class: "charts", "aria-label": "Charts" });
    this.differences = h("section", { class: "card panel scroll", "aria-label": "Differences" });
    this.axes = h("span", { class: "row joined", role: "group", "aria-label": "Horizontal axis" });
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.theme = () => this.#charts.forEach((chart) => chart.make());
    this.system.addEventListener("change", this.theme);
    window.addEventListener("themechange", this.theme);
  }

  async read() {
    const query = { runs: this.runs, by: this.byTime ? "time" : "step" };
    const [found, uPlot] = await Promise.all([get("/compare", query), plot()]);
    const isFirst = this.#found === null;
    this.#found = found;
    if (isFirst) this.#frame();
    this.#draw(uPlot);
  }

  shows({ project, run }) {
    return this.#found?.runs.some(({ fleet }) => fleet.project === project && fleet.run === run);
  }

  end() {
    this.system.removeEventListener("change", this.theme);
    window.removeEventListener("themechange", this.theme);
    this.#charts.forEach((chart) => chart.end());
  }

  #frame() {
    const head = h("header", {}, h("div", { class: "row" }, h("h1", {}, "Compare"), this.axes));
    this.stage.show(head, this.words, this.charts, this.differences);
  }

  #draw(uPlot) {
    const { runs, proposed, config } = this.#found;
    fill(
      this.axes,
      [false, true].map((byTime) =>
        h(
          "button",
          { "aria-pressed": String(byTime === this.byTime), onclick: () => this.#by(byTime) },
          byTime ? "Time" : "Steps",
        ),
      ),
    );
    fill(
      this.words,
      runs.slice(1).map((run, i) => h("p", { class: "headline" }, parting(run, i + 1, runs.length))),
      proposed && h("p", { class: "quiet" }, "B was proposed: the sound run of the project whose configuration differs least."),
      h("ul", { class: "compared" }, runs.map(entry)),
    );
    this.#drawCharts(uPlot, runs);
    fill(this.differences, h("h2", {}, "Differences"), table(this.#found), !config.length && h("p", { class: "quiet" }, "The configurations do not differ."));
  }

  #drawCharts(uPlot, runs) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.signals)))];
    if (names.join() !== this.#names) {
      this.#names = names.join();
      this.#charts.forEach((chart) => chart.end());
      this.#charts = names.map((name) => new CompareChart(uPlot, name));
      fill(
        this.charts,
        this.#charts.map((chart) => chart.element),
      );
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

function entry({ fleet }, i) {
  const { verdict } = fleet;
  return h(
    "li",
    { class: `row run-${i + 1}` },
    h("span", { class: "swatch", "aria-hidden": "true" }),
    h("span", { class: "strong" }, LETTERS[i]),
    h("a", { href: `/runs/${encodeURIComponent(fleet.project)}/${encodeURIComponent(fleet.run)}` }, `${fleet.project}/${fleet.run}`),
    h("span", { class: `kind kind-${verdict.kind}` }, kindWords(verdict.kind)),
    h("span", { class: "quiet" }, verdict.why),
  );
}

function table({ runs, config, same_policy: isSamePolicy }) {
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
  const letters = runs.map((_, i) => h("th", { scope: "col" }, LETTERS[i]));
  const head = [h("th", { scope: "col" }, h("span", { class: "sr" }, "difference")), letters];
  const body = rows.map(([name, values]) =>
    h("tr", {}, h("th", { scope: "row" }, capital(name)), values.map((value) => h("td", {}, value))),
  );
  return h("table", { class: "differences" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
}
