// The range bar: the displayed steps and the open step.

import { h } from "./dom.js";
import { step } from "./words.js";

const NEWEST = [1000, 200];

export class RangeBar {
  constructor(course, open) {
    Object.assign(this, { course, open });
    this.words = h("span", { class: "quiet" });
    this.field = h("input", { type: "number", min: 0, "aria-label": "Step", placeholder: "step" });
    this.all = h("button", { onclick: () => course.show() }, "All steps");
    this.newest = NEWEST.map((n) =>
      h("button", { onclick: () => this.#newest(n), "data-steps": n }, `Last ${step(n)}`),
    );
    const nearer = h("button", { "aria-label": "Closer", onclick: () => course.zoom(0.5) }, "+");
    const wider = h("button", { "aria-label": "Wider", onclick: () => course.zoom(2) }, "−");
    this.axes = [false, true].map((byTime) =>
      h("button", { onclick: () => course.drawBy(byTime) }, byTime ? "Time" : "Steps"),
    );
    const axes = h("span", { class: "row joined", role: "group", "aria-label": "Horizontal axis" }, this.axes);
    const form = h(
      "form",
      { class: "row", onsubmit: (event) => this.#ask(event) },
      this.field,
      h("button", {}, "Open step"),
    );
    const parts = [this.all, this.newest, nearer, wider, axes, this.words, form];
    this.element = h("div", { class: "row rangebar", role: "toolbar", "aria-label": "Steps" }, parts);
    course.addEventListener("view", () => this.draw());
    course.addEventListener("series", () => this.draw());
    course.addEventListener("axis", () => this.draw());
  }

  draw() {
    const { view, extent, chosen } = this.course;
    this.words.textContent = `steps ${step(view[0])} to ${step(view[1])}`;
    this.all.setAttribute("aria-pressed", String(view[0] <= extent[0] && view[1] >= extent[1]));
    this.axes.forEach((button, i) => button.setAttribute("aria-pressed", String(this.course.byTime === Boolean(i))));
    for (const button of this.newest) button.hidden = extent[1] - extent[0] <= Number(button.dataset.steps);
    if (document.activeElement !== this.field) this.field.value = chosen ?? "";
  }

  #newest(n) {
    const last = this.course.extent[1];
    this.course.show(last - n, last);
  }

  #ask(event) {
    event.preventDefault();
    this.open(this.field.value === "" ? null : Number(this.field.value));
  }
}
