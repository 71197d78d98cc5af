// The filters and the sort order of the fleet; both are kept in the address.

import { h } from "./dom.js";
import { COLUMNS } from "./fleetrow.js";

/** Return the controls; `changed` is called when a filter or the order changes. */
export function controls(changed) {
  return new Controls(changed);
}

class Controls {
  #offered = "";

  constructor(changed) {
    const given = new URLSearchParams(location.search);
    this.changed = changed;
    this.sort = given.get("sort") ?? "verdict";
    this.down = given.has("desc");
    this.text = this.#input(given.get("q") ?? "");
    this.lists = { project: select("project", given), owner: select("owner", given), tag: select("tag", given) };
    for (const list of Object.values(this.lists)) list.addEventListener("change", () => this.#choose(list));
    this.bar = h("div", { class: "row controls", role: "search" }, this.text, Object.values(this.lists));
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

  said(shown, all) {
    const by = this.sort === "verdict" ? "most urgent first" : `sorted by ${this.sort}`;
    return shown === all ? `${all} run${all === 1 ? "" : "s"} · ${by}` : `${shown} of ${all} runs · ${by}`;
  }

  /** Return the header of a column; a click sorts by it. */
  head(name) {
    const button = h("button", { class: "plain", onclick: () => this.#by(name, cell) }, name);
    const cell = h("th", { scope: "col", "aria-sort": this.#sorted(name), "data-name": name }, button);
    return cell;
  }

  #by(name, cell) {
    this.down = this.sort === name && !this.down;
    this.sort = name;
    for (const other of cell.parentElement.children) other.setAttribute("aria-sort", this.#sorted(other.dataset.name));
    this.#turned();
  }

  #sorted(name) {
    if (name !== this.sort) return "none";
    return this.down ? "descending" : "ascending";
  }

  #order() {
    const { key } = COLUMNS.find(({ name }) => name === this.sort) ?? COLUMNS[0];
    const sign = this.down ? -1 : 1;
    const heard = (run) => -(run.last_report_at ?? 0);
    return (a, b) => sign * compare(key(a), key(b)) || compare(heard(a), heard(b));
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
    const sorted = { sort: this.sort === "verdict" ? "" : this.sort, desc: this.down ? "1" : "", archived };
    const kept = Object.entries({ ...said, ...sorted }).filter(([, value]) => value);
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

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const set = (runs, values) => [...new Set(runs.flatMap(values).filter(Boolean))].sort();
const select = (name, given) => h("select", { "aria-label": name, "data-wanted": given.get(name) ?? "" });
const searched = (run) =>
  [run.project, run.run, run.owner, ...run.tags, run.verdict.kind, run.verdict.why].join(" ").toLowerCase();
