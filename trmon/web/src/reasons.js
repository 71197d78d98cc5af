// The share of masked sequences over steps, by the reason for their rejection.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { Figure } from "./figure.js";
import { percent, step } from "./words.js";

const SHOWN = 3; // The most frequent reasons; the total includes the others.

export class ReasonsChart extends Figure {
  #found = { steps: [], mask_rate: [], reasons: {} };
  #asked = 0;

  constructor({ uPlot, course, open }) {
    super({ uPlot, course, open, title: "Masked, by reason", label: "Masked" });
  }

  shows(evidence) {
    return evidence.has("mask_rate");
  }

  make() {
    this.canvas.make({ n: Math.max(this.#names().length, 1), banded: false, from: 0 });
    this.#draw();
  }

  /** Read the displayed steps; if responses overtake each other, the newest request wins. */
  async data() {
    const turn = ++this.#asked;
    const [from, to] = this.course.view;
    const found = await get(`${this.course.path}/reasons`, {
      from,
      to,
      attempt_id: this.course.attempt,
      points: 200,
    }).catch(() => null);
    if (!found || turn !== this.#asked) return;
    const before = this.#names().join();
    this.#found = found;
    if (this.#names().join() === before) this.#draw();
    else this.make();
  }

  #names() {
    const total = (name) => this.#found.reasons[name].reduce((sum, share) => sum + share, 0);
    return Object.keys(this.#found.reasons)
      .sort((a, b) => total(b) - total(a))
      .slice(0, SHOWN);
  }

  #draw() {
    const names = this.#names();
    const columns = names.length ? names.map((name) => this.#found.reasons[name]) : [this.#found.mask_rate];
    this.canvas.data([this.#found.steps, ...columns]);
    fill(
      this.legend,
      names.map((name, i) => h("span", { class: `legend line-${i}` }, name)),
    );
    this.say(null);
  }

  lines(at) {
    const { steps, mask_rate: rates, reasons } = this.#found;
    const values = this.#names().map((name) => `${name} ${percent(reasons[name][at])}`);
    return [`step ${step(steps[at])}`, `masked ${percent(rates[at])}`, ...values];
  }

  rows() {
    const { steps, mask_rate: rates, reasons } = this.#found;
    const names = Object.keys(reasons);
    const body = steps.map((at, i) => [at, rates[i], ...names.map((name) => reasons[name][i])]);
    return [["step", "masked (fraction)", ...names.map((name) => `${name} (fraction)`)], ...body];
  }

  say(at) {
    const { steps, mask_rate: rates } = this.#found;
    const place = at === null ? rates.length - 1 : at;
    this.now.textContent = percent(rates[place]);
    this.against.textContent = at === null ? `initially ${percent(rates[0])}` : `step ${step(steps[place])}`;
  }
}
