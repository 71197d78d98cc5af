// The sequences of one step: a table, a scatter plot, and what each policy decided.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { scatter } from "./scatter.js";
import { sequenceTable } from "./sequencetable.js";
import { lines } from "./skeleton.js";
import { turnTable } from "./turntable.js";
import { percent, plural, step as shown } from "./words.js";

const COLUMNS = "n_tokens,argmax_abs_d,reward,advantage,version_min";
const MOST = 500;
const LINES = 8; // Of the skeleton.

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
    if (!this.element.childElementCount) fill(this.element, this.#caption(`Step ${shown(step)}`, ""), lines(LINES));
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
      ...(sequences instanceof Error ? [h("p", { class: "quiet" }, sequences.message)] : this.#body(batch, sequences)),
    );
  }

  /** Render the sequences as a table and as a plot, and below them the turns that are asked for. */
  #body(batch, sequences) {
    const some = sequences.n_sequences > MOST && h("p", { class: "quiet" }, `the first ${MOST} of them`);
    const table = h("div", { class: "scroll sequences" });
    const criterion = criterionOf(sequences);
    const turns = h("div", { "aria-live": "polite" });
    const openTurns = (place) => this.#showTurns(turns, batch, place);
    fill(table, sequenceTable(sequences, criterion, openTurns));
    return [some, h("div", { class: "stepbody" }, table, scatter(sequences, criterion)), turns];
  }

  async #showTurns(element, batch, place) {
    const query = { attempt_id: batch.attempt_id, update: batch.update };
    const selection = { names: "n_tokens", first: place, limit: 1, turns: true };
    try {
      const { turns } = await get(`${this.path}/batches/${batch.step}/sequences`, { ...query, ...selection });
      const onClose = () => fill(element);
      fill(element, turnTable(turns[0], { place, pair: batch.primary_pair, onClose }));
    } catch (error) {
      fill(element, h("p", { class: "quiet" }, error.message));
    }
  }

  #caption(title, note) {
    const close = h("button", { class: "plain", "aria-label": "Close the step", onclick: () => this.open(null) }, "✕");
    return h("figcaption", {}, h("h2", {}, title), close, h("span", { class: "note" }, note));
  }
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
