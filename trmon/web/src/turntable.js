// The turns of one sequence of a step, as a table.

import { h } from "./dom.js";
import { number, step } from "./words.js";

/** Return the turns of the sequence at a place of its batch; `pair` is what is shown where no criterion reads turns. */
export function turnTable(turns, { place, pair, onClose }) {
  const heading = `Turns of sequence ${step(place)}`;
  const columns = columnsOf(turns, pair);
  const rows = turns.columns.n_tokens.map((_, i) =>
    h(
      "tr",
      {},
      columns.map(({ cell, isNumber }) => h("td", { class: isNumber ? "number" : "" }, cell(i))),
    ),
  );
  const heads = columns.map(({ name }) => h("th", { scope: "col" }, name));
  return h(
    "section",
    { class: "turns", "aria-label": heading },
    h("h3", {}, heading),
    h("button", { class: "plain", "aria-label": "Close the turns", onclick: onClose }, "✕"),
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)),
  );
}

function columnsOf({ columns, accepted, reasons, criteria }, pair) {
  const counted = (name, values) => ({ name, isNumber: true, cell: (i) => step(values[i]) });
  const measured = (name, value) => ({ name, isNumber: true, cell: (i) => number(value(i)) });
  const ofPair = (stem) => columns[`${pair}_${stem}`];
  const shown = criteria.length
    ? criteria.map(({ statistic, values }) => measured(statistic, (i) => values[i]))
    : [
        ofPair("max_abs_d") && measured("max |d|", (i) => ofPair("max_abs_d")[i]),
        ofPair("sum_k3") && measured("mean k3", (i) => ofPair("sum_k3")[i] / columns.n_tokens[i]),
      ];
  return [
    { name: "turn", isNumber: true, cell: (i) => step(i) },
    counted("tokens", columns.n_tokens),
    ...shown,
    accepted && { name: "decision", cell: (i) => decided(accepted[i], reasons[i]) },
  ].filter(Boolean);
}

function decided(isAccepted, reason) {
  if (reason === "empty") return h("span", { class: "quiet" }, "empty");
  return h("span", { class: isAccepted ? "quiet" : "" }, isAccepted ? "accepted" : `✕\u00a0${reason}`);
}
