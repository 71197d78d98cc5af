// What the marks on the charts stand for: one legend for all charts of a run, of the kinds that occur.

import { h } from "./dom.js";

const WORDS = { act: "page alert", watch: "warning", policy: "policy change", note: "note" };

/** Return the legend of markers, or null without any. */
export function markLegend(markers) {
  const kinds = Object.keys(WORDS).filter((kind) => markers.some((marker) => marker.kind === kind));
  if (!kinds.length) return null;
  const items = kinds.map((kind) => h("li", { class: `mark-${kind}` }, WORDS[kind]));
  return h("div", { class: "marks quiet" }, "Marks on the charts:", h("ul", { "aria-label": "Marks on the charts" }, items));
}
