// The fleet: every run with its verdict, sorted by urgency.

import { firstOfFleet, get, isDue, keyOf, loaded } from "./api.js";
import { every, h, isNew, isShortcut } from "./dom.js";
import { claim, FLEET, fresh } from "./freshness.js";
import { answer, COLUMNS, Head, headline, isAhead, linesOf, newService, noneActive, Row } from "./fleetrows.js";
import { hasWords, keepInAddress, searchField, Selection, unsentLine, VirtualList } from "./lists.js";
import { RunNames } from "./names.js";
import { plural, step } from "./words.js";

const PAGE = 500;
const MOST_NAMED = 8; // Up to this many changed runs are requested by name; more are read as pages.
const REFRESH_MS = 2000;
const SLASH = 20; // Pixels between a project and a run, with what is rounded.

/** `beside` shows a run beside the fleet, where there is room for both. */
export async function mount(stage, { live, beside }) {
  const { signal } = stage;
  const fleet = new Fleet(stage, beside);
  await fleet.read();
  live.addEventListener("event", ({ detail }) => fleet.heard(keyOf(detail.data)), { signal });
  live.addEventListener("state", () => live.state === "live" && fleet.again(), { signal });
  every(REFRESH_MS, () => fleet.refresh(), signal);
  document.addEventListener("keydown", (event) => fleet.key(event), { signal });
  beside?.addEventListener("shown", () => fleet.isFramed && fleet.draw(), { signal });
}

class Fleet {
  runs = new Map();
  #changed = new Set();
  #readAt = 0;
  #turn = 0;
  #isReading = false;
  isFramed = false;
  names = new RunNames();
  #room = Infinity;
  #lines = [];
  #turned = new Set();
  #loading = null;

  constructor(stage, beside) {
    Object.assign(this, { stage, beside });
    this.title = h("h1", { class: "claim" });
    this.under = h("span", {});
    this.body = h("tbody", { role: "rowgroup" });
    this.selection = new Selection({ keyOf, itemsOf: ({ run }) => run ?? [], changed: () => this.draw() });
    this.every = h("input", {
      type: "checkbox",
      "aria-label": "Select every run that matches the filters",
      onchange: () => this.selection.put(this.matching, this.every.checked),
    });
    this.bar = h("div", {});
    const { signal } = stage;
    this.courses = new Courses({ arrived: (runs) => this.#drawn(runs), failed: (error) => this.#failed(error), signal });
    const told = { names: (run) => this.names.of(run), isShown: (run) => keyOf(run) === beside?.key };
    const made = (line) => (line.run ? new Row(this.selection, told) : new Head((key) => this.#toggle(key)));
    this.list = new VirtualList(this.body, { made, seen: (lines) => this.#seen(lines), signal });
    this.controls = new Controls(() => this.draw(), beside);
    signal.addEventListener("abort", () => this.#turn++);
  }

  /** Read everything: events may have been missed. */
  again() {
    this.#readAt = 0;
    this.refresh();
  }

  /** Read every page; the first is rendered before the second is requested. A later read takes the place of this one. */
  async read() {
    const turn = ++this.#turn;
    this.#isReading = true;
    try {
      await this.#readPages(turn);
    } finally {
      if (turn === this.#turn) this.#isReading = false;
    }
  }

  async #readPages(turn) {
    const isFirst = this.runs.size === 0;
    this.#readAt = Date.now();
    this.#changed.clear();
    const found = new Map();
    let after = null;
    do {
      const rest = { after, limit: PAGE, brief: true, archived: this.controls.isArchived || null };
      const page = await get("/fleet", isFirst && !after ? firstOfFleet() : rest);
      if (turn !== this.#turn) return;
      for (const run of page.items) found.set(keyOf(run), run);
      after = page.next;
      if (after && this.runs.size === 0) {
        await this.#show(new Map(found), turn);
        this.under.textContent = "loading more runs …";
      }
    } while (after);
    await this.#show(found, turn);
    if (isFirst && this.beside) this.list.reveal(this.#indexShown());
  }

  heard(key) {
    this.#changed.add(key);
  }

  /** Read what changed since, and the runs that the service had no time to compute. */
  async refresh() {
    if (fresh.level && this.isFramed) this.draw(); // Ages grow although nothing is read.
    if (this.#isReading || document.hidden) return; // A read of thousands of runs may last longer than the time between refreshes.
    const unseen = [...this.runs].filter(([, run]) => run.step !== null && !run.reward).map(([key]) => key);
    const wanted = new Set([...this.#changed, ...unseen]);
    for (const key of this.#ahead()) if (wanted.size < MOST_NAMED) wanted.add(key);
    try {
      if (wanted.size > MOST_NAMED || isDue(this.#readAt)) return await fresh.reading(() => this.read(), FLEET);
      if (wanted.size) await this.#readNamed(wanted);
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error) {
    fresh.missed(FLEET);
    if (error.status === 401) this.stage.fail(error);
  }

  /** Draw runs whose sparklines have arrived. */
  #drawn(found) {
    const known = found.filter((run) => this.runs.has(keyOf(run)));
    this.runs = new Map([...this.runs, ...known.map((run) => [keyOf(run), run])]);
    this.draw();
  }

  /** Return the runs that are further on than their verdicts; those first that no event will come of any more. */
  #ahead() {
    const ahead = [...this.runs].filter(([, run]) => run.behind || isAhead(run));
    return ahead.sort(([, a], [, b]) => a.last_report_at - b.last_report_at).map(([key]) => key);
  }

  /** Read some runs; a run that is not found any more, or was archived or taken back, leaves the list. */
  async #readNamed(keys) {
    const turn = ++this.#turn;
    this.#changed.clear();
    const found = new Map((await get("/fleet/named", { runs: [...keys].join() })).map((run) => [keyOf(run), run]));
    if (turn !== this.#turn) return;
    const runs = new Map(this.runs);
    for (const key of keys) {
      const run = found.get(key);
      if (run && run.archived === this.controls.isArchived) runs.set(key, run);
      else runs.delete(key);
    }
    await this.#show(runs, turn);
  }

  /** Show at once what a person changed, { key: new fields, or null for a deleted run }, then read it. */
  async #changedByHand(changes) {
    const runs = new Map(this.runs);
    for (const [key, change] of changes) {
      const run = change && { ...runs.get(key), owner: change.owner, tags: change.tags, archived: change.archived };
      if (run && run.archived === this.controls.isArchived) runs.set(key, run);
      else runs.delete(key);
    }
    await this.#show(runs, ++this.#turn);
    await this.read();
  }

  /** Read the sparklines of the lines in view, and fold names to the room that they have there. */
  #seen(lines) {
    this.courses.follow(lines.flatMap(({ run }) => run ?? []));
    const cell = this.body.querySelector('td[data-name="run"]');
    if (!cell?.clientWidth || cell.clientWidth === this.#room) return;
    this.#room = cell.clientWidth;
    this.#showLines([...this.runs.values()]);
  }

  async #show(runs, turn) {
    this.runs = this.courses.joined(runs);
    if (runs.size === 0) {
      this.isFramed = false;
      const archived = this.controls.isArchived || (await get("/fleet", { archived: true, limit: 1 })).items.length;
      if (turn !== this.#turn) return;
      return this.stage.show(archived ? noneActive(this.controls.isArchived) : newService(location.origin));
    }
    const isFirst = !this.isFramed;
    if (isFirst) this.#frame();
    this.draw();
    if (isFirst && this.matching.length > 0) this.beside?.suggest(this.matching[0]);
  }

  #frame() {
    this.isFramed = true;
    const all = h("th", { role: "columnheader", scope: "col", "data-name": "select" }, this.every);
    const heads = [all, ...COLUMNS.map((column) => this.controls.head(column))];
    const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": "1" }, heads));
    const table = h("table", { class: "fleet", role: "table", "aria-label": "Runs" }, head, this.body);
    this.none = h(
      "p",
      { class: "notice row", hidden: true },
      h("span", { class: "quiet" }, "No run matches these filters."),
      h("button", { onclick: () => this.controls.clear() }, "Show all runs"),
    );
    this.stage.show(
      h("header", {}, this.title, h("p", { class: "quiet oneline" }, this.under, unsentLine())),
      this.controls.bar,
      h("div", { class: "card" }, table, this.none),
      this.bar,
    );
  }

  /** Put the lines in order; unchanged lines are reused. */
  draw() {
    const runs = [...this.runs.values()];
    claim(this.title, answer(runs));
    this.stage.title(headline(runs));
    this.controls.offer(runs);
    const chosen = (this.matching = this.controls.chosen(runs));
    this.under.textContent = this.controls.said(chosen.length, runs.length);
    this.none.hidden = chosen.length > 0;
    const isByVerdict = this.controls.isByVerdict();
    this.#lines = linesOf(chosen, { group: this.controls.group.value, isByVerdict, turned: this.#turned });
    this.selection.follow(this.#lines, this.runs);
    this.selection.mark(this.every, chosen);
    this.#showLines(runs);
    this.#drawBulk();
  }

  /** Show the lines with names that are folded to the room that is known. */
  #showLines(runs) {
    this.names.take(runs, this.#room - SLASH);
    this.list.show(this.#lines);
  }

  /** Draw the bar of the selected runs, whose module is loaded with the first selection. */
  #drawBulk() {
    if (!this.bulk && this.selection.size) this.#loading ??= this.#loadBulk().finally(() => (this.#loading = null));
    if (!this.bulk) return;
    if (!this.bulk.element.isConnected) this.bar.replaceWith(this.bulk.element);
    this.bulk.draw(this.matching);
  }

  async #loadBulk() {
    const { BulkBar } = await loaded(import("./fleetbulk.js"));
    const changed = (runs) => this.#changedByHand(runs);
    this.bulk = new BulkBar(this.selection, { found: () => this.runs, changed });
    this.#drawBulk();
  }

  #toggle(key) {
    if (!this.#turned.delete(key)) this.#turned.add(key);
    this.draw();
  }

  /** Return the index of the line of the run beside the fleet; -1 for none. */
  #indexShown() {
    return this.list.indexWhere(({ run }) => run && keyOf(run) === this.beside?.key);
  }

  key(event) {
    const by = { j: 1, k: -1 }[event.key];
    if (!isShortcut(event)) return;
    if (event.key === "x") document.activeElement.closest("tbody tr")?.querySelector("[type=checkbox]")?.click();
    if (!by) return;
    const last = Number(this.body.parentElement?.getAttribute("aria-rowcount")) - 2;
    const focused = this.list.indexOf(document.activeElement);
    const at = focused < 0 ? this.#indexShown() : focused;
    this.list.focus(Math.min(Math.max(at + by, 0), last));
    if (document.activeElement.matches("a.run")) this.beside?.browse(document.activeElement.getAttribute("href"));
  }
}

const WAIT_MS = 80; // Rows that only fly past are not read.
const MOST = 60; // The most that one request may name.

class Courses {
  #known = new Map();
  #wanted = [];
  #timer = null;

  /** `arrived` is called once runs have got their sparklines; `failed` gets an error. */
  constructor({ arrived, failed, signal }) {
    Object.assign(this, { arrived, failed });
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /** Return runs with the sparklines that are known of them; those of an earlier step end in the newest value. */
  joined(runs) {
    for (const [key, run] of runs) if (!isBrief(run)) this.#known.set(key, run);
    return new Map([...runs].map(([key, run]) => [key, this.#joined(key, run)]));
  }

  /** Read the sparklines of runs in view that are not known, or of an earlier step. */
  follow(runs) {
    this.#wanted = runs.filter((run) => isBrief(run) || isOld(run)).slice(0, MOST);
    if (this.#wanted.length) this.#timer ??= setTimeout(() => this.#read(), WAIT_MS);
  }

  #joined(key, run) {
    const known = this.#known.get(key);
    if (!known || !isBrief(run)) return run;
    return { ...run, reward: continued(known.reward, run.reward), kl: continued(known.kl, run.kl) };
  }

  async #read() {
    try {
      const found = this.#wanted.length ? await get("/fleet/named", { runs: this.#wanted.map(keyOf).join() }) : [];
      for (const run of found) this.#known.set(keyOf(run), run);
      this.#timer = null;
      if (found.length) this.arrived(found);
    } catch (error) {
      this.#timer = null;
      this.failed(error);
    }
  }
}

/** Whether the sparklines of a run are of an earlier step than its newest values. */
const isOld = ({ judged_step: judged, reward, kl }) => judged > ((reward ?? kl)?.last_step ?? judged);

/** Return a sparkline with the newest value at its end. */
const continued = (known, brief) => known && brief && { ...known, values: [...known.values.slice(0, -1), ...brief.values] };

/** Whether a run has come without its sparklines. */
const isBrief = ({ reward, kl }) => [reward, kl].some((line) => line && line.values.length < 2 && line.first_step < line.last_step);

class Controls {
  /** `changed` is called when a filter or the order changes. */
  constructor(changed, beside) {
    const given = new URLSearchParams(location.pathname === "/" ? location.search : "");
    Object.assign(this, { changed, beside, isArchived: given.has("archived") });
    this.column = COLUMNS.find(({ name }) => name === given.get("sort")) ?? COLUMNS[0];
    this.isDown = given.has("order") ? given.get("order") === "desc" : this.column.isDown;
    this.text = searchField(given.get("q"), "Filter runs");
    this.text.addEventListener("input", () => this.#turned());
    this.lists = { project: select("project", given), owner: select("owner", given), tag: select("tag", given) };
    for (const list of Object.values(this.lists)) list.addEventListener("change", () => this.#choose(list));
    this.group = grouping(given.get("group") ?? "");
    this.group.addEventListener("change", () => this.#turned());
    this.bar = h("div", { class: "row controls", role: "search" }, this.text, Object.values(this.lists), this.group);
  }

  /** Offer the existing projects, owners and tags; a list with a single entry is hidden. */
  offer(runs) {
    const offered = {
      project: set(runs, (run) => [run.project]),
      owner: set(runs, (run) => [run.owner]),
      tag: set(runs, (run) => run.tags),
    };
    if (!isNew(this.bar, offered)) return;
    for (const [name, list] of Object.entries(this.lists)) {
      const chosen = list.dataset.wanted;
      const values = set([chosen, ...offered[name]], (value) => [value]);
      const options = values.map((value) => h("option", { value, selected: value === chosen }, value));
      list.replaceChildren(h("option", { value: "" }, `every ${name}`), ...options);
      list.hidden = offered[name].length < 2 && !chosen;
    }
  }

  /** Return the runs to show, in order. */
  chosen(runs) {
    const { project, owner, tag } = this.lists;
    const fits = (run) =>
      (!project.value || run.project === project.value) &&
      (!owner.value || run.owner === owner.value) &&
      (!tag.value || run.tags.includes(tag.value)) &&
      hasWords(this.text, searched(run));
    return runs.filter(fits).sort(this.#order());
  }

  /** Whether the most urgent runs come first. */
  isByVerdict() {
    return this.column === COLUMNS[0] && this.isDown;
  }

  /** Remove every filter. */
  clear() {
    this.text.value = "";
    for (const list of Object.values(this.lists)) list.value = list.dataset.wanted = "";
    this.#turned();
    this.text.focus();
  }

  said(shown, all) {
    const by = this.isByVerdict() ? "most urgent first" : `sorted by ${this.column.name}`;
    return shown === all ? `${plural(all, "run")} · ${by}` : `${step(shown)} of ${plural(all, "run")} · ${by}`;
  }

  /** Return the header of a column; a click sorts by it, the next one reverses the order. */
  head(column) {
    const button = h("button", { class: "plain", onclick: () => this.#by(column, cell) }, column.name);
    const sorted = this.#sorted(column.name);
    const cell = h("th", { role: "columnheader", scope: "col", "aria-sort": sorted, "data-name": column.name }, button);
    return cell;
  }

  #by(column, cell) {
    this.isDown = this.column === column ? !this.isDown : column.isDown;
    this.column = column;
    for (const other of cell.parentElement.children) other.setAttribute("aria-sort", this.#sorted(other.dataset.name));
    this.#turned();
  }

  #sorted(name) {
    if (name !== this.column.name) return "none";
    return this.isDown ? "descending" : "ascending";
  }

  #order() {
    const { key } = this.column;
    const sign = this.isDown ? -1 : 1;
    const heard = (run) => -(run.last_report_at ?? 0);
    return (a, b) => compare(key(a), key(b), sign) || compare(heard(a), heard(b), 1);
  }

  #choose(list) {
    list.dataset.wanted = list.value;
    this.#turned();
  }

  #turned() {
    const chosen = Object.entries(this.lists).map(([name, list]) => [name, list.value]);
    const said = { q: this.text.value, ...Object.fromEntries(chosen), group: this.group.value };
    const archived = this.isArchived ? "1" : "";
    const order = this.isDown === this.column.isDown ? "" : this.isDown ? "desc" : "asc";
    const sort = this.column === COLUMNS[0] ? "" : this.column.name;
    const query = keepInAddress("/", { ...said, sort, order, archived });
    if (this.beside) this.beside.query = query;
    this.changed();
  }
}

/** Compare two keys; null comes last in both orders. */
function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return sign * (a < b ? -1 : a > b ? 1 : 0);
}

function grouping(given) {
  const offered = [["", "no groups"], ...["project", "owner", "tag"].map((name) => [name, `by ${name}`])];
  const options = offered.map(([value, text]) => h("option", { value, selected: value === given }, text));
  return h("select", { "aria-label": "group" }, options);
}

const set = (runs, values) => [...new Set(runs.flatMap(values).filter(Boolean))].sort();
const select = (name, given) => h("select", { "aria-label": name, "data-wanted": given.get(name) ?? "" });
const searched = (run) =>
  [run.project, run.run, run.owner, ...run.tags, run.verdict.kind, run.verdict.why].join(" ");
