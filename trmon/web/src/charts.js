// The charts of a run: they share one range of steps, one cursor and one set of markers.

import { Chart } from "./chart.js";
import { fill, h } from "./dom.js";
import { plot } from "./plot.js";
import { ReasonsChart } from "./reasons.js";
import { RiskChart } from "./risk.js";
import { figures } from "./skeleton.js";

export class Charts {
  element = h("section", { class: "charts", "aria-label": "Charts" });
  #charts = [];
  #panels = null;
  #facts = null;

  constructor(course, open) {
    this.course = course;
    this.open = open;
    course.addEventListener("view", () => this.#each((chart) => chart.range()));
    course.addEventListener("series", () => this.#draw());
    course.addEventListener("markers", () => this.redraw());
    course.addEventListener("axis", () => this.#each((chart) => chart.make()));
    this.theme = () => this.#each((chart) => chart.make());
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", this.theme);
    window.addEventListener("themechange", this.theme);
  }

  /** Take the room of the charts that will be drawn. */
  takeRoom() {
    const n = this.course.panels.length;
    if (n) fill(this.element, figures(n + 1));
  }

  /** Draw the charts once the library is loaded. */
  async begin() {
    this.uPlot = await plot();
    this.#draw();
  }

  redraw() {
    this.#each((chart) => chart.redraw());
  }

  /** Outline the charts that show evidence of the finding, and tell that of the risk what drives it. */
  outline(facts) {
    const { diagnosis, judged } = (this.#facts = facts);
    const evidence = new Set((diagnosis?.observed ?? []).flatMap((found) => found.evidence.map((item) => item.signal)));
    const kind = ["act", "watch"].includes(judged.verdict.kind) ? judged.verdict.kind : "";
    this.#each((chart) => (chart.element.dataset.evidence = chart.shows(evidence) ? kind : ""));
    this.#each((chart) => chart.learn?.(facts));
  }

  end() {
    this.system.removeEventListener("change", this.theme);
    window.removeEventListener("themechange", this.theme);
    this.#each((chart) => chart.end());
  }

  #draw() {
    if (!this.uPlot) return;
    if (this.#panels !== this.course.panels && this.course.panels.length) this.#frame();
    this.#each((chart) => chart.data());
  }

  #frame() {
    const { uPlot, course, open } = this;
    this.#panels = course.panels;
    this.#each((chart) => chart.end());
    this.#charts = course.panels.map((panel) => new (panel.isRisk ? RiskChart : Chart)({ uPlot, course, panel, open }));
    this.#charts.splice(5, 0, new ReasonsChart({ uPlot, course, open }));
    fill(
      this.element,
      this.#charts.map((chart) => chart.element),
    );
    this.#each((chart) => chart.make());
    if (this.#facts) this.outline(this.#facts);
  }

  #each(act) {
    this.#charts.forEach(act);
  }
}
