// The evidence table of a finding: signal, value, limit and first step.

import { h } from "./dom.js";
import { signalWords } from "./signalwords.js";
import { number, step } from "./words.js";

/** Return the evidence of findings as a table; usual values, which only exclude other causes, have no limit. */
export function evidenceTable(found, { catalogue, open }) {
  const seen = new Set();
  const items = found.flatMap((one) => one.evidence).filter(({ signal }) => !seen.has(signal) && seen.add(signal));
  const rows = items.map((item) =>
    h(
      "tr",
      {},
      h(
        "td",
        { title: catalogue.get(item.signal)?.description ?? "" },
        signalWords(item.signal),
        h("br"),
        h("code", { class: "quiet" }, breakable(item.signal)),
      ),
      h("td", { class: "number strong" }, number(item.value)),
      h("td", { class: "number quiet" }, item.rules_out ? "usual" : limit(item)),
      h(
        "td",
        { class: "number" },
        h("button", { class: "link", onclick: () => open(item.since_step) }, step(item.since_step)),
      ),
    ),
  );
  const head = h(
    "tr",
    {},
    ["Evidence", "value", "limit", "since step"].map((text, i) => h("th", { class: i ? "number" : "" }, text)),
  );
  return h("table", { class: "evidence" }, h("thead", {}, head), h("tbody", {}, rows));
}

/** Return a name that can wrap after underscores in a narrow column. */
const breakable = (name) => name.split(/(?<=_)/).flatMap((part) => [part, h("wbr")]);

/** Return the limit as text. */
function limit({ bound, threshold, away_from: centre }) {
  if (centre !== null) return centre === 0 ? `±${number(threshold)}` : `${number(centre)} ± ${number(threshold)}`;
  return `${bound === "above" ? "≤" : "≥"} ${number(threshold)}`;
}
