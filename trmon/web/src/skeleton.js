// What stands in for a view, or a part of it, until its data arrives: grey shapes where the content will be.

import { h } from "./dom.js";

const FIGURES = 9;
const ROWS = 12;

const bone = (kind) => h("span", { class: `bone ${kind}` });
const several = (n, made) => Array.from({ length: n }, made);
const heading = (...more) => h("header", {}, bone("title"), more);
const filters = () => h("div", { class: "row controls" }, bone("field"), bone("field narrow"));
const words = (n) => h("div", { class: "card panel stack" }, several(n, () => bone("line")));
const rows = (kind) => h("div", { class: "card" }, several(ROWS, () => h("div", { class: `bones ${kind}` }, bone("line"))));

/** The shape of each view, by the name of the view. */
const SHAPES = {
  fleet: () => [heading(bone("title narrow"), bone("line half")), filters(), rows("run-line")],
  alerts: () => [heading(bone("field narrow")), filters(), bone("subtitle"), rows("alert-line")],
  run: () => [
    heading(bone("field narrow"), bone("line half"), bone("line third")),
    h("div", { class: "card diagnosis" }, h("div", { class: "stack" }, several(5, () => bone("line")))),
    h("div", { class: "rangebar" }, bone("field")),
    h("div", { class: "charts" }, figures(FIGURES)),
  ],
  compare: () => [heading(), words(4), h("div", { class: "charts" }, figures(FIGURES))],
  rule: () => [heading(), words(6)],
};

/** Return the shape of a view. */
export function skeleton(view) {
  const said = h("p", { class: "sr", role: "status" }, "Loading …");
  return [said, h("div", { class: "skeleton", "aria-hidden": "true" }, SHAPES[view]())];
}

/** Return the shapes of charts. */
export function figures(n) {
  return several(n, () => h("figure", { class: "card panel", "aria-hidden": "true" }, bone("caption"), bone("plot")));
}

/** Return lines of text that have not arrived. */
export const lines = (n) => several(n, () => h("span", { class: "bone line", "aria-hidden": "true" }));
