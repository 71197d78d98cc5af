// The sequences of one step: a table, a scatter plot, and what each policy decided.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { scatter } from "./scatter.js";
import { sequenceTable } from "./sequencetable.js";
import { percent, plural, step as shown } from "./words.js";

const COLUMNS = "n_tokens,argmax_abs_d,reward,advantage,version_min";
const MOST = 500;

const COMPLETENESS = { true: "", false: ", incomplete", null: ", completeness unknown" };

export class StepPanel {
  element = h("section", { class: "card panel step", "aria-label": "Step", hidden: true });
  #asked = 0;

  constructor(path, open) {
    Object.assign(this, { path, open });
  }

  /** Show a step, or close the panel with null. */
  async show(step, attempt) {
    const turn = ++this.#asked;
    this.element.hidden = step === null;
    if (step === null) return;
    const of = `${this.path}/batches/${step}`;
    try {
      const query = { attempt_id: attempt };
      const batch = await get(of, query);
      const [decisions, sequences] = await Promise.all([
        get(`${of}/decisions`, query),
        // If the sequences were pruned or damaged, show what is known about the batch itself.
        get(`${of}/sequences`, { ...query, names: COLUMNS, limit: MOST }).catch((error) => error),
      ]);
      if (turn === this.#asked) this.#draw(batch, decisions, sequences);
    } catch (error) {
      if (turn === this.#asked)
        fill(this.element, this.#caption(`Step ${shown(step)}`, ""), h("p", { class: "quiet" }, error.message));
    }
  }

  #draw(batch, decisions, sequences) {
    const update = batch.update === null ? "rollout" : `update ${batch.update}`;
    const gaps = COMPLETENESS[String(batch.complete)];
    const note = `${update}, ${plural(batch.n_sequences, "sequence")}, ${plural(batch.n_tokens, "token")}, ${plural(batch.n_ranks, "rank")}${gaps}`;
    const policies = decisions.map((one) =>
      h(
        "span",
        { class: "pill" },
        `${one.policy}${one.role === "active" ? " decides" : ""} · masks ${percent(one.mask_rate)}`,
      ),
    );
    fill(
      this.element,
      this.#caption(`Step ${shown(batch.step)}`, note),
      h("div", { class: "row" }, policies),
      setAside(batch.quarantined),
      ...(sequences instanceof Error ? [h("p", { class: "quiet" }, sequences.message)] : body(sequences)),
    );
  }

  #caption(title, note) {
    const close = h("button", { class: "plain", "aria-label": "Close the step", onclick: () => this.open(null) }, "✕");
    return h("figcaption", {}, h("h2", {}, title), close, h("span", { class: "note" }, note));
  }
}

/** Render the sequences as a table and as a plot. */
function body(sequences) {
  const some = sequences.n_sequences > MOST && h("p", { class: "quiet" }, `the first ${MOST} of them`);
  const table = h("div", { class: "scroll sequences" });
  const criterion = criterionOf(sequences);
  fill(table, sequenceTable(sequences, criterion));
  return [some, h("div", { class: "stepbody" }, table, scatter(sequences, criterion))];
}

/** List the quarantined parts of the step, each with its reason. */
function setAside(parts) {
  const lines = parts.map(({ part, place, reason }) => h("li", {}, `${part}, ${place}: ${reason}`));
  return lines.length > 0 && h("ul", { class: "setaside", "aria-label": "Quarantined" }, lines);
}

/** Return the criterion that rejected most here, or the first one that has values. */
function criterionOf({ criteria, decisions }) {
  const reasons = decisions.find((one) => one.role === "active")?.reasons ?? [];
  const rejected = (criterion) => reasons.filter((reason) => reason === criterion.statistic).length;
  return [...criteria].sort((a, b) => rejected(b) - rejected(a))[0] ?? null;
}
