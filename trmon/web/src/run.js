// One run: diagnosis, charts, thresholds, and the sequences of a step.

import { ApiError, all, get, newestLast, orNothing, runPath } from "./api.js";
import { BudgetSection } from "./budgetsection.js";
import { Charts } from "./charts.js";
import { Course } from "./course.js";
import { DiagnosisCard } from "./diagnosis.js";
import { displayed, fill, h } from "./dom.js";
import { EventList } from "./eventlist.js";
import { follow } from "./following.js";
import { Heatmap } from "./heatmap.js";
import { notesList } from "./notes.js";
import { read, write } from "./permalink.js";
import { policiesCard } from "./policies.js";
import { policyHistory } from "./policyhistory.js";
import { RangeBar } from "./rangebar.js";
import { runHead } from "./runhead.js";
import { hasEnded } from "./runstate.js";
import { typing } from "./shortcuts.js";
import { lines } from "./skeleton.js";
import { StepPanel } from "./steppanel.js";
import { ThresholdEditor } from "./thresholdeditor.js";

const REFRESH_MS = 1500;
const POLICY_LINES = 8; // As tall as a policy with three shadows.

export async function mountRun(stage, { live, parameters: [project, run] }) {
  const view = new RunView(stage, project, run);
  stage.title(run);
  const after = view.begin();
  const concerns = ({ data }) => data.project === project && data.run === run;
  const stop = follow(live, { concerns, read: () => view.follow(), fail: stage.fail, refreshMs: REFRESH_MS, after });
  document.addEventListener("keydown", view.keys);
  const end = () => {
    stop();
    document.removeEventListener("keydown", view.keys);
    view.end();
  };
  try {
    await after;
  } catch (error) {
    end();
    throw error;
  }
  return end;
}

/** Requests that fail are repeated with the next update. */
function unanswered(error) {
  if (!(error instanceof ApiError)) throw error;
}

class RunView {
  constructor(stage, project, run) {
    Object.assign(this, { stage, project, run, path: runPath(project, run), given: read() });
    this.course = new Course(this.path, this.given);
    this.head = h("header", {});
    this.notes = h("section", { class: "notes", "aria-label": "Notes" });
    this.again = async () => this.#show(await this.#facts());
    const { again } = this;
    this.why = new DiagnosisCard(this.course, { open: (step) => this.open(step), again });
    this.budget = new BudgetSection(this.path);
    this.policies = h("section", { class: "card panel", "aria-label": "Policies" });
    this.charts = new Charts(this.course, (step) => this.open(step));
    this.heat = new Heatmap(this.course, (step) => this.open(step));
    this.editor = new ThresholdEditor(this.heat, this.course, { path: this.path, again });
    this.heat.element.append(this.editor.element);
    this.versions = h("div", { class: "history" });
    this.panel = new StepPanel(this.path, (step) => this.open(step));
    this.events = new EventList(this.course, (step) => this.open(step));
    this.bar = new RangeBar(this.course, (step) => this.open(step));
    this.keys = (event) => this.#key(event);
  }

  async begin() {
    const [facts] = await Promise.all([this.#facts(), this.course.learn()]);
    this.charts.takeRoom();
    fill(this.policies, lines(POLICY_LINES));
    this.stage.show(
      this.head,
      this.notes,
      this.why.announcement,
      this.why.element,
      this.bar.element,
      this.events.element,
      this.charts.element,
      h("div", { class: "lower" }, this.heat.element, h("div", { class: "stack" }, this.policies, this.versions)),
      this.budget.element,
      this.panel.element,
    );
    this.#judge(facts);
    await Promise.all([this.course.begin(), displayed()]);
    this.#show(facts);
    await this.charts.begin();
    this.heat.read();
    if (this.given.step !== null) this.open(this.given.step, { scroll: false });
  }

  /** Read what is new. */
  async follow() {
    const [facts] = await Promise.all([this.#facts(), this.course.follow()]);
    this.#show(facts);
    this.bar.draw();
    this.heat.follow();
    this.budget.follow();
  }

  /** Open a step's sequences, or close the panel with null. */
  async open(step, { scroll = true } = {}) {
    write({ step }, this.path);
    this.given.step = step;
    this.course.chosen = step;
    this.charts.redraw();
    this.bar.draw();
    await this.panel.show(step, this.given.attempt);
    if (scroll && step !== null) this.panel.element.scrollIntoView({ block: "nearest" });
  }

  end() {
    this.course.end();
    this.charts.end();
    this.heat.end();
    this.editor.end();
    this.why.end();
  }

  async #facts() {
    const { project, run, path } = this;
    const asked = {
      run: get(path),
      judged: get(`/fleet/${encodeURIComponent(project)}/${encodeURIComponent(run)}`),
      diagnosis: orNothing(get(`${path}/diagnosis`)),
      firing: all("/alerts", { project, run, state: "firing" }),
      resolved: newestLast("/alerts", { project, run, state: "resolved" }),
      policies: newestLast(`${path}/policy/history`),
      attempts: newestLast(`${path}/attempts`),
      notes: newestLast(`${path}/notes`),
      adaptation: get(`${path}/adaptation`),
    };
    const names = Object.keys(asked);
    const answers = await Promise.all(Object.values(asked));
    const { firing, resolved, ...facts } = Object.fromEntries(names.map((name, i) => [name, answers[i]]));
    return { ...facts, alerts: { items: [...firing, ...resolved] } };
  }

  /** Show what needs no series: who the run is, its verdict, the cause and what to do, and the events. */
  #judge(facts) {
    this.course.mark(facts);
    this.stage.over(hasEnded(facts.run));
    runHead(this.head, facts, this.given.attempt);
    notesList(this.notes, facts.notes, (step) => this.open(step));
    this.why.show(facts);
  }

  #show(facts) {
    this.#judge(facts);
    const { again } = this;
    policyHistory(this.versions, facts, { path: this.path, again });
    policiesCard(this.policies, facts, { course: this.course, path: this.path, again }).catch(unanswered);
    this.charts.outline(facts);
  }

  #key(event) {
    const by = { "[": -1, "]": 1 }[event.key];
    if (!by || typing(event.target) || !this.course.series.step.length) return;
    const step = this.given.step === null ? this.course.extent[1] : this.course.beside(this.given.step, by);
    this.open(step);
  }
}
