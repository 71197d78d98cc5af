// The palette: finds runs, rules, steps of the open run and views by name, from the keyboard or by touch.

import { compareAddress, get, keyOf, runPath, unanswered } from "./api.js";
import { fill, h } from "./dom.js";
import { step } from "./words.js";

const TYPING_MS = 80;
const MOST_RUNS = 8;
const MOST_RULES = 6;
const VIEWS = [
  ["Fleet", "/"],
  ["Alerts", "/alerts"],
  ["Archived runs", "/?archived=1"],
  ["API of this service", "/docs"],
];
const STEP = /^(?:step\s*)?(\d[\d,]*)$/i;

/** Open the palette. Args: compared: runs, given as { project, run }, to which the chosen run is added to compare; rest: the
 *  rest of the address of a comparison. */
export function openPalette({ compared = null, rest = "" } = {}) {
  const open = document.querySelector("dialog[open]");
  if (open) return open.matches(".palette") && open.close();
  const palette = new Palette(compared, rest);
  document.body.append(palette.dialog);
  palette.dialog.showModal();
  palette.find();
}

class Palette {
  #turn = 0;
  #rules = null;
  #at = 0;
  #typed = null;

  constructor(compared, rest) {
    Object.assign(this, { compared, rest });
    const label = compared ? "Add a run to the comparison" : "Find a run, a rule or a step";
    this.field = h("input", {
      type: "text",
      role: "combobox",
      "aria-label": label,
      "aria-expanded": "false",
      "aria-controls": "found",
      "aria-autocomplete": "list",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: label,
      oninput: () => (clearTimeout(this.#typed), (this.#typed = setTimeout(() => this.find(), TYPING_MS))),
      onkeydown: (event) => this.#key(event),
    });
    this.list = h("div", { role: "listbox", id: "found", "aria-label": "Found", hidden: true });
    this.said = h("p", { class: "quiet", role: "status" });
    this.dialog = h("dialog", { class: "palette", "aria-label": label }, this.field, this.list, this.said);
    this.dialog.addEventListener("click", ({ target }) => (target === this.dialog || target.closest("a")) && this.dialog.close());
    this.dialog.addEventListener("close", () => this.dialog.remove());
  }

  /** Find what the field names; what arrives for an earlier text is dropped. */
  async find() {
    const turn = ++this.#turn;
    const text = this.field.value.trim();
    const query = { search: text, limit: MOST_RUNS + (this.compared?.length ?? 0) };
    this.#rules ??= this.compared ? Promise.resolve([]) : get("/rules");
    try {
      const [{ items }, rules] = await Promise.all([get("/runs", query), this.#rules]);
      if (turn === this.#turn) this.#show(text, items, rules);
    } catch (error) {
      this.#rules = null;
      if (turn === this.#turn) this.said.textContent = error.message;
      unanswered(error);
    }
  }

  #show(text, runs, rules) {
    const words = text.toLowerCase().split(/\s+/);
    const has = (name) => words.every((word) => name.toLowerCase().includes(word));
    const places = this.compared ? [] : VIEWS.filter(([name]) => has(name)).map(([name, href]) => [name, href, "view"]);
    const named = rules.filter(({ name, title }) => text && has(`${name} ${title}`)).slice(0, MOST_RULES);
    const options = [
      ...this.#step(text),
      ...(text ? [] : places),
      ...this.#runs(runs),
      ...named.map(({ name, title }) => [title, `/rules/${encodeURIComponent(name)}`, "rule"]),
      ...(text ? places : []),
    ];
    fill(this.list, options.map(([name, href, kind], i) => option({ name, href, kind, i })));
    const none = text ? `Nothing is called ${text}.` : "No other run is there.";
    this.said.textContent = options.length ? "" : none;
    this.list.hidden = !options.length;
    this.field.setAttribute("aria-expanded", String(options.length > 0));
    this.#choose(0);
  }

  /** The step of the run that is open. */
  #step(text) {
    const [, number] = text.match(STEP) ?? [];
    const [, project, run] = location.pathname.match(/^\/runs\/([^/]+)\/([^/]+)$/) ?? [];
    if (!number || !run || this.compared) return [];
    const at = Number(number.replaceAll(",", ""));
    return [[`Step ${step(at)} of ${decodeURIComponent(project)}/${decodeURIComponent(run)}`, `${location.pathname}?step=${at}`, "step"]];
  }

  #runs(found) {
    const known = new Set(this.compared?.map(keyOf));
    const to = (run) => (this.compared ? compareAddress([...this.compared, run]) + this.rest : runPath(run.project, run.run));
    return found.filter((run) => !known.has(keyOf(run))).slice(0, MOST_RUNS).map((run) => [keyOf(run), to(run), run.state]);
  }

  #choose(at) {
    const options = [...this.list.children];
    this.#at = Math.max(0, Math.min(at, options.length - 1));
    options.forEach((one, i) => one.setAttribute("aria-selected", String(i === this.#at)));
    const chosen = options[this.#at];
    if (chosen) this.field.setAttribute("aria-activedescendant", chosen.id);
    else this.field.removeAttribute("aria-activedescendant");
    chosen?.scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    const last = this.list.children.length - 1;
    const to = { ArrowDown: this.#at === last ? 0 : this.#at + 1, ArrowUp: this.#at ? this.#at - 1 : last, PageDown: last, PageUp: 0 }[event.key];
    if (to === undefined && event.key !== "Enter") return;
    event.preventDefault();
    if (to !== undefined) this.#choose(to);
    else this.list.children[this.#at]?.click();
  }
}

/** A link, so that the page follows it as any other, also in a new tab. */
const option = ({ name, href, kind, i }) =>
  h("a", { role: "option", id: `found-${i}`, href, tabindex: "-1", "aria-selected": "false" }, h("span", { class: "cut" }, name), h("span", { class: "quiet" }, kind));
