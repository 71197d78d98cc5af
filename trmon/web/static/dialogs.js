// The dialogs that acknowledge and silence alerts.

import { send, token } from "./api.js";
import { fill, h, refusal } from "./dom.js";
import { capital, clock, hour, plural, step } from "./words.js";

const PREVIEW_MS = 250;
const NAMED = 5;
const AUTHOR = "trmon.author";
const HOURS = [
  ["2", "2 hours"],
  ["8", "8 hours"],
  ["24", "1 day"],
  ["168", "1 week"],
];

/** Open the dialog of an action on alerts of a run, as a link in a message asks; resolves to true once a person has acted. */
export function offered(kind, alerts, { project, run }) {
  const firing = alerts.filter(({ state }) => state === "firing");
  const open = firing.filter(({ ack }) => !ack);
  if (!firing.length) return asked(`Nothing to ${kind}`, alerts.length ? alerts.map(over) : h("p", {}, "The alert is over."), null);
  if (kind === "acknowledge") return acknowledge(open.length ? open : firing);
  const rule = firing.length === 1 ? (firing[0].labels.cause ?? firing[0].rule) : "";
  return silence({ project, run, rule });
}

const over = ({ title, updated_at: at }) => h("p", {}, `${capital(title)} is over since ${clock(at)}.`);

const held = ({ title, ack }) => ack && h("p", {}, `${ack.author} has ${title} since ${hour(ack.at)}${ack.note ? `: ${ack.note}` : ""}`);

/** Ask for an author and a note; resolves to true once the alerts are acknowledged. */
export function acknowledge(alerts) {
  const isTaken = alerts.every(({ ack }) => ack);
  const note = h("textarea", { rows: 3, maxlength: 2000, placeholder: "Looking at the weight sync" });
  const title = `Acknowledge ${alerts.map(({ title }) => title).join(", ")}`;
  const told = alerts.map(({ summary }) => h("p", { class: "quiet" }, summary));
  const fields = [told, alerts.map(held), author(), h("label", {}, "Note", note)];
  return asked(title, fields, isTaken ? "Take over" : "Acknowledge", (form) => {
    const word = { author: said(form), note: note.value };
    return Promise.all(alerts.map(({ identity }) => send("POST", `/alerts/${encodeURIComponent(identity)}/ack`, word)));
  });
}

/** Ask for a duration and for matchers, which begin as given, by label; resolves to true once the silence is created. */
export function silence(labels) {
  const fields = Object.entries(labels).map(([label, value]) => matcher(label, value));
  const preview = h("div", { role: "status", class: "preview" });
  const seen = previews(preview, () => request(fields, 3600));
  for (const field of fields) field.addEventListener("input", seen);
  seen();
  const hours = h("select", {}, HOURS.map(([value, text]) => h("option", { value }, text)));
  const note = h("input", { maxlength: 2000 });
  const rest = [preview, h("label", {}, "For", hours), author(), h("label", {}, "Note", note)];
  return asked("Silence alerts that match every label", [...fields, ...rest], "Silence", (form) =>
    send("POST", "/silences", { ...request(fields, hours.value * 3600), author: said(form), note: note.value }),
  );
}

/** Return the request of a silence; a project's name limits it to that project. */
function request(fields, seconds) {
  const matchers = fields.map(matched).filter(({ value }) => value);
  const { value: project } = matchers.find(({ label, operator }) => label === "project" && operator === "=") ?? {};
  const rest = matchers.filter(({ label }) => label !== "project");
  return project && rest.length ? { project, matchers: rest, seconds } : { matchers, seconds };
}

/** Return a function that asks the service, once typing pauses, which alerts a silence would mute. */
function previews(element, asked) {
  let turn = 0;
  return async () => {
    const mine = ++turn;
    await new Promise((done) => setTimeout(done, PREVIEW_MS));
    const given = asked();
    if (mine !== turn) return;
    if (!given.matchers.length) return fill(element, "Fill in at least one field.");
    try {
      const { total, items } = await send("POST", "/silences/preview", given);
      if (mine !== turn) return;
      const names = items.slice(0, NAMED).map((one) => h("li", {}, `${one.project}/${one.run}: ${one.title}`));
      const more = total > names.length && h("li", {}, `and ${step(total - names.length)} more`);
      fill(element, total ? `Mutes ${plural(total, "firing alert")} now:` : "Mutes no alert that fires now.", h("ul", {}, names, more));
    } catch (error) {
      if (mine === turn) fill(element, refusal(error));
    }
  };
}

function matcher(label, value) {
  return h(
    "label",
    { "data-label": label },
    `${label} (shell pattern; empty: any)`,
    h("input", { value, maxlength: 256 }),
  );
}

function matched(field) {
  const value = field.querySelector("input").value.trim();
  return { label: field.dataset.label, operator: /[*?[]/.test(value) ? "~" : "=", value };
}

/** The field for the author of a note, with the name given last. */
export function author() {
  const kept = localStorage.getItem(AUTHOR) ?? "";
  const placeholder = token.get() ? "the token's name is shown, too" : "your name";
  return h("label", {}, "Who", h("input", { name: "author", value: kept, maxlength: 128, placeholder }));
}

/** Return the author in a form, and remember the name; null for none. */
export function said(form) {
  const name = form.elements.author.value.trim();
  localStorage.setItem(AUTHOR, name);
  return name || null;
}

/** Ask with fields; resolves to true once `act(form)` has succeeded. An error is shown, and the dialog stays open. With
 *  `action` null there is nothing to do but to close it. */
export function asked(title, fields, action, act) {
  return new Promise((answer) => {
    const problem = h("p", { role: "alert", class: "strong" });
    let isActing = false;
    const submit = async (event) => {
      event.preventDefault();
      if (isActing) return;
      isActing = true;
      try {
        await act(form);
        dialog.close("done");
      } catch (error) {
        problem.textContent = refusal(error);
      } finally {
        isActing = false;
      }
    };
    const buttons = h(
      "div",
      { class: "row" },
      action && h("button", { class: "main" }, action),
      h("button", { type: "button", onclick: () => dialog.close() }, action ? "Cancel" : "Close"),
    );
    const form = h("form", { onsubmit: submit }, h("h2", {}, title), fields, problem, buttons);
    const dialog = h("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => (dialog.remove(), answer(dialog.returnValue === "done")));
    document.body.append(dialog);
    dialog.showModal();
    // A field in focus would open the keyboard of a phone over what is asked.
    if (matchMedia("(pointer: coarse)").matches) buttons.firstElementChild.focus();
  });
}
