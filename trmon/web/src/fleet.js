// The fleet: every run with its verdict, sorted by urgency.

import { get, orNothing } from "./api.js";
import { fill, h } from "./dom.js";
import { answer, headline, newService } from "./fleetanswer.js";
import { COLUMNS, Row } from "./fleetrow.js";
import { controls } from "./fleetcontrols.js";

const FIRST = 25; // Enough runs to fill a screen; the service may have to compute each of them.
const MOST_SINGLY = 8; // Up to this many changed runs are requested one by one; more are read as pages.
const REFRESH_MS = 2000;
const EVERY_MS = 30_000;

export async function mountFleet(stage, { live }) {
  const fleet = new Fleet(stage);
  await fleet.read();
  const heard = ({ detail }) => fleet.heard(`${detail.data.project}/${detail.data.run}`);
  const back = () => live.state === "live" && fleet.read().catch(() => {});
  live.addEventListener("event", heard);
  live.addEventListener("state", back);
  const timer = setInterval(() => fleet.refresh(), REFRESH_MS);
  document.addEventListener("keydown", fleet.keys);
  return () => {
    clearInterval(timer);
    live.removeEventListener("event", heard);
    live.removeEventListener("state", back);
    document.removeEventListener("keydown", fleet.keys);
  };
}

class Fleet {
  runs = new Map();
  rows = new Map();
  #changed = new Set();
  #readAt = 0;

  constructor(stage) {
    this.stage = stage;
    this.title = h("h1", {});
    this.under = h("p", { class: "quiet" });
    this.body = h("tbody", {});
    this.controls = controls(() => this.draw());
    this.keys = (event) => this.#key(event);
  }

  /** Read every page; the first is rendered before the second is requested. */
  async read() {
    const isFirst = this.runs.size === 0;
    this.#readAt = Date.now();
    this.#changed.clear();
    const found = new Map();
    let after = null;
    do {
      const limit = isFirst && !after ? FIRST : null;
      const page = await get("/fleet", { after, limit, archived: this.controls.archived() || null });
      for (const run of page.items) found.set(`${run.project}/${run.run}`, run);
      after = page.next;
      if (after && this.runs.size === 0) {
        this.#show(new Map(found));
        this.under.textContent = "loading more runs …";
      }
    } while (after);
    this.#show(found);
  }

  heard(key) {
    this.#changed.add(key);
  }

  /** Read what changed since, and the runs that the service had no time to compute. */
  async refresh() {
    const unseen = [...this.runs].filter(([, run]) => run.step !== null && !run.reward).map(([key]) => key);
    const wanted = new Set([...this.#changed, ...unseen]);
    try {
      if (wanted.size > MOST_SINGLY || Date.now() - this.#readAt > EVERY_MS) return await this.read();
      if (wanted.size) await this.#readSingly(wanted);
    } catch (error) {
      if (error.status === 401) this.stage.fail(error);
    }
  }

  async #readSingly(keys) {
    this.#changed.clear();
    const found = await Promise.all([...keys].map((key) => orNothing(get(`/fleet/${key}`))));
    const runs = new Map(this.runs);
    for (const run of found.filter(Boolean)) runs.set(`${run.project}/${run.run}`, run);
    this.#show(runs);
  }

  #show(runs) {
    const first = this.runs.size === 0;
    this.runs = runs;
    if (runs.size === 0) return this.stage.show(newService(location.origin));
    if (first) this.#frame();
    this.draw();
  }

  #frame() {
    const heads = COLUMNS.map(({ name, key }) => this.controls.head(name, key));
    const table = h("table", { class: "fleet" }, h("thead", {}, h("tr", {}, heads)), this.body);
    this.stage.show(
      h("header", {}, this.title, this.under),
      this.controls.bar,
      h("div", { class: "card scroll" }, table),
    );
  }

  /** Put the rows in order; unchanged rows are reused. */
  draw() {
    const runs = [...this.runs.values()];
    this.title.textContent = answer(runs);
    this.stage.title(headline(runs));
    this.controls.offer(runs);
    const chosen = this.controls.chosen(runs);
    this.under.textContent = this.controls.said(chosen.length, runs.length);
    const rows = chosen.map((run) => this.#row(run).element);
    if (rows.length !== this.body.children.length || rows.some((row, i) => row !== this.body.children[i]))
      fill(this.body, rows);
  }

  #row(run) {
    const key = `${run.project}/${run.run}`;
    if (!this.rows.has(key)) this.rows.set(key, new Row());
    const row = this.rows.get(key);
    row.show(run);
    return row;
  }

  #key(event) {
    const by = { j: 1, k: -1 }[event.key];
    if (!by || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const links = [...this.body.querySelectorAll("a.run")];
    const at = links.indexOf(document.activeElement);
    links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
  }
}
