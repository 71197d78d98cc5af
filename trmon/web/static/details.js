// The details under the charts of a run: sequences against the threshold, policies, the budget, and the open step.

import { unanswered } from "./api.js";
import { ThresholdEditor } from "./bounds.js";
import { BudgetSection } from "./budget.js";
import { fill, h, lines } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { policiesCard, policyHistory } from "./policies.js";
import { StepPanel } from "./step.js";

const POLICY_LINES = 8; // As tall as a policy with three shadows.

export class Details {
  /** `open` opens a step; `again` reads the run's facts anew after a change. */
  constructor(chartData, { path, open, again }) {
    Object.assign(this, { chartData, path, again });
    this.heat = new Heatmap(chartData, open);
    this.editor = new ThresholdEditor(this.heat, chartData, { path, again });
    this.heat.element.append(this.editor.element);
    this.policies = h("section", { class: "card panel", "aria-label": "Policies" }, lines(POLICY_LINES));
    this.versions = h("div", { class: "history" });
    this.budget = new BudgetSection(path);
    this.panel = new StepPanel(path, open);
    const upper = h("div", { class: "lower" }, this.heat.element, h("div", { class: "stack" }, this.policies, this.versions));
    const none = h("p", { class: "card panel quiet", hidden: true }, "No sequences: this run reports scalars alone.");
    Object.assign(this, { upper, none, elements: [upper, none, this.budget.element, this.panel.element] });
  }

  show(facts) {
    const { chartData, path, again } = this;
    this.upper.hidden = chartData.names.size > 0 && !chartData.names.has("mask_rate");
    this.none.hidden = !this.upper.hidden;
    if (this.upper.hidden) return fill(this.policies);
    policyHistory(this.versions, facts, { path, again });
    policiesCard(this.policies, facts, { chartData, path, again }).catch(unanswered);
  }

  /** Read what is new. */
  follow() {
    this.heat.follow();
    this.budget.follow();
  }

  end() {
    this.heat.end();
    this.editor.end();
  }
}
