// The details under the charts of a run: sequences against the threshold, policies, the budget, and the open step.

import { get, orNothing, unanswered } from "./api.js";
import { ThresholdEditor } from "./bounds.js";
import { fill, h, lines, refill, table } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { policiesCard, policyHistory } from "./policies.js";
import { StepPanel } from "./step.js";
import { capital, number, percent } from "./words.js";

const POLICY_LINES = 8; // As tall as a policy with three shadows.

export class Details {
  /** `open` opens a step; `again` reads the run's facts anew after a change. */
  constructor(chartData, { open, again }) {
    const { path } = chartData;
    Object.assign(this, { chartData, again });
    this.heat = new Heatmap(chartData, open);
    this.heat.element.append(new ThresholdEditor(this.heat, chartData, again).element);
    this.policies = h("section", { class: "card panel", "aria-label": "Policies" }, lines(POLICY_LINES));
    this.versions = h("div", { class: "history" });
    this.budget = new BudgetSection(path);
    this.panel = new StepPanel(path, open);
    const upper = h("div", { class: "lower" }, this.heat.element, h("div", { class: "stack" }, this.policies, this.versions));
    const none = h("p", { class: "card panel quiet", hidden: true }, "No sequences: this run reports scalars alone.");
    Object.assign(this, { upper, none, elements: [upper, none, this.budget.element, this.panel.element] });
  }

  show(facts) {
    const { chartData, again } = this;
    this.upper.hidden = chartData.names.size > 0 && !chartData.names.has("mask_rate");
    this.none.hidden = !this.upper.hidden;
    if (this.upper.hidden) return fill(this.policies);
    policyHistory(this.versions, facts, { path: chartData.path, again });
    policiesCard(this.policies, facts, { chartData, again }).catch(unanswered);
  }

  /** Read what is new. */
  follow() {
    this.heat.follow();
    this.budget.follow();
  }

}

/** The budget of a run: a closed disclosure, whose data is read when it is opened. */
class BudgetSection {
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
      const found = await orNothing(get(`${this.path}/budget`));
      const said = JSON.stringify(found);
      if (this.#said === said) return;
      this.#said = said;
      refill(this.#body, found ? budgetOf(found) : h("p", { class: "quiet" }, "No batch has closed yet."));
    } catch (error) {
      unanswered(error);
      if (this.#said === null) fill(this.#body, h("p", { class: "quiet" }, error.message));
    }
  }
}

const KINDS = { present: "has it", absent: "has it not", unknown: "cannot be told" };
const PRESENCES = { present: "Shown by this run", absent: "Not shown", unknown: "Cannot be told" };

/** Return the report as elements: limits, lag law, split of the drift and its kinds, advice by pipeline and to the trainer. */
const budgetOf = (found) => h("div", { class: "budget" }, mismatch(found), lag(found), split(found), kinds(found), pipeline(found), trainer(found));

function mismatch({ mismatch: items, step }) {
  const rows = items.map((item) => [
    [item.name, h("br"), h("span", { class: "quiet small" }, item.note)],
    `< ${item.limit}`,
    item.value === null ? "–" : number(item.value),
    h("span", { class: item.state === "exceeded" ? "strong" : "quiet" }, item.state.replaceAll("_", " ")),
  ]);
  return part(
    "Mismatch budget",
    `At step ${step}. Below these limits a correction is conjectured to gain less than 0.3% ([DRIFT], problem 4).`,
    tableOf(["quantity", "limit", "value", "state"], rows),
  );
}

function lag({ lag: law, lag_words: words }) {
  const rows = [
    ["largest lag S, versions", number(law.lag)],
    ["horizon T, updates", number(law.horizon)],
    ["learning rate η", number(law.lr)],
    ["S η", number(law.s_eta)],
    ["T η", number(law.t_eta)],
    ["η must stay well below", number(law.lr_scale)],
    ["ceiling of the lag, 50 ess_seq", number(law.ess_ceiling)],
  ];
  return part(
    "Lag and learning rate",
    "A conjecture for this run: η ≪ min(R_batch/(S G), R_crit/(T G)), whose radii are fitted (arXiv 2607.01083).",
    words.map((text) => h("p", {}, text)),
    tableOf(["quantity", "value"], rows),
  );
}

function split({ split: found, minorizer, minorizer_vacuous: vacuous }) {
  const rows = [
    ["staleness (π against π_old)", number(found.alpha_0), number(found.mean_staleness)],
    ["mismatch (π_old against μ)", number(found.alpha_1), number(found.mean_mismatch)],
    found.exact_max !== null && ["from logits, of the pair they were sent of", number(found.exact_max), number(found.exact_mean)],
  ].filter(Boolean);
  return part(
    "Where the drift comes from",
    "Total variation of tokens: the largest seen, a lower bound of the worst case, and the mean.",
    tableOf(["policies", "at least", "mean"], rows),
    found.note && h("p", {}, found.note),
    found.mismatch_share !== null && h("p", {}, `Mismatch makes ${percent(found.mismatch_share)} of the sum of the bounds.`),
    found.is_replayed && h("p", {}, "Routing is replayed, which hides the difference of the routers and does not reduce it."),
    minorizer !== null &&
      h("p", {}, `Minorizer ${number(minorizer)}: the gain that the error bound leaves${vacuous === 1 ? "; vacuous" : ""}.`),
  );
}

function kinds({ kinds: found }) {
  const rows = found.map((kind) => [
    [kind.name, h("br"), h("span", { class: "quiet small" }, kind.why, shown(kind.shown_by))],
    h("span", { class: kind.presence === "present" ? "strong" : "quiet" }, KINDS[kind.presence] ?? kind.presence),
  ]);
  return part(
    "Kinds of off-policyness",
    "Which of them this run has, by its columns and configuration.",
    tableOf(["kind", "this run"], rows),
  );
}

function pipeline({ pipeline: advice }) {
  const methods = advice.methods.map((one) =>
    h("li", {}, h("span", { class: "strong" }, `${one.title}: `), one.method, shown(one.shown_by)),
  );
  const patterns = advice.anti_patterns.map((one) =>
    h(
      "li",
      { "data-presence": one.presence },
      h("span", { class: one.presence === "present" ? "strong" : "quiet" }, `${PRESENCES[one.presence] ?? one.presence}: `),
      `${one.name}. ${capital(one.why)}.`,
      shown(one.shown_by),
    ),
  );
  return part(
    "Advice by pipeline",
    "Operational defaults of the author of [DRIFT], not laws.",
    h("ul", {}, methods),
    advice.correction && h("p", {}, advice.correction, shown(advice.correction_shown_by)),
    h("p", { class: "strong" }, "Anti-patterns"),
    h("ol", {}, patterns),
  );
}

function trainer({ advice }) {
  if (!advice) return null;
  const { step, lr_scale: adam, lr_scale_sgd: sgd, reasons } = advice;
  return part(
    "Advice to the trainer",
    `At step ${step}. A trainer applies it only if its code opts in.`,
    h("p", {}, `Learning rate × ${number(adam)}, for plain SGD × ${number(sgd)}.`),
    h("ul", {}, Object.entries(reasons).map(([name, reason]) => h("li", {}, h("span", { class: "strong" }, `${name}: `), reason))),
  );
}

const shown = (items) =>
  items.length > 0 && h("span", { class: "quiet small" }, ` (${items.map((one) => `${one.name} ${one.value}`).join(", ")})`);

const part = (title, words, ...children) => h("div", {}, h("h2", {}, title), h("p", { class: "quiet small" }, words), children);

const tableOf = (heads, rows) =>
  table({ class: "evidence" }, heads, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))));
