// A figure with a plot: title, the current value next to its reference, and the canvas below.

import { Canvas } from "./canvas.js";
import { exportMenu } from "./chartexport.js";
import { h } from "./dom.js";

/** A subclass implements `say(at)`, which shows the values at the cursor, or the newest ones if `at` is null, and
 *  `lines(at)`, which returns the step and each value with its name and unit, and `rows()`, the drawn data as a table. */
export class Figure {
  now = h("span", { class: "strong" });
  against = h("span", { class: "quiet" });
  legend = h("span", {});

  constructor({ uPlot, course, open, title, note, label = title }) {
    const where = h("span", { class: "plot" });
    const below = h("span", { class: "note" }, note && `${note}\u2003`, this.legend);
    const menu = exportMenu(title, { rows: () => this.rows(), canvas: () => where.querySelector("canvas") });
    const words = [h("span", { class: "row tight" }, h("h2", {}, title), menu), this.now, below, this.against];
    this.course = course;
    this.element = h("figure", { class: "card panel" }, h("figcaption", {}, words), where);
    const told = { said: (at) => this.say(at), lines: (at) => this.lines(at) };
    this.canvas = new Canvas(where, { uPlot, course, open, label, ...told });
  }

  range() {
    this.canvas.range();
  }

  redraw() {
    this.canvas.redraw();
  }

  end() {
    this.canvas.end();
  }
}
