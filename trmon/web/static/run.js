// One run: diagnosis, charts, thresholds, and the sequences of a step.

import { compareAddress, dialogs, file, follow, get, hasEnded, loaded, runPath, WITH_PARTS } from "./api.js";
import { Charts, EventList, RangeBar } from "./charts.js";
import { ChartData, read, write } from "./chartdata.js";
import { DiagnosisCard } from "./diagnosis.js";
import { action, displayed, download, figures, fill, h, refill, typing } from "./dom.js";
import { ago, clock, plural, span, step } from "./words.js";

const REFRESH_MS = 1500;

export async function mount(stage, { live, parameters: [project, run] }) {
  const view = new RunView(stage, project, run);
  stage.title(run);
  const after = view.begin();
  const concerns = ({ data }) => data.project === project && data.run === run;
  follow(live, { stage, concerns, read: () => view.follow(), refreshMs: REFRESH_MS, age: () => view.age(), after });
  document.addEventListener("keydown", (event) => view.key(event), { signal: stage.signal });
  await after;
}

class RunView {
  constructor(stage, project, run) {
    Object.assign(this, { stage, project, run, path: runPath(project, run), given: read() });
    this.chartData = new ChartData(this.path, this.given, stage.signal);
    this.head = h("header", {});
    this.notes = h("section", { class: "notes", "aria-label": "Notes" });
    this.again = async () => this.#show(await this.#facts());
    const { again } = this;
    this.why = new DiagnosisCard(this.chartData, { open: (step) => this.open(step), again });
    this.charts = new Charts(this.chartData, (step) => this.open(step));
    this.below = h("div", { "aria-busy": "true" }, h("div", { class: "lower" }, figures(2)));
    this.events = new EventList(this.chartData, (step) => this.open(step));
    this.bar = new RangeBar(this.chartData, (step) => this.open(step));
  }

  async begin() {
    const [facts] = await Promise.all([this.#facts(), this.chartData.learn()]);
    this.chartData.mark(facts);
    this.charts.takeRoom();
    this.stage.show(
      ...[this.head, this.notes, this.why.announcement, this.why.element],
      ...[this.bar.element, this.events.element, this.charts.element, this.below],
    );
    this.#judge(facts);
    this.#offer(facts);
    await Promise.all([this.chartData.begin(), displayed()]);
    this.stage.signal.throwIfAborted();
    const module = loaded(import("./details.js"));
    this.#show(facts);
    await this.charts.begin();
    await this.#showDetails(await module, facts);
  }

  /** Open the dialog that the address asks for, as the links in messages do; only its button sends anything. */
  async #offer({ run, alerts }) {
    const given = new URLSearchParams(location.search);
    const [kind, named] = [given.get("action"), given.getAll("alert")];
    if (!["acknowledge", "silence"].includes(kind)) return;
    const { offered } = await dialogs();
    const isDone = await offered(kind, alerts.filter(({ identity }) => named.includes(identity)), run);
    write({ action: null, alert: null }, this.path);
    if (isDone) await this.again();
  }

  /** Show the details under the charts, whose modules are loaded after them. */
  async #showDetails({ Details }, facts) {
    this.stage.signal.throwIfAborted();
    const { chartData, again } = this;
    this.details = new Details(chartData, { again, open: (step) => this.open(step) });
    fill(this.below, this.details.elements);
    this.below.removeAttribute("aria-busy");
    this.details.show(facts);
    this.details.heat.read();
    if (this.given.step !== null) this.open(this.given.step, { scroll: false });
  }

  /** Render the ages of the facts anew. */
  age() {
    runHead(this.head, this.facts, this.given.attempt);
    this.why.age();
  }

  /** Read what is new. */
  async follow() {
    const facts = await this.#facts();
    this.chartData.mark(facts);
    await this.chartData.follow();
    this.#show(facts);
    this.bar.draw();
    this.details.follow();
  }

  /** Open a step's sequences, or close the panel with null. */
  async open(step, { scroll = true } = {}) {
    write({ step }, this.path);
    this.given.step = step;
    this.chartData.chosen = step;
    this.charts.redraw();
    this.bar.draw();
    await this.details?.panel.show(step, this.given.attempt);
    if (scroll && step !== null) this.details?.panel.element.scrollIntoView({ block: "nearest" });
  }

  async #facts() {
    const run = await get(this.path, WITH_PARTS);
    const { status: judged, diagnosis, adaptation } = run;
    const [policies, attempts, notes] = [run.policies, run.attempts, run.notes].map((items) => items.toReversed());
    const resolved = run.alerts.filter(({ state }) => state !== "firing").toReversed();
    const alerts = [...run.alerts.filter(({ state }) => state === "firing"), ...resolved];
    return { run, judged, diagnosis, alerts, policies, attempts, notes, adaptation };
  }

  /** Show what needs no series: who the run is, its verdict, the cause and what to do, and the events. */
  #judge(facts) {
    this.facts = facts;
    this.chartData.mark(facts);
    this.stage.over(hasEnded(facts.run));
    runHead(this.head, facts, this.given.attempt);
    notesList(this.notes, facts.notes, (step) => this.open(step));
    this.why.show(facts);
  }

  #show(facts) {
    this.#judge(facts);
    this.charts.outline(facts);
    this.details?.show(facts);
  }

  key(event) {
    const by = { "[": -1, "]": 1 }[event.key];
    if (!by || typing(event.target) || !this.chartData.series.step.length) return;
    const step = this.given.step === null ? this.chartData.extent[1] : this.chartData.beside(this.given.step, by);
    this.open(step);
  }
}

function runHead(head, { run, judged, attempts }, attempt) {
  const now = attempts.find(({ id }) => id === attempt) ?? attempts.at(-1);
  const pills = [attempts.length > 1 && `attempt ${now.ordinal}`, run.mode, run.state].filter(Boolean);
  const seconds = judged.expected_step_seconds;
  const facts = [
    run.project,
    run.last_step === null ? "no step yet" : `step ${step(run.last_step)}`,
    seconds && `${span(seconds)} a step`,
    now && plural(now.world_size, "rank"),
    run.owner && `owner ${run.owner}`,
    run.last_report_at && `last report ${ago(run.last_report_at)}`,
    run.tags.length > 0 && `tags ${run.tags.join(", ")}`,
  ];
  refill(
    head,
    h(
      "div",
      { class: "row" },
      h("h1", {}, run.run),
      pills.map((text) => h("span", { class: "pill" }, text)),
      attempts.length > 1 && chooser(attempts, now),
      h("a", { class: "button", href: compareAddress([run]), title: "with a sound run of this project" }, "Compare"),
      action("Share report", () => share(run), { title: "one HTML file: verdict, chartData, episodes; no configuration" }),
    ),
    h("p", { class: "quiet", title: `first report ${clock(run.created_at)}` }, facts.filter(Boolean).join(" · ")),
    ending(run),
    run.warnings.map(({ text }) => h("p", { class: "misuse" }, text)),
    config(run.config),
  );
}

function chooser(attempts, now) {
  const options = attempts.map((one) =>
    h("option", { value: one.id, selected: one.id === now.id }, `attempt ${one.ordinal}, ${clock(one.started_at)}`),
  );
  const go = (event) => location.assign(`${location.pathname}?attempt=${event.target.value}`);
  return h("select", { "aria-label": "Attempt", onchange: go }, options);
}

function ending({ end, end_phrase }) {
  if (!end_phrase) return null;
  const frames = end?.traceback;
  return [
    h("p", { class: "ending" }, end ? `${end_phrase}, ${ago(end.at)}` : end_phrase),
    frames && h("details", {}, h("summary", { class: "quiet" }, "innermost frames"), h("pre", { class: "config" }, frames)),
  ];
}

function config(given) {
  const rows = Object.entries(given);
  if (!rows.length) return null;
  const text = rows.map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join("\n");
  return h(
    "details",
    {},
    h("summary", { class: "quiet" }, `configuration, ${plural(rows.length, "entry", "entries")}`),
    h("pre", { class: "config" }, text),
  );
}

async function share({ project, run }) {
  download(await file(`${runPath(project, run)}/report.html`), `${project}-${run}.html`);
}

const SHOWN = 5;

/** Show notes, given oldest first; `open` opens the step of one. */
function notesList(element, notes, open) {
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
