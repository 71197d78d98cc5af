// The sequences of one step: a table, a scatter plot, what each policy decided, and the turns of a sequence.

import { get } from "./api.js";
import { fill, h, lines, svg, table } from "./dom.js";
import { number, percent, plural, step, tickLabels } from "./words.js";

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
  async show(at, attempt) {
    const turn = ++this.#asked;
    this.element.hidden = at === null;
    if (at === null) return;
    if (!this.element.childElementCount) fill(this.element, this.#caption(`Step ${step(at)}`, ""), lines(LINES));
    const of = `${this.path}/batches/${at}`;
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
        fill(this.element, this.#caption(`Step ${step(at)}`, ""), h("p", { class: "quiet" }, error.message));
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
      this.#caption(`Step ${step(batch.step)}`, note),
      h("div", { class: "row" }, policies),
      setAside(batch.quarantined),
      ...(sequences instanceof Error ? [h("p", { class: "quiet" }, sequences.message)] : this.#body(batch, sequences)),
    );
  }

  /** Render the sequences as a table and as a plot, and below them the turns that are asked for. */
  #body(batch, sequences) {
    const some = sequences.n_sequences > MOST && h("p", { class: "quiet" }, `the first ${MOST} of them`);
    const criterion = criterionOf(sequences);
    const turns = h("div", { "aria-live": "polite" });
    const openTurns = (place) => this.#showTurns(turns, batch, place);
    const { element } = new SequenceTable(sequences, criterion, openTurns);
    return [some, h("div", { class: "stepbody" }, h("div", { class: "scroll sequences" }, element), scatter(sequences, criterion)), turns];
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

class SequenceTable {
  /** `criterion` is the statistic of the active policy, null if it has none. `openTurns` is called with the place of a
   *  sequence whose turns are asked for. */
  constructor(sequences, criterion, openTurns) {
    this.columns = columnsOf(sequences, criterion, openTurns);
    this.order = sequences.columns.n_tokens.map((_, i) => i);
    this.body = h("tbody", {});
    this.heads = this.columns.map((column, at) => this.#head(column, at));
    this.element = h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.#sort(Math.max(this.columns.findIndex((column) => column.isFirst), 0));
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
    fill(this.body, this.order.map((i) => rowOf(this.columns, i)));
  }
}

/** Return a line of a table; a column without a `cell` has the formatted `value`. */
function rowOf(columns, i) {
  const cells = columns.map(({ cell, value, isNumber }) =>
    h("td", { class: isNumber ? "number" : "" }, cell ? cell(i) : number(value(i))),
  );
  return h("tr", {}, cells);
}

const whole = (name, value) => ({ name, isNumber: true, value, cell: (i) => step(value(i)) });
const measured = (name, value) => ({ name, isNumber: true, value });

function columnsOf({ columns, decisions, first, turn_counts: turns }, criterion, openTurns) {
  const given = (name, values) => values && measured(name, (i) => values[i]);
  const found = [
    whole("place", (i) => first + i),
    whole("tokens", (i) => columns.n_tokens[i]),
    turns && turnsOf(turns, first, openTurns),
    given("reward", columns.reward),
    given("advantage", columns.advantage),
    criterion && { ...given(criterion.statistic, criterion.values), isFirst: true },
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
  const mark = h("span", { class: "mark", style: { left: `${length > 1 ? (100 * at) / (length - 1) : 0}%` } });
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

/** Return the turns of the sequence at a place of its batch; `pair` is what is shown where no criterion reads turns. */
function turnTable(turns, { place, pair, onClose }) {
  const heading = `Turns of sequence ${step(place)}`;
  const columns = turnColumns(turns, pair);
  const rows = turns.columns.n_tokens.map((_, i) => rowOf(columns, i));
  return h(
    "section",
    { class: "turns", "aria-label": heading },
    h("h3", {}, heading),
    h("button", { class: "plain", "aria-label": "Close the turns", onclick: onClose }, "✕"),
    table({}, columns.map(({ name }) => name), rows),
  );
}

function turnColumns({ columns, accepted, reasons, criteria }, pair) {
  const ofPair = (stem) => columns[`${pair}_${stem}`];
  const shown = criteria.length
    ? criteria.map(({ statistic, values }) => measured(statistic, (i) => values[i]))
    : [
        ofPair("max_abs_d") && measured("max |d|", (i) => ofPair("max_abs_d")[i]),
        ofPair("sum_k3") && measured("mean k3", (i) => ofPair("sum_k3")[i] / columns.n_tokens[i]),
      ];
  return [
    whole("turn", (i) => i),
    whole("tokens", (i) => columns.n_tokens[i]),
    ...shown,
    accepted && { name: "decision", cell: (i) => turnDecision(accepted[i], reasons[i]) },
  ].filter(Boolean);
}

function turnDecision(isAccepted, reason) {
  if (reason === "empty") return h("span", { class: "quiet" }, "empty");
  return h("span", { class: isAccepted ? "quiet" : "" }, isAccepted ? "accepted" : `✕\u00a0${reason}`);
}

const WIDTH = 420;
const HEIGHT = 260;
const LEFT = 52;
const BOTTOM = 36;

function scatter({ columns, decisions }, criterion) {
  const accepted = decisions.find((one) => one.role === "active")?.accepted;
  if (!criterion || !accepted) return null;
  const points = criterion.values
    .map((value, i) => ({ value, length: columns.n_tokens[i], accepted: accepted[i] }))
    .filter(({ value }) => typeof value === "number");
  return points.length ? h("div", {}, drawing(points, criterion), legend()) : null;
}

function drawing(points, criterion) {
  const bounds = [criterion.lower, criterion.upper].filter((bound) => bound !== null);
  const values = points.map(({ value }) => value);
  const lengths = points.map(({ length }) => length);
  const y = vertical([...values, ...bounds]);
  const x = linear(lengths, [LEFT + 8, WIDTH - 10]);
  const dots = points.map((point) => dot(point, { x, y }));
  const words = (bound) => `${bound === criterion.upper ? "at most" : "at least"} ${number(bound)}`;
  const lines = bounds.map((bound) => line(y.at(bound), words(bound)));
  const n = points.filter((point) => !point.accepted).length;
  const label = `${criterion.statistic} against length of ${points.length} sequences, ${n} of them rejected`;
  const given = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "scatter" };
  return svg("svg", given, lines, dots, ticks(x, y), names(criterion));
}

const dot = ({ length, value, accepted }, { x, y }) =>
  svg("circle", { cx: x.at(length), cy: y.at(value), r: 3, class: accepted ? "in" : "out" });

const line = (y, words) => [
  svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y, class: "bound" }),
  svg("text", { x: LEFT + 6, y: y - 5, class: "limit" }, words),
];

function legend() {
  const marks = ["in", "out"].map((kind) => h("span", { class: `dot ${kind}` }));
  return h("p", { class: "quiet small" }, marks[0], "accepted ", marks[1], "rejected");
}

function linear(values, [start, end]) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const at = (value) => (most > least ? start + ((value - least) / (most - least)) * (end - start) : (start + end) / 2);
  return { least, most, at };
}

/** Use a logarithmic scale if the values span orders of magnitude; values at or below zero lie at the bottom. */
function vertical(values) {
  const positive = values.filter((value) => value > 0);
  const least = Math.min(...positive);
  const isLog = Math.min(...values) >= 0 && positive.length > 0 && Math.max(...values) > 30 * least;
  if (!isLog) return linear(values, [HEIGHT - BOTTOM - 4, 10]);
  const scale = linear(positive.map(Math.log), [HEIGHT - BOTTOM - 4, 10]);
  return { least, most: Math.exp(scale.most), at: (value) => scale.at(Math.log(Math.max(value, least))) };
}

function ticks(x, y) {
  const text = (words, given) => svg("text", given, words);
  const [most, least] = tickLabels([y.most, y.least]);
  return [
    text(most, { x: LEFT - 6, y: y.at(y.most) + 4, "text-anchor": "end" }),
    text(least, { x: LEFT - 6, y: y.at(y.least) + 4, "text-anchor": "end" }),
    text(step(x.least), { x: x.at(x.least), y: HEIGHT - 20, "text-anchor": "middle" }),
    x.most > x.least ? text(step(x.most), { x: x.at(x.most), y: HEIGHT - 20, "text-anchor": "end" }) : null,
    svg("path", { d: `M${LEFT} 6V${HEIGHT - BOTTOM}H${WIDTH}`, class: "axis" }),
  ].filter(Boolean);
}

const names = (criterion) => [
  svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "tokens"),
  svg(
    "text",
    { x: 12, y: (HEIGHT - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(HEIGHT - BOTTOM) / 2})` },
    criterion.statistic,
  ),
];
