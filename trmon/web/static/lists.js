// What the fleet and the alerts share. Long lists: only the lines in view are in the document; a selection survives updates,
// sorting and filtering; filters are in the address.

import { get } from "./api.js";
import { displayed, fill, h, moving } from "./dom.js";
import { plural, step } from "./words.js";

const AROUND = 8; // Lines beyond the screen.
const NAMED = 100; // Selected items that a dialog names; it counts the others.

export class VirtualList {
  #views = new Map();
  #lines = [];
  #asked = 0;

  /** `made(line)` returns a view of a line: its `element`, and `show(line)`, which renders it; `seen(lines)` is called
   *  with the lines that are in the document, each time they may have changed. */
  constructor(body, { made, seen, signal }) {
    Object.assign(this, { body, made, seen });
    const moved = () => (this.#asked ||= requestAnimationFrame(() => this.#draw()));
    document.addEventListener("scroll", moved, { passive: true, capture: true, signal });
    window.addEventListener("resize", moved, { signal });
    signal.addEventListener("abort", () => cancelAnimationFrame(this.#asked));
  }

  /** Show lines, each with a `key` of its own. */
  show(lines) {
    this.#lines = lines;
    const keys = new Set(lines.map(({ key }) => key));
    for (const key of this.#views.keys()) if (!keys.has(key)) this.#views.delete(key);
    this.#draw();
  }

  /** Return the index of the line that holds an element; -1 for none. */
  indexOf(element) {
    const row = element?.closest?.("tr");
    return row && this.body.contains(row) ? Number(row.getAttribute("aria-rowindex")) - 2 : -1;
  }

  /** Return the index of the first line that a test holds of; -1 for none. */
  indexWhere(test) {
    return this.#lines.findIndex(test);
  }

  /** Bring a line into view and focus its link or button. */
  focus(index) {
    this.reveal(index);
    this.#views.get(this.#lines[index]?.key)?.element.querySelector("a.run, button")?.focus({ preventScroll: true });
  }

  /** Bring a line into view. */
  reveal(index) {
    if (!this.#lines[index]) return;
    const pane = this.body.closest(".pane") ?? window;
    const height = this.#height();
    const top = this.body.getBoundingClientRect().top + index * height;
    const above = (this.body.previousElementSibling?.getBoundingClientRect().bottom ?? 0) + height / 2;
    if (top < above) pane.scrollBy(0, top - above);
    else if (top + height > window.innerHeight) pane.scrollBy(0, top + 1.5 * height - window.innerHeight);
    this.#draw();
  }

  #height() {
    return parseFloat(getComputedStyle(this.body).getPropertyValue("--line-height"));
  }

  #draw() {
    this.#asked = 0;
    const height = this.#height();
    const top = this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / height) - AROUND);
    const end = Math.ceil((window.innerHeight - top) / height) + AROUND;
    const focused = this.indexOf(document.activeElement);
    const focusedKey = this.body.contains(document.activeElement)
      ? [...this.#views].find(([, view]) => view.element.contains(document.activeElement))?.[0]
      : null;
    const shown = this.#lines
      .map((line, index) => ({ line, index }))
      .filter(({ line, index }) => (index >= first && index < end) || (focused >= 0 && line.key === focusedKey));
    this.body.style.height = `${this.#lines.length * height}px`;
    this.body.parentElement?.setAttribute("aria-rowcount", this.#lines.length + 1);
    const elements = shown.map(({ line, index }) => this.#placed(line, index, height));
    moving(() => place(this.body, elements));
    const kept = new Set(shown.map(({ line }) => line.key));
    for (const key of this.#views.keys()) if (!kept.has(key)) this.#views.delete(key);
    this.seen(shown.map(({ line }) => line));
  }

  #placed(line, index, height) {
    if (!this.#views.has(line.key)) this.#views.set(line.key, this.made(line));
    const view = this.#views.get(line.key);
    view.show(line);
    view.element.style.top = `${index * height}px`;
    view.element.setAttribute("aria-rowindex", index + 2);
    return view.element;
  }
}

/** Put elements in order, moving as few as possible, so that selected text stays selected. */
export function place(parent, elements, present = parent.children) {
  const kept = new Set(elements);
  for (const one of [...present]) if (!kept.has(one)) one.remove();
  elements.forEach((element, i) => {
    if (present[i] !== element) parent.insertBefore(element, present[i] ?? null);
  });
}

/** Which items of a list are selected, by key; a line of the list has items, and a key of its own. */
export class Selection {
  #keys = new Set();
  #lines = [];
  #anchor = null;

  /** `keyOf` returns the key of an item, `itemsOf` the items of a line; `changed` is called when a person has selected. */
  constructor({ keyOf, itemsOf, changed }) {
    Object.assign(this, { keyOf, itemsOf, changed });
  }

  has(item) {
    return this.#keys.has(this.keyOf(item));
  }

  get size() {
    return this.#keys.size;
  }

  keys() {
    return [...this.#keys];
  }

  /** Select exactly the items with these keys. */
  set(keys) {
    this.#keys = new Set(keys);
    this.changed();
  }

  /** Return a checkbox for the line that `lineOf()` returns. */
  box(lineOf, name = "") {
    const box = h("input", { type: "checkbox", "aria-label": `Select ${name}` });
    box.addEventListener("click", (event) => this.choose(lineOf(), box.checked, event.shiftKey));
    return box;
  }

  /** Show in a checkbox whether items are selected. */
  mark(box, items) {
    const chosen = items.filter((item) => this.has(item)).length;
    box.checked = chosen > 0 && chosen === items.length;
    box.indeterminate = chosen > 0 && chosen < items.length;
  }

  /** Take the lines in their order; items whose key `known` has not any more leave. */
  follow(lines, known) {
    this.#lines = lines;
    for (const key of this.#keys) if (!known.has(key)) this.#keys.delete(key);
  }

  /** Select or deselect the items of a line; with Shift, of every line from the one that was clicked last. */
  choose(line, isChosen, isRange) {
    const at = this.#lines.findIndex(({ key }) => key === line.key);
    const from = isRange ? this.#lines.findIndex(({ key }) => key === this.#anchor) : -1;
    const range = at < 0 || from < 0 ? [line] : this.#lines.slice(Math.min(at, from), Math.max(at, from) + 1);
    this.#anchor = line.key;
    this.put(range.flatMap(this.itemsOf), isChosen);
  }

  /** Select or deselect items. */
  put(items, isChosen) {
    for (const item of items) {
      if (isChosen) this.#keys.add(this.keyOf(item));
      else this.#keys.delete(this.keyOf(item));
    }
    this.changed();
  }
}

/** The bar of the selected items: how many they are, what can be done with all of them, and what failed. */
export class SelectionBar {
  #outcome = null;
  #drawn = "";

  /** `noun` is what an item is called. */
  constructor(selection, noun) {
    Object.assign(this, { selection, noun });
    this.count = h("p", { role: "status", class: "strong" });
    this.buttons = h("div", { class: "row" });
    this.result = h("div", { role: "alert" });
    const line = h("div", { class: "row" }, this.count, this.buttons);
    const label = `Selected ${noun}s`;
    this.element = h("section", { class: "card selected", "aria-label": label, hidden: true }, line, this.result);
  }

  /** Render the bar; the DOM is untouched if nothing changed.
   *
   *  Args: chosen: the selected items; matching: those that match the filters; state: what else the buttons depend on;
   *  working: what is told in place of the number; offered(every): the buttons, among them the given one. */
  render(chosen, matching, { state = null, working = null, offered }) {
    const { selection, noun } = this;
    const n = chosen.length;
    const keys = new Set(n ? matching.map(selection.keyOf) : []);
    const hidden = chosen.filter((item) => !keys.has(selection.keyOf(item))).length;
    const isEvery = matching.every((item) => selection.has(item));
    this.element.hidden = n === 0 && !this.#outcome;
    const now = JSON.stringify([n, hidden, isEvery, matching.length, state, working]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    this.count.textContent = working ?? `${plural(n, noun)} selected${hidden ? `, ${step(hidden)} not shown` : ""}`;
    const disabled = working !== null;
    const selectAll = () => selection.set([...chosen, ...matching].map(selection.keyOf));
    const every = n > 0 && !isEvery && h("button", { disabled, onclick: selectAll }, `Select all ${step(matching.length)}`);
    const clear = () => (this.tell(null), selection.set([]));
    fill(this.buttons, offered(every), h("button", { disabled, onclick: clear }, n ? "Clear" : "Close"));
  }

  /** Show what came of an action, or nothing with null. */
  tell(outcome) {
    this.#outcome = outcome;
    this.#drawn = "";
    fill(this.result, outcome);
  }

  /** Return what came of an action on `of` items: `n` were done, the others are named with the reason. */
  outcome(n, of, did, reasons) {
    return [
      h("p", {}, `${step(n)} of ${plural(of, this.noun)} ${did}. Not ${did}:`),
      h("ul", { class: "failures" }, reasons.map((reason) => h("li", {}, reason))),
    ];
  }
}

/** Return the names of items as a list, of which a dialog shows the first. */
export function names(all) {
  const more = all.length > NAMED && h("li", {}, `and ${step(all.length - NAMED)} more`);
  return h("ul", { class: "names" }, all.slice(0, NAMED).map((name) => h("li", {}, name)), more);
}

/** Return the field of words that filter a list. */
export const searchField = (value, placeholder, label = placeholder) =>
  h("input", { type: "search", value: value ?? "", placeholder, "aria-label": label, "data-filter": true });

/** Whether a text has every word of a field. */
export const hasWords = (field, text) =>
  field.value.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

/** Keep what is not empty in the address of a view, unless it is that of what is shown beside it; returns the query. */
export function keepInAddress(path, given) {
  const query = new URLSearchParams(Object.entries(given).filter(([, value]) => value)).toString();
  if (location.pathname === path) history.replaceState(null, "", query ? `${path}?${query}` : path);
  return query && `?${query}`;
}

/** Return words that say why alerts are shown on the page only; they stay hidden where nothing keeps them from people.
 *  They come late, and are to be put where nothing moves by them. */
export function unsentLine() {
  const line = h("span", { class: "quiet why", role: "note", hidden: true });
  const fill = ({ problem }) => {
    line.hidden = !problem;
    line.textContent = line.title = `Alerts are shown on this page only: ${problem}. docs/alerts.md says how to configure one.`;
  };
  const asked = displayed().then(() => get("/deliveries/receivers")); // After what the view is opened for.
  asked.then(fill, () => {}); // A view that is shown without it lacks nothing else.
  return line;
}
