// The runbook of a run's problem: confirm, rule out, mitigate, verify, with its values and commands to paste.

import { get } from "./api.js";
import { copyButton, fill, h } from "./dom.js";
import { capital } from "./words.js";

const HASH = "#runbook"; // Links in messages lead here.

export class Runbook {
  element = h("details", { id: "runbook", "data-name": "runbook", hidden: true });
  #cause = null;
  #body = h("div", { class: "stack" });

  constructor(path) {
    this.path = path;
    const title = "Runbook: confirm, rule out, mitigate, verify";
    this.element.append(h("summary", { class: "quiet" }, title), this.#body);
    this.element.addEventListener("toggle", () => this.element.open && this.#read());
  }

  /** Show it while the run has a problem, by its cause; it is read when it is opened, and again for another cause. */
  show({ run, judged }) {
    const cause = judged.verdict.cause || (["stalled", "crashed"].includes(run.state) ? run.state : "");
    this.element.hidden = !cause;
    if (cause === this.#cause) return;
    this.#cause = cause;
    if (this.element.open) this.#read();
    else if (cause && location.hash === HASH) this.element.open = true;
  }

  async #read() {
    if (!this.#cause) return;
    fill(this.#body, stageList((await get(`${this.path}/runbook`)).stages, "h2"));
    if (location.hash === HASH) this.element.scrollIntoView({ block: "nearest" });
  }
}

/** The stages of a runbook, of a run or of a rule, under headings of a level. */
export const stageList = (stages, level) =>
  h(
    "ol",
    { class: "runbook stack" },
    stages.map(({ stage, lines, options, commands }) =>
      h(
        "li",
        { class: "stack" },
        h(level, {}, capital(stage)),
        lines.map((line) => h("p", {}, coded(line))),
        options.length > 0 && toPaste(options.join("\n"), `Copy the options to ${stage}`),
        commands.map((command) => toPaste(command, `Copy the command to ${stage}`)),
      ),
    ),
  );

/** How to read the worst answers of a run, with the command; folded where they are not recorded. */
export function answersLine(answers) {
  if (!answers) return null;
  const command = toPaste(answers.command, "Copy the command for the answers");
  if (answers.are_recorded) return [h("p", {}, h("span", { class: "strong" }, "Answers: "), answers.words), command];
  const summary = h("summary", { class: "quiet" }, "Answers: not recorded");
  return h("details", { "data-name": "answers" }, summary, h("p", {}, answers.words), command);
}

const toPaste = (text, label) =>
  h("div", { class: "paste" }, h("pre", { class: "config" }, text), copyButton("Copy", () => text, { "aria-label": label }));

/** Names between backquotes, as code. */
export const coded = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
