// The sequences of a step as a sortable table.

import { fill, h } from "./dom.js";
import { number, step } from "./words.js";

/** Return the table; `criterion` is the statistic of the active policy, null if it has none. `openTurns` is called
 *  with the place of a sequence whose turns are asked for. */
export function sequenceTable(sequences, criterion, openTurns) {
  return new SequenceTable(sequences, criterion, openTurns).element;
}

class SequenceTable {
  constructor(sequences, criterion, openTurns) {
    this.columns = columnsOf(sequences, criterion, openTurns);
    this.order = sequences.columns.n_tokens.map((_, i) => i);
    this.body = h("tbody", {});
    this.heads = this.columns.map((column, at) => this.#head(column, at));
    this.element = h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.#sort(
      Math.max(
        this.columns.findIndex((column) => column.isFirst),
        0,
      ),
    );
  }

  #head({ name }, at) {
    const button = h("button", { class: "plain", onclick: () => this.#sort(at) }, name);
    return h("th", { scope: "col", "aria-sort": "none" }, button);
  }

  /** Sort descending; the same column again reverses the order. */
  #sort(at) {
    const head = this.heads[at];
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of this.heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const { value } = this.columns[at];
    this.order.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)) || a - b);
    fill(
      this.body,
      this.order.map((i) => this.#row(i)),
    );
  }

  #row(i) {
    const cells = this.columns.map(({ cell, value, isNumber }) =>
      h("td", { class: isNumber ? "number" : "" }, cell ? cell(i) : number(value(i))),
    );
    return h("tr", {}, cells);
  }
}

function columnsOf({ columns, decisions, first, turn_counts: turns }, criterion, openTurns) {
  const plain = (name, values) => values && { name, isNumber: true, value: (i) => values[i] };
  const whole = (name, value) => ({ name, isNumber: true, value, cell: (i) => step(value(i)) });
  const found = [
    whole("place", (i) => first + i),
    whole("tokens", (i) => columns.n_tokens[i]),
    turns && turnsOf(turns, first, openTurns),
    plain("reward", columns.reward),
    plain("advantage", columns.advantage),
    criterion && { ...plain(criterion.statistic, criterion.values), isFirst: true },
    columns.argmax_abs_d && worst(columns),
    ...decisions.map(decided),
  ];
  return found.filter(Boolean);
}

const decided = (one) => ({
  name: one.policy,
  value: (i) => one.reasons[i] ?? "",
  cell: (i) => h("span", { class: one.accepted[i] ? "quiet" : "" }, said(one, i)),
});

const said = (one, i) => (one.accepted[i] ? "accepted" : `✕\u00a0${one.reasons[i] ?? "rejected"}`);

/** Return the column of the number of turns, which opens them; the rejected ones are counted. */
const turnsOf = ({ n_turns: counts, n_rejected: rejected }, first, openTurns) => ({
  name: "turns",
  isNumber: true,
  value: (i) => counts[i],
  cell: (i) => {
    const label = `Turns of sequence ${step(first + i)}`;
    const masked = rejected?.[i] ? `, ✕\u00a0${step(rejected[i])}` : "";
    const open = () => openTurns(first + i);
    return h("button", { class: "plain", "aria-label": label, onclick: open }, `${step(counts[i])}${masked}`);
  },
});

const worst = ({ argmax_abs_d: places, n_tokens: lengths }) => ({
  name: "worst token",
  value: (i) => places[i],
  cell: (i) => position(places[i], lengths[i]),
});

/** Return the position of the worst token in its response. */
function position(at, length) {
  if (at < 0) return h("span", { class: "quiet" }, "–");
  const mark = h("span", { class: "mark" });
  mark.style.left = `${length > 1 ? (100 * at) / (length - 1) : 0}%`;
  const track = h("span", { class: "track" }, mark);
  return h(
    "span",
    { class: "position", title: `token ${at} of ${length}` },
    track,
    h("span", { class: "number" }, step(at)),
  );
}

function compare(a, b) {
  const [left, right] = [a, b].map((value) => (value === null ? -Infinity : value === "inf" ? Infinity : value));
  return left < right ? -1 : left > right ? 1 : 0;
}
