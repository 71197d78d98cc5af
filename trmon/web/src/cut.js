// Names cut in the middle: their ends tell runs apart ("...-seed-3"), so a narrow cell keeps both ends.

import { h } from "./dom.js";

const END = 9;
const SHORT = 8;

/** Return a text in two parts for an element of class "cut"; the first is cut where room is short. */
export function cut(text) {
  const letters = [...text];
  if (letters.length <= SHORT) return h("span", { class: "start" }, text);
  const end = Math.min(END, Math.floor(letters.length / 2));
  return [
    h("span", { class: "start" }, letters.slice(0, -end).join("")),
    h("span", { class: "end" }, letters.slice(-end).join("")),
  ];
}
