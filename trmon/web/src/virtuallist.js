// A long list of which only the lines in view, and a few around them, are in the document.

import { moving } from "./dom.js";

const AROUND = 8;

export class VirtualList {
  #views = new Map();
  #lines = [];
  #asked = 0;

  /** `made(line)` returns a view of a line: its `element`, and `show(line)`, which renders it; `seen(lines)` is called
   *  with the lines that are in the document, each time they may have changed. */
  constructor(body, made, seen) {
    Object.assign(this, { body, made, seen });
    this.moved = () => (this.#asked ||= requestAnimationFrame(() => this.#draw()));
    window.addEventListener("scroll", this.moved, { passive: true });
    window.addEventListener("resize", this.moved);
  }

  /** Stop following the window. */
  end() {
    cancelAnimationFrame(this.#asked);
    window.removeEventListener("scroll", this.moved);
    window.removeEventListener("resize", this.moved);
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

  /** Bring a line into view and focus its link or button. */
  focus(index) {
    const line = this.#lines[index];
    if (!line) return;
    const height = this.#height();
    const top = this.body.getBoundingClientRect().top + index * height;
    const above = (this.body.previousElementSibling?.getBoundingClientRect().bottom ?? 0) + height / 2;
    if (top < above) window.scrollBy(0, top - above);
    else if (top + height > window.innerHeight) window.scrollBy(0, top + 1.5 * height - window.innerHeight);
    this.#draw();
    this.#views.get(line.key)?.element.querySelector("a.run, button")?.focus({ preventScroll: true });
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
    moving(() => this.#put(elements));
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

  /** Put the elements in order, moving as few as possible. */
  #put(elements) {
    const kept = new Set(elements);
    for (const child of [...this.body.children]) if (!kept.has(child)) child.remove();
    elements.forEach((element, i) => {
      if (this.body.children[i] !== element) this.body.insertBefore(element, this.body.children[i] ?? null);
    });
  }
}
