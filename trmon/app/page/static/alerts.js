// Alerts: what fires, who has it, what is silenced, and what was.

import { get, send } from "./api.js";
import { AlertRow } from "./alertrow.js";
import { silence } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { clock, plural, span } from "./words.js";

const REFRESH_MS = 2000;
const PAGE = 50;

export async function mountAlerts(root, { live, fail }) {
  const view = new AlertsView(root);
  document.title = "Alerts · trmon";
  await view.read();
  const heard = ({ detail }) => ["alert", "ack"].includes(detail.kind) && view.changed();
  const back = () => live.state === "live" && view.changed();
  const timer = setInterval(() => view.refresh().catch((error) => error.status === 401 && fail(error)), REFRESH_MS);
  live.addEventListener("event", heard);
  live.addEventListener("state", back);
  return () => {
    clearInterval(timer);
    live.removeEventListener("event", heard);
    live.removeEventListener("state", back);
  };
}

class AlertsView {
  #isChanged = false;
  #rows = new Map();

  constructor(root) {
    this.root = root;
    this.limit = PAGE;
  }

  changed() {
    this.#isChanged = true;
  }

  async refresh() {
    if (!this.#isChanged) return;
    this.#isChanged = false;
    await this.read();
  }

  async read() {
    const [firing, past, silences] = await Promise.all([
      get("/alerts", { state: "firing", limit: 200 }),
      get("/alerts", { state: "resolved", limit: this.limit }),
      get("/silences"),
    ]);
    this.#draw(firing.items, past, silences.items);
  }

  #draw(firing, past, silences) {
    const open = firing.filter((alert) => !alert.ack).length;
    const title = firing.length
      ? `${plural(firing.length, "alert")} ${firing.length === 1 ? "fires" : "fire"}, ${open} not taken up`
      : "No alert fires";
    fill(
      this.root,
      h(
        "header",
        { class: "row spread" },
        h("h1", {}, title),
        h("button", { onclick: () => this.#silence() }, "New silence"),
      ),
      firing.length > 0 && this.#table("Firing", sorted(firing)),
      silences.length > 0 && this.#silences(silences),
      past.items.length > 0 && this.#table("Resolved", past.items),
      past.next && h("p", {}, h("button", { onclick: () => this.#more() }, "Show more")),
      !firing.length &&
        !past.items.length &&
        h(
          "section",
          { class: "card empty quiet" },
          "Nothing has fired yet. Built-in rules watch every run; docs/rules.md says which, and how to write your own.",
        ),
    );
  }

  #table(title, alerts) {
    const rows = alerts.map((alert) => this.#row(alert).show(alert));
    const heads = ["severity", "alert", "run", "since", ""].map((name) => h("th", { scope: "col" }, name));
    return h(
      "section",
      { class: "alerts" },
      h("h2", {}, title),
      h("div", { class: "card scroll" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), rows)),
    );
  }

  /** An alert keeps its row, so that a history that was opened stays open. */
  #row(alert) {
    const key = `${alert.identity}@${alert.attempt_id}:${alert.step}`;
    if (!this.#rows.has(key)) this.#rows.set(key, new AlertRow(() => this.read()));
    return this.#rows.get(key);
  }

  #silences(silences) {
    const rows = silences.map((one) =>
      h(
        "li",
        { class: "row" },
        h("code", {}, said(one)),
        h("span", { class: "quiet" }, `${left(one)}, by ${one.author}${one.note ? `: ${one.note}` : ""}`),
        h("button", { onclick: () => this.#end(one) }, "End"),
      ),
    );
    return h("section", { class: "alerts" }, h("h2", {}, "Silences"), h("ul", { class: "card silences" }, rows));
  }

  async #silence() {
    const matchers = ["project", "run", "rule", "owner"].map((label) => ({ label, value: "" }));
    if (await silence(matchers)) this.read();
  }

  async #end(one) {
    await send("DELETE", `/silences/${one.id}`);
    this.read();
  }

  #more() {
    this.limit += PAGE;
    this.read();
  }
}

const SEVERITIES = ["page", "warn", "info"];
const sorted = (alerts) =>
  [...alerts].sort(
    (a, b) => Boolean(a.ack) - Boolean(b.ack) || SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity),
  );
const said = ({ matchers, project }) =>
  [project && `project=${project}`, ...matchers.map((m) => `${m.label}${m.operator}${m.value}`)]
    .filter(Boolean)
    .join(", ");

function left({ starts_at: starts, ends_at: ends }) {
  const now = Date.now() / 1000;
  return starts > now ? `from ${clock(starts)} for ${span(ends - starts)}` : `ends in ${span(ends - now)}`;
}
