// The budget of a run: a closed disclosure, whose script and data are loaded when it is opened.

import { ApiError, get, orNothing } from "./api.js";
import { fill, h, refill } from "./dom.js";

export class BudgetSection {
  #body = h("div", {});
  #details = h(
    "details",
    { class: "card panel", ontoggle: () => this.follow() },
    h("summary", {}, "Budget: mismatch, lag, advice by pipeline"),
    this.#body,
  );
  element = h("section", { "aria-label": "Budget" }, this.#details);
  #said = null;

  constructor(path) {
    this.path = path;
  }

  /** Read the budget anew while it is open; a request that fails is repeated with the next update. */
  async follow() {
    if (!this.#details.open) return;
    try {
      const [{ budgetOf }, found] = await Promise.all([import("/static/budget.js"), orNothing(get(`${this.path}/budget`))]);
      const said = JSON.stringify(found);
      if (this.#said === said) return;
      this.#said = said;
      refill(this.#body, found ? budgetOf(found) : h("p", { class: "quiet" }, "No batch has closed yet."));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (this.#said === null) fill(this.#body, h("p", { class: "quiet" }, error.message));
    }
  }
}
