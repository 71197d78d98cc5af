// The filters and the sort order of the fleet; both are kept in the address.

import { h } from "./dom.js";
import { COLUMNS } from "./fleetrow.js";
import { plural, step } from "./words.js";

/** Return the controls; `changed` is called when a filter or the order changes. */
export function controls(changed) {
  return new Controls(changed);
}

class Controls {
  #offered = "";

  constructor(changed) {
    const given = new URLSearchParams(location.search);
    this.changed = changed;
    this.column = COLUMNS.find(({ name }) => name === given.get("sort")) ?? COLUMNS[0];
    this.isDown = given.has("order") ? given.get("order") === "desc" : this.column.isDown;
    this.text = this.#input(given.get("q") ?? "");
    this.lists = { project: select("project", given), owner: select("owner", given), tag: select("tag", given) };
    for (const list of Object.values(this.lists)) list.addEventListener("change", () => this.#choose(list));
    this.group = grouping(given.get("group") ?? "");
    this.group.addEventListener("change", () => this.#turned());
    this.bar = h("div", { class: "row controls", role: "search" }, this.text, Object.values(this.lists), this.group);
  }

  archived() {
    return new URLSearchParams(location.search).has("archived");
  }

  /** Offer the existing projects, owners and tags; a list with a single entry is hidden. */
  offer(runs) {
    const offered = {
      project: set(runs, (run) => [run.project]),
      owner: set(runs, (run) => [run.owner]),
      tag: set(runs, (run) => run.tags),
    };
    if (JSON.stringify(offered) === this.#offered) return;
    this.#offered = JSON.stringify(offered);
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
    const words = this.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) =>
      (!project.value || run.project === project.value) &&
      (!owner.value || run.owner === owner.value) &&
      (!tag.value || run.tags.includes(tag.value)) &&
      words.every((word) => searched(run).includes(word));
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
    const said = {
      q: this.text.value,
      project: this.lists.project.value,
      owner: this.lists.owner.value,
      tag: this.lists.tag.value,
    };
    const archived = this.archived() ? "1" : "";
    const order = this.isDown === this.column.isDown ? "" : this.isDown ? "desc" : "asc";
    const sort = this.column === COLUMNS[0] ? "" : this.column.name;
    const kept = Object.entries({ ...said, group: this.group.value, sort, order, archived }).filter(([, value]) => value);
    const query = new URLSearchParams(kept).toString();
    history.replaceState(null, "", query ? `/?${query}` : "/");
    this.changed();
  }

  #input(value) {
    const field = h("input", {
      type: "search",
      value,
      placeholder: "Filter runs",
      "aria-label": "Filter runs",
      "data-filter": true,
    });
    field.addEventListener("input", () => this.#turned());
    return field;
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
  [run.project, run.run, run.owner, ...run.tags, run.verdict.kind, run.verdict.why].join(" ").toLowerCase();
