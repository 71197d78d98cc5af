// The runbook of a rule: what its alert means, what to do, and when it fires. Links of notifications lead here.

import { get } from "./api.js";
import { h } from "./dom.js";

export async function mountRule(stage, { parameters: [name] }) {
  const rule = await get(`/rules/${encodeURIComponent(name)}`);
  stage.title(rule.name);
  stage.show(
    h("header", {}, h("h1", {}, rule.name.replaceAll("_", " "))),
    h(
      "section",
      { class: "card stack rule" },
      h("p", {}, rule.meaning || rule.summary),
      h("h2", {}, "What to do"),
      h("p", { class: "strong" }, rule.runbook || "The rule names nothing to do."),
      h("h2", {}, "When it fires"),
      list(rule.fires_when.map(({ words, depth }) => h("li", { class: `deep-${Math.min(depth, 3)}` }, code(words)))),
      list(rule.terms.map((term) => h("li", {}, code(term)))),
    ),
  );
  return () => {};
}

const list = (items) => h("ul", {}, items);

/** Names of signals between backquotes, as code. */
const code = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
