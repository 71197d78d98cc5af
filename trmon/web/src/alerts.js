// The alerts view: firing alerts, acknowledgements, silences and past alerts.

import { action } from "./action.js";
import { all, get, send } from "./api.js";
import { now } from "./clock.js";
import { AlertRow } from "./alertrow.js";
import { silence } from "./dialogs.js";
import { h, moving } from "./dom.js";
import { follow } from "./following.js";
import { episode, leading } from "./incidents.js";
import { clock, plural, span } from "./words.js";

const REFRESH_MS = 2000;
const PAGE = 50;

export async function mountAlerts(stage, { live }) {
  const view = new AlertsView(stage);
  stage.title("Alerts");
  await view.read();
  const concerns = ({ kind }) => ["alert", "ack"].includes(kind);
  return follow(live, { concerns, read: () => view.read(), fail: stage.fail, refreshMs: REFRESH_MS });
}

class AlertsView {
  #asked = 0;
  #rows = new Map();

  constructor(stage) {
    this.stage = stage;
    this.limit = PAGE;
  }

  /** Read all firing alerts: the oldest of hundreds may be the most severe. */
  async read() {
    const turn = ++this.#asked;
    const [firing, past, silences] = await Promise.all([
      all("/alerts", { state: "firing" }),
      get("/alerts", { state: "resolved", limit: this.limit }),
      all("/silences"),
    ]);
    if (turn !== this.#asked) return;
    const known = [...firing, ...past.items];
    const [fires, resolved] = [leading(firing, known), leading(past.items, known)];
    for (const alert of [...fires, ...resolved]) this.#row(alert).show(alert);
    moving(() => this.#draw(fires, { ...past, items: resolved }, silences));
  }

  #draw(firing, past, silences) {
    const open = firing.filter((alert) => !alert.ack).length;
    const title = firing.length
      ? `${plural(firing.length, "alert")} ${firing.length === 1 ? "fires" : "fire"}, ${open} unacknowledged`
      : "No alert fires";
    this.stage.show(
      h(
        "header",
        { class: "row spread" },
        h("h1", {}, title),
        action("New silence", () => this.#silence()),
      ),
      firing.length > 0 && this.#table("Firing", sorted(firing)),
      silences.length > 0 && this.#silences(silences),
      past.items.length > 0 && this.#table("Resolved", past.items),
      past.next && h("p", {}, action("Show more", () => this.#more())),
      !firing.length &&
        !past.items.length &&
        h(
          "section",
          { class: "card empty quiet" },
          "No alert has fired yet. Built-in rules watch every run; docs/rules.md lists them and shows how to write your own.",
        ),
    );
  }

  #table(title, alerts) {
    const rows = alerts.map((alert) => this.#row(alert).element);
    const heads = ["severity", "alert", "run", "since", ""].map((name) => h("th", { scope: "col" }, name));
    return h(
      "section",
      { class: "alerts" },
      h("h2", {}, title),
      h("div", { class: "card scroll" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), rows)),
    );
  }

  /** Reuse the row of each alert so that an open history stays open. */
  #row(alert) {
    const key = episode(alert);
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
        action("End", () => this.#end(one)),
      ),
    );
    return h("section", { class: "alerts" }, h("h2", {}, "Silences"), h("ul", { class: "card silences" }, rows));
  }

  async #silence() {
    const matchers = ["project", "run", "rule", "owner"].map((label) => ({ label, value: "" }));
    if (await silence(matchers)) await this.read();
  }

  async #end(one) {
    await send("DELETE", `/silences/${one.id}`);
    await this.read();
  }

  #more() {
    this.limit += PAGE;
    return this.read();
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
  const seconds = now();
  return starts > seconds ? `from ${clock(starts)} for ${span(ends - starts)}` : `ends in ${span(ends - seconds)}`;
}
