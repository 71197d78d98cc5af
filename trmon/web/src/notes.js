// The notes that people wrote on a run and its steps, newest first.

import { fill, h } from "./dom.js";
import { ago, clock, plural, step } from "./words.js";

const SHOWN = 5;

/** Show notes, given oldest first; `open` opens the step of one. */
export function notesList(element, notes, open) {
  const items = notes.toReversed().map((note) => item(note, open));
  const older = items.slice(SHOWN);
  fill(
    element,
    items.length > 0 && h("ul", {}, items.slice(0, SHOWN)),
    older.length > 0 && h("details", {}, h("summary", { class: "quiet" }, plural(older.length, "older note")), h("ul", {}, older)),
  );
}

function item(note, open) {
  const on = note.step !== null && h("button", { class: "link", onclick: () => open(note.step) }, `step ${step(note.step)}`);
  const by = h("span", { class: "quiet", title: clock(note.at) }, `${note.author}, ${ago(note.at)}`);
  return h("li", {}, on, h("span", { class: "text" }, note.text), by);
}
