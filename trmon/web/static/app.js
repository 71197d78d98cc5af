// src/dom.js
var FOCUSED = "a, button, input, select, textarea, summary, [tabindex]";
function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}
function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}
function fill(element, ...children) {
  const had = document.activeElement;
  const at = [...element.querySelectorAll(FOCUSED)].indexOf(had);
  element.replaceChildren(...flat(children));
  if (at < 0) return element;
  const has = element.contains(had) ? had : element.querySelectorAll(FOCUSED)[at];
  has?.focus({ preventScroll: true });
  return element;
}
function refill(element, ...children) {
  const selection = document.getSelection();
  if (!selection.isCollapsed && selection.containsNode(element, true)) return later(element, children);
  waiting.delete(element);
  const opened = new Map([...element.querySelectorAll("details")].map((one) => [named(one), one.open]));
  fill(element, ...children);
  for (const one of element.querySelectorAll("details")) one.open = opened.get(named(one)) ?? one.open;
  return element;
}
var waiting = /* @__PURE__ */ new Map();
var named = (details) => details.dataset.name ?? details.querySelector("summary").textContent;
function later(element, children) {
  if (!waiting.size) document.addEventListener("selectionchange", showWaiting);
  waiting.set(element, children);
  return element;
}
function showWaiting() {
  if (!document.getSelection().isCollapsed) return;
  document.removeEventListener("selectionchange", showWaiting);
  for (const [element, children] of [...waiting]) refill(element, ...children);
}
function moving(draw) {
  const had = document.activeElement;
  draw();
  if (had !== document.body && had.isConnected) had.focus({ preventScroll: true });
}
function filled(element, properties, children) {
  for (const [name2, value] of Object.entries(properties)) {
    if (name2.startsWith("on")) element.addEventListener(name2.slice(2), value);
    else if (value === true) element.setAttribute(name2, "");
    else if (value !== false && value !== null && value !== void 0) element.setAttribute(name2, value);
  }
  element.append(...flat(children));
  return element;
}
function flat(children) {
  return children.flat(3).filter((child) => child !== null && child !== void 0 && child !== false);
}

// src/action.js
function action(text, act, given = {}) {
  const problem = h("span", { role: "alert", class: "strong" });
  let isActing = false;
  const onclick = async () => {
    if (isActing) return;
    isActing = true;
    problem.textContent = "";
    try {
      await act();
    } catch (error) {
      problem.textContent = refusal(error);
    } finally {
      isActing = false;
    }
  };
  return [h("button", { ...given, onclick }, text), problem];
}
var refusal = (error) => error.status === 403 ? "This token is read-only." : error.message;

// src/clock.js
var TOLERATED_MS = 5e3;
var aheadMs = 0;
function learn(date) {
  const off = Date.parse(date) - Date.now();
  if (!Number.isNaN(off)) aheadMs = Math.abs(off) > TOLERATED_MS ? off : 0;
}
var now = () => (Date.now() + aheadMs) / 1e3;

// src/api.js
var TOKEN = "trmon.token";
var NEWEST = 200;
var PAGE = 1e3;
var ApiError = class extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
};
var Reach = class extends EventTarget {
  #isAnswered = true;
  #isShown = true;
  get isGood() {
    return this.#isAnswered && this.#isShown;
  }
  /** Record whether a request got an answer at all. */
  answered(isAnswered) {
    this.#isAnswered = isAnswered;
    this.dispatchEvent(new Event("change"));
  }
  /** Record whether the view is shown, rather than an error in its place. */
  shown(isShown) {
    this.#isShown = isShown;
    this.dispatchEvent(new Event("change"));
  }
};
var reach = new Reach();
var token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  clear: () => sessionStorage.removeItem(TOKEN)
};
function headers(more = {}) {
  const kept2 = token.get();
  return kept2 ? { ...more, Authorization: `Bearer ${kept2}` } : more;
}
function get(path3, query = {}, { signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== void 0);
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return ask(`/api/v1${path3}${search}`, { headers: headers(), signal });
}
var file = (path3) => ask(`/api/v1${path3}`, { headers: headers() }, (answer2) => answer2.blob());
async function newestLast(path3, query = {}) {
  const { items } = await get(path3, { ...query, limit: NEWEST });
  return items.reverse();
}
var all = async (path3, query = {}) => (await upTo(Infinity, path3, query)).items;
async function upTo(n, path3, query = {}) {
  const items = [];
  let after = null;
  do {
    const page = await get(path3, { ...query, after, limit: Math.min(PAGE, n - items.length) });
    items.push(...page.items);
    after = page.next;
  } while (after && items.length < n);
  return { items, hasMore: after !== null };
}
function send(method, path3, body) {
  const given = body === void 0 ? {} : { body: JSON.stringify(body) };
  return ask(`/api/v1${path3}`, { method, headers: headers({ "Content-Type": "application/json" }), ...given });
}
async function orNothing(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}
async function ask(url, options, read3 = (answer2) => answer2.json()) {
  try {
    const answer2 = await fetch(url, options);
    reach.answered(true);
    learn(answer2.headers.get("date"));
    if (answer2.status === 204) return null;
    if (answer2.ok) return await read3(answer2);
    throw await refusal2(answer2);
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    reach.answered(false);
    throw new ApiError(0, "The service does not respond.");
  }
}
async function refusal2(answer2) {
  const said4 = await answer2.json().catch(() => ({}));
  return new ApiError(answer2.status, said4.detail || said4.title || `The service responded with status ${answer2.status}.`);
}
var runPath = (project, run2) => `/runs/${encodeURIComponent(project)}/${encodeURIComponent(run2)}`;

// src/words.js
function number(value, digits = 3) {
  if (value === null || value === void 0 || Number.isNaN(value)) return "–";
  if (typeof value === "string") return value;
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return Number(value.toPrecision(digits)).toExponential().replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return size >= 1e3 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}
var step = (value) => value === null || value === void 0 ? "–" : value.toLocaleString("en");
function percent(value) {
  if (value === null || value === void 0 || typeof value === "string") return "–";
  if (value > 0 && value < 0.01) return "<1%";
  return `${Math.round(value * 100)}%`;
}
function span(seconds) {
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60]
  ]) {
    if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  }
  if (seconds >= 1) return `${Math.round(seconds)} s`;
  return seconds >= 0.1 ? `${Number(seconds.toPrecision(1))} s` : "under 0.1 s";
}
function ago(at) {
  if (at === null) return "never";
  const seconds = now() - at;
  return seconds < 1 ? "now" : `${span(seconds)} ago`;
}
var TIME = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" };
var DATE = { year: "numeric", month: "short", day: "numeric" };
var clock = (at) => new Date(at * 1e3).toLocaleString([], { ...DATE, ...TIME });
function hour(at) {
  const isToday = new Date(at * 1e3).toDateString() === new Date(now() * 1e3).toDateString();
  return isToday ? new Date(at * 1e3).toLocaleTimeString([], TIME) : clock(at);
}
var zone = (at) => new Intl.DateTimeFormat([], TIME).formatToParts(at * 1e3).find(({ type }) => type === "timeZoneName").value;
var plural = (n, one, many = `${one}s`) => `${step(n)} ${n === 1 ? one : many}`;
var kindWords = (kind) => capital(kind.replaceAll("_", " "));
var capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// src/dialogs.js
var PREVIEW_MS = 250;
var NAMED = 5;
var AUTHOR = "trmon.author";
var HOURS = [
  ["2", "2 hours"],
  ["8", "8 hours"],
  ["24", "1 day"],
  ["168", "1 week"]
];
function acknowledge(alerts2) {
  const note = h("textarea", { rows: 3, maxlength: 2e3, placeholder: "Looking at the weight sync" });
  const title = `Acknowledge ${alerts2.map(({ title: title2 }) => title2).join(", ")}`;
  return asked(title, [author(), h("label", {}, "Note", note)], "Acknowledge", (form) => {
    const word = { author: said(form), note: note.value };
    return Promise.all(alerts2.map(({ identity }) => send("POST", `/alerts/${encodeURIComponent(identity)}/ack`, word)));
  });
}
function silence(matchers, project) {
  const given = project ? [{ label: "project", value: project }, ...matchers] : matchers;
  const fields = given.map(({ label, value }) => matcher(label, value));
  const preview = h("div", { role: "status", class: "preview" });
  const seen2 = previews(preview, () => request(fields, 3600));
  for (const field of fields) field.addEventListener("input", seen2);
  seen2();
  const hours = h(
    "select",
    {},
    HOURS.map(([value, text]) => h("option", { value }, text))
  );
  const note = h("input", { maxlength: 2e3 });
  const rest = [preview, h("label", {}, "For", hours), author(), h("label", {}, "Note", note)];
  return asked(
    "Silence alerts that match every label",
    [...fields, ...rest],
    "Silence",
    (form) => send("POST", "/silences", { ...request(fields, hours.value * 3600), author: said(form), note: note.value })
  );
}
function request(fields, seconds) {
  const matchers = fields.map(matched).filter(({ value }) => value);
  const { value: project } = matchers.find(({ label, operator }) => label === "project" && operator === "=") ?? {};
  const rest = matchers.filter(({ label }) => label !== "project");
  return project && rest.length ? { project, matchers: rest, seconds } : { matchers, seconds };
}
function previews(element, asked2) {
  let turn2 = 0;
  return async () => {
    const mine = ++turn2;
    await new Promise((done) => setTimeout(done, PREVIEW_MS));
    const given = asked2();
    if (mine !== turn2) return;
    if (!given.matchers.length) return fill(element, "Fill in at least one field.");
    try {
      const { total, items } = await send("POST", "/silences/preview", given);
      if (mine !== turn2) return;
      const names2 = items.slice(0, NAMED).map((one) => h("li", {}, `${one.project}/${one.run}: ${one.rule.replaceAll("_", " ")}`));
      const more = total > names2.length && h("li", {}, `and ${step(total - names2.length)} more`);
      fill(element, total ? `Mutes ${plural(total, "firing alert")} now:` : "Mutes no alert that fires now.", h("ul", {}, names2, more));
    } catch (error) {
      if (mine === turn2) fill(element, refusal(error));
    }
  };
}
function matcher(label, value) {
  return h(
    "label",
    { "data-label": label },
    `${label} (shell pattern; empty: any)`,
    h("input", { value, maxlength: 256 })
  );
}
function matched(field) {
  const value = field.querySelector("input").value.trim();
  return { label: field.dataset.label, operator: /[*?[]/.test(value) ? "~" : "=", value };
}
function author() {
  const kept2 = localStorage.getItem(AUTHOR) ?? "";
  return h("label", {}, "Who", h("input", { name: "author", value: kept2, maxlength: 128, placeholder: "your name" }));
}
function said(form) {
  const name2 = form.elements.author.value.trim();
  localStorage.setItem(AUTHOR, name2);
  return name2 || null;
}
function asked(title, fields, action2, act) {
  return new Promise((answer2) => {
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
      h("button", { class: "main" }, action2),
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")
    );
    const form = h("form", { onsubmit: submit }, h("h2", {}, title), fields, problem, buttons);
    const dialog = h("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => (dialog.remove(), answer2(dialog.returnValue === "done")));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// src/alertbulk.js
var MOST = 500;
var NAMED2 = 100;
var AlertBulk = class {
  #failed = null;
  #drawn = "";
  /** `again` reads the alerts again. */
  constructor(selection, again) {
    this.selection = selection;
    this.again = again;
    this.count = h("p", { role: "status", class: "strong" });
    this.buttons = h("div", { class: "row" });
    this.result = h("div", { role: "alert" });
    const line4 = h("div", { class: "row" }, this.count, this.buttons);
    this.element = h("section", { class: "card selected", "aria-label": "Selected alerts", hidden: true }, line4, this.result);
  }
  /** Render. Args: firing: all firing alerts; matching: those that match the filters. */
  draw(firing, matching) {
    this.chosen = firing.filter((alert) => this.selection.has(alert));
    const hidden = this.chosen.filter((alert) => !matching.includes(alert)).length;
    const isEvery = matching.every((alert) => this.selection.has(alert));
    const n = this.chosen.length;
    this.element.hidden = n === 0 && !this.#failed;
    const now2 = JSON.stringify([n, hidden, isEvery, matching.length]);
    if (now2 === this.#drawn) return;
    this.#drawn = now2;
    this.count.textContent = `${plural(n, "alert")} selected${hidden ? `, ${step(hidden)} not shown` : ""}`;
    const every = () => this.selection.set([.../* @__PURE__ */ new Set([...this.chosen, ...matching])]);
    fill(
      this.buttons,
      n > 0 && h("button", { onclick: () => this.acknowledge(this.chosen) }, `Acknowledge ${plural(n, "alert")}`),
      n > 0 && !isEvery && h("button", { onclick: every }, `Select all ${step(matching.length)}`),
      h("button", { onclick: () => this.#clear() }, n ? "Clear" : "Close")
    );
  }
  /** Ask for a name and a note, then acknowledge alerts; those that fail stay selected. */
  async acknowledge(alerts2) {
    if (!alerts2.length) return;
    const note = h("textarea", { rows: 3, maxlength: 2e3, placeholder: "The node is gone; restarting" });
    const names2 = alerts2.slice(0, NAMED2).map((alert) => h("li", {}, named2(alert)));
    const more = alerts2.length > NAMED2 && h("li", {}, `and ${step(alerts2.length - NAMED2)} more`);
    const fields = [h("ul", { class: "names" }, names2, more), author(), h("label", {}, "Note (optional)", note)];
    let failed = /* @__PURE__ */ new Map();
    const title = `Acknowledge ${plural(alerts2.length, "alert")}`;
    const act = async (form) => failed = await acknowledged(alerts2, { author: said(form), note: note.value });
    if (!await asked(title, fields, "Acknowledge", act)) return;
    this.#failed = failed.size ? failed : null;
    fill(this.result, this.#failed && outcome(alerts2, failed));
    this.#drawn = "";
    this.selection.set(alerts2.filter(({ identity }) => failed.has(identity)));
    await this.again();
  }
  #clear() {
    this.#failed = null;
    this.#drawn = "";
    fill(this.result);
    this.selection.set([]);
  }
};
async function acknowledged(alerts2, word) {
  const failed = /* @__PURE__ */ new Map();
  for (let at = 0; at < alerts2.length; at += MOST) {
    const identities = alerts2.slice(at, at + MOST).map(({ identity }) => identity);
    try {
      const { refused } = await send("POST", "/alerts/ack", { ...word, identities });
      for (const { identity, detail } of refused) failed.set(identity, detail);
    } catch (error) {
      if (alerts2.length <= MOST) throw error;
      for (const identity of identities) failed.set(identity, refusal(error));
    }
  }
  return failed;
}
function outcome(alerts2, failed) {
  const rest = alerts2.filter(({ identity }) => failed.has(identity));
  return [
    h("p", {}, `${step(alerts2.length - rest.length)} of ${plural(alerts2.length, "alert")} acknowledged. Not acknowledged:`),
    h("ul", { class: "failures" }, rest.map((alert) => h("li", {}, `${named2(alert)}: ${failed.get(alert.identity)}`)))
  ];
}
var named2 = ({ project, run: run2, title }) => `${project}/${run2}: ${title}`;

// src/alertfilter.js
var SEVERITIES = ["page", "warn", "info"];
var AlertFilter = class {
  /** `changed` is called when a filter changes. */
  constructor(changed) {
    const given = new URLSearchParams(location.search);
    this.changed = changed;
    this.words = h("input", {
      type: "search",
      value: given.get("q") ?? "",
      placeholder: "Filter alerts",
      "aria-label": "Filter by project, run, rule, cause or owner",
      "data-filter": true
    });
    const options = SEVERITIES.map((value) => h("option", { value, selected: value === given.get("severity") }, value));
    this.severity = h("select", { "aria-label": "severity" }, h("option", { value: "" }, "every severity"), options);
    this.open = h("input", { type: "checkbox", checked: given.has("open") });
    this.words.addEventListener("input", () => this.#turned());
    for (const field of [this.severity, this.open]) field.addEventListener("change", () => this.#turned());
    const open = h("label", { class: "row" }, this.open, "unacknowledged only");
    this.bar = h("div", { class: "row controls", role: "search" }, this.words, this.severity, open);
  }
  get isOn() {
    return Boolean(this.words.value.trim() || this.severity.value || this.open.checked);
  }
  /** Return what the service filters resolved alerts by, of which a page holds the newest; null if none can match. */
  get query() {
    if (this.open.checked) return null;
    return { search: this.words.value.trim() || null, severity: this.severity.value || null };
  }
  /** Return the alerts that match. */
  chosen(alerts2) {
    const words3 = this.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    return alerts2.filter(
      (alert) => (!this.severity.value || alert.severity === this.severity.value) && (!this.open.checked || !alert.ack && alert.state === "firing") && words3.every((word) => searched(alert).includes(word))
    );
  }
  /** Remove every filter. */
  clear() {
    this.words.value = this.severity.value = "";
    this.open.checked = false;
    this.#turned();
    this.words.focus();
  }
  #turned() {
    const said4 = { q: this.words.value, severity: this.severity.value, open: this.open.checked ? "1" : "" };
    const query = new URLSearchParams(Object.entries(said4).filter(([, value]) => value)).toString();
    history.replaceState(null, "", query ? `/alerts?${query}` : "/alerts");
    this.changed();
  }
};
function searched({ project, run: run2, owner, rule, title, labels: { cause } }) {
  const names2 = [rule, title, cause].filter(Boolean);
  const words3 = names2.map((name2) => name2.replaceAll("_", " "));
  return [`${project}/${run2}`, owner, ...names2, ...words3].filter(Boolean).join(" ").toLowerCase();
}

// src/alertgroup.js
var AlertGroup = class {
  #shown = "";
  constructor({ selection, turn: turn2, acknowledge: acknowledge2 }) {
    this.turn = turn2;
    this.acknowledge = acknowledge2;
    this.element = h("tbody", {});
    this.selection = selection;
  }
  /** Render a group. */
  show(line4, isOpen) {
    this.line = line4;
    const { alerts: alerts2 } = line4;
    if (this.box) this.selection.mark(this.box, line4);
    const open = alerts2.filter((alert) => !alert.ack);
    const silenced = alerts2.filter((alert) => alert.silenced).length;
    const oldest = Math.min(...alerts2.map((alert) => alert.since_at));
    const now2 = JSON.stringify([alerts2.length, open.length, silenced, ago(oldest), isOpen]);
    if (now2 === this.#shown) return;
    this.#shown = now2;
    const { severity: severity2, title, rule } = alerts2[0];
    const runs = plural(new Set(alerts2.map(({ project, run: run2 }) => `${project}/${run2}`)).size, "run");
    this.box = this.selection.box(`${title} of ${runs}`, () => this.line);
    const toggle = { class: "plain fold", "aria-expanded": String(isOpen), onclick: () => this.turn(line4.key) };
    const told2 = [
      open.length < alerts2.length && `${step(alerts2.length - open.length)} acknowledged`,
      silenced > 0 && `${step(silenced)} silenced`
    ];
    const acknowledge2 = h("button", { onclick: () => this.acknowledge(open) }, `Acknowledge ${step(open.length)}`);
    const cells3 = {
      select: this.box,
      severity: h("span", { class: `kind kind-${severity2 === "page" ? "act" : severity2 === "warn" ? "watch" : "unknown"}` }, severity2),
      alert: [h("button", toggle, `${title}: ${runs}`), h("span", { class: "quiet" }, told2.filter(Boolean).join(", "))],
      run: h("span", { class: "quiet" }, runs),
      since: h("span", { class: "quiet nowrap" }, `first ${ago(oldest)}`),
      actions: h("span", { class: "row actions" }, open.length > 0 && acknowledge2)
    };
    const row = Object.entries(cells3).map(([name2, cell2]) => h("td", { "data-name": name2 }, cell2));
    fill(this.element, h("tr", { "data-severity": severity2, "data-state": "firing", "data-rule": rule }, row));
  }
};

// src/incidents.js
var episode = ({ identity, attempt_id, step: step2 }) => `${identity}@${attempt_id}:${step2}`;
function leading(alerts2, incidents = alerts2) {
  const joined2 = new Set(incidents.flatMap(({ members }) => members.map(episode)));
  return alerts2.filter((alert) => !joined2.has(episode(alert)));
}

// src/alertlines.js
var TOGETHER = 3;
var SEVERITIES2 = ["page", "warn", "info"];
function linesOf(alerts2) {
  const byRule = Map.groupBy(
    alerts2.filter(({ members }) => !members.length),
    ({ rule, state }) => `${state} ${rule}`
  );
  const groups = [...byRule].filter(([, found]) => found.length >= TOGETHER);
  const grouped2 = new Set(groups.flatMap(([, found]) => found));
  const single = alerts2.filter((alert) => !grouped2.has(alert)).map((alert) => ({ key: episode(alert), alerts: [alert] }));
  const several2 = groups.map(([key2, found]) => ({ key: key2, rule: found[0].rule, alerts: found.sort(byUrgency) }));
  return [...single, ...several2].sort((a, b) => byUrgency(a.alerts[0], b.alerts[0]));
}
function unfolded(lines3, open) {
  const beneath = (line4) => line4.alerts.map((alert) => ({ key: episode(alert), alerts: [alert], isBeneath: true }));
  return lines3.flatMap((line4) => line4.rule && open.has(line4.key) ? [line4, ...beneath(line4)] : [line4]);
}
function byUrgency(a, b) {
  const severity2 = (alert) => SEVERITIES2.indexOf(alert.severity);
  return Boolean(a.ack) - Boolean(b.ack) || severity2(a) - severity2(b) || b.since_at - a.since_at;
}

// src/alertrow.js
var AlertRow = class {
  #past = null;
  #shown = "";
  /** `again` reads the alerts again; `find(silence)` shows a silence; alerts without a selection have no box. */
  constructor({ again, find, selection = null }) {
    this.again = again;
    this.find = find;
    this.selection = selection;
    this.element = h("tbody", {});
  }
  /** Render a line; the DOM is untouched if nothing changed. */
  show(line4) {
    const [alert] = line4.alerts;
    this.line = line4;
    if (this.box) this.selection.mark(this.box, line4);
    this.element.toggleAttribute("data-beneath", Boolean(line4.isBeneath));
    const now2 = JSON.stringify(alert) + ago(alert.since_at) + (alert.ack ? ago(alert.ack.at) : "");
    if (now2 === this.#shown) return;
    this.#shown = now2;
    this.#draw(alert);
  }
  #draw(alert) {
    this.alert = alert;
    this.box = this.selection?.box(`${alert.title} of ${alert.project}/${alert.run}`, () => this.line);
    const cells3 = [this.box ?? "", severity(alert), this.#what(alert), run(alert), since(alert), this.#actions(alert)];
    const names2 = ["select", "severity", "alert", "run", "since", "actions"];
    const row = h(
      "tr",
      { "data-severity": alert.severity, "data-state": alert.state },
      cells3.map((cell2, i) => h("td", { "data-name": names2[i] }, cell2))
    );
    refill(this.element, row, this.#past && h("tr", {}, h("td", { colspan: 6 }, this.#past)));
  }
  #what({ project, run: name2, owner, title, members, labels: labels2, summary: summary2, runbook, ack, silenced }) {
    const good = labels2.last_good_step;
    const symptoms = members.filter(({ rule }) => rule !== labels2.cause);
    const joined2 = members.map(
      (one) => h("li", {}, `${one.rule.replaceAll("_", " ")} since step ${step(one.step)}${one.state === "firing" ? "" : ", over"}`)
    );
    const why = silenced && `Silenced until ${hour(silenced.ends_at)} by ${silenced.author}${silenced.note ? `: ${silenced.note}` : ""}`;
    return [
      h("span", { class: "strong" }, title),
      members.length > 0 && good && h("span", { class: "quiet" }, ` · last good step ${step(Number(good))}`),
      owner && h("span", { class: "quiet" }, ` · ${owner}`),
      why && h("div", {}, h("button", { class: "plain silenced", onclick: () => this.find(silenced) }, why)),
      h(
        "details",
        { "data-name": "more" },
        h("summary", {}, symptoms.length ? plural(symptoms.length, "symptom") : "Details"),
        h("p", {}, summary2.replace(`${project}/${name2}: `, "")),
        runbook && h("p", { class: "quiet" }, runbook),
        joined2.length > 0 && h("ul", { class: "quiet", "aria-label": "Alerts in this incident" }, joined2)
      ),
      ack && h("div", { class: "quiet" }, `Acknowledged by ${ack.author} ${ago(ack.at)}${ack.note ? `: ${ack.note}` : ""}`)
    ];
  }
  #actions(alert) {
    const fires = alert.state === "firing";
    const take = async () => await acknowledge([alert]) && this.again();
    const mute = async () => await silence(
      [
        { label: "run", value: alert.run },
        { label: "rule", value: alert.members.length ? alert.labels.cause : alert.rule },
        { label: "owner", value: alert.owner ?? "" }
      ],
      alert.project
    ) && this.again();
    return h(
      "span",
      { class: "row actions" },
      fires && !alert.ack && action("Acknowledge", take),
      fires && action("Silence", mute),
      action("History", () => this.#turn(), { class: "plain", "aria-expanded": String(Boolean(this.#past)) })
    );
  }
  async #turn() {
    this.#past = this.#past ? null : history2(await newestLast("/alerts/events", { identity: this.alert.identity }));
    this.#draw(this.alert);
  }
};
function severity({ severity: given, state }) {
  const kind = state !== "firing" ? "unknown" : { page: "act", warn: "watch" }[given] ?? "unknown";
  return h("span", { class: `kind kind-${kind}` }, given);
}
function run({ project, run: name2, step: at }) {
  return h(
    "a",
    { href: `${runPath(project, name2)}?step=${at}` },
    h("span", { class: "project" }, `${project} / `),
    h("span", { class: "strong" }, name2)
  );
}
function since({ step: at, since_at: began, state, updated_at: ended }) {
  return [
    h("div", { class: "nowrap" }, `step ${step(at)}`),
    h(
      "div",
      { class: "quiet nowrap", title: clock(began) },
      state === "resolved" ? `until ${clock(ended)}` : ago(began)
    )
  ];
}
function history2(events) {
  const items = events.map(
    (event) => h(
      "li",
      {},
      h("span", { class: "quiet" }, `${clock(event.at)} · `),
      `${event.state} at step ${step(event.step)}: ${number(event.value)} (limit ${number(event.threshold)})`
    )
  );
  return h("ol", { class: "events" }, items);
}

// src/alertselection.js
var AlertSelection = class {
  #keys = /* @__PURE__ */ new Set();
  #lines = [];
  #anchor = null;
  /** `changed` is called when alerts are selected or deselected. */
  constructor(changed) {
    this.changed = changed;
  }
  has(alert) {
    return this.#keys.has(episode(alert));
  }
  get size() {
    return this.#keys.size;
  }
  /** Return a checkbox for the line that `lineOf()` returns; a row that is drawn anew gets a new one, so that the focus can follow. */
  box(name2, lineOf) {
    const box = h("input", { type: "checkbox", "aria-label": `Select ${name2}` });
    box.addEventListener("click", (event) => this.choose(lineOf(), box.checked, event.shiftKey));
    this.mark(box, lineOf());
    return box;
  }
  /** Show in a checkbox whether the alerts of a line are selected. */
  mark(box, { alerts: alerts2 }) {
    const chosen = alerts2.filter((alert) => this.has(alert)).length;
    box.checked = chosen === alerts2.length;
    box.indeterminate = chosen > 0 && chosen < alerts2.length;
  }
  /** Select exactly these alerts. */
  set(alerts2) {
    this.#keys = new Set(alerts2.map(episode));
    this.changed();
  }
  /** Take the lines on screen in their order; alerts that no longer fire leave. */
  follow(lines3, firing) {
    this.#lines = lines3;
    const keys = new Set(firing.map(episode));
    for (const key2 of this.#keys) if (!keys.has(key2)) this.#keys.delete(key2);
  }
  /** Select or deselect the alerts of a line; with Shift, of every line from the one that was clicked last. */
  choose(line4, isChosen, isRange) {
    const at = this.#lines.findIndex(({ key: key2 }) => key2 === line4.key);
    const from = isRange ? this.#lines.findIndex(({ key: key2 }) => key2 === this.#anchor) : -1;
    const range2 = at < 0 || from < 0 ? [line4] : this.#lines.slice(Math.min(at, from), Math.max(at, from) + 1);
    for (const alert of range2.flatMap(({ alerts: alerts2 }) => alerts2)) {
      if (isChosen) this.#keys.add(episode(alert));
      else this.#keys.delete(episode(alert));
    }
    this.#anchor = line4.key;
    this.changed();
  }
};

// src/following.js
var EVERY_MS = 3e4;
function follow(live2, { concerns, read: read3, fail: fail2, refreshMs }) {
  let isChanged = false;
  let isReading = false;
  let readAt = Date.now();
  const heard2 = ({ detail }) => isChanged ||= concerns(detail);
  const back = () => isChanged ||= live2.state === "live";
  const refresh = async () => {
    if (isReading || document.hidden || !(isChanged || Date.now() - readAt > EVERY_MS)) return;
    isReading = true;
    isChanged = false;
    readAt = Date.now();
    try {
      await read3();
    } catch (error) {
      if ([401, 404].includes(error.status)) fail2(error);
    } finally {
      isReading = false;
    }
  };
  const timer = setInterval(refresh, refreshMs);
  live2.addEventListener("event", heard2);
  live2.addEventListener("state", back);
  return () => {
    clearInterval(timer);
    live2.removeEventListener("event", heard2);
    live2.removeEventListener("state", back);
  };
}

// src/shortcuts.js
var KEYS = [
  ["g f", "fleet"],
  ["g a", "alerts"],
  ["/", "filter the fleet or the alerts"],
  ["j, k", "next, previous run or alert; Enter opens the run"],
  ["x", "select the focused run or alert"],
  ["a", "acknowledge the selected alerts, else the focused one"],
  ["← →", "on a chart: pan by a tenth of the range"],
  ["+ −", "on a chart: zoom in, zoom out; 0 shows all steps"],
  ["[ ]", "on a run: previous step, next step"],
  ["t", "light or dark theme"],
  ["?", "keyboard shortcuts"]
];
function shortcuts({ go: go2 }) {
  let waiting3 = "";
  const actions2 = { gf: () => go2("/"), ga: () => go2("/alerts"), t: turn, "?": explain, "/": filter };
  document.addEventListener("keydown", (event) => {
    if (typing(event.target) || document.querySelector("dialog") || event.metaKey || event.ctrlKey || event.altKey) return;
    const action2 = actions2[waiting3 + event.key];
    waiting3 = event.key === "g" ? "g" : "";
    if (!action2) return;
    event.preventDefault();
    action2();
  });
  document.getElementById("theme").addEventListener("click", turn);
  document.getElementById("keys").addEventListener("click", explain);
}
var typing = (element) => /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) && element.type !== "checkbox" && element.type !== "radio";
function filter() {
  document.querySelector("[data-filter]")?.focus();
}
function turn() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("trmon.theme", dark ? "light" : "dark");
  window.dispatchEvent(new Event("themechange"));
}
function explain() {
  const rows2 = KEYS.map(([key2, what]) => h("tr", {}, h("td", {}, h("code", {}, key2)), h("td", {}, what)));
  const close = h("button", { onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { "aria-label": "Keyboard shortcuts" },
    h("h2", {}, "Keyboard"),
    h("table", {}, rows2),
    close
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// src/alerts.js
var REFRESH_MS = 2e3;
var PAGE2 = 50;
var TYPING_MS = 250;
async function mountAlerts(stage2, { live: live2 }) {
  const view = new AlertsView(stage2);
  stage2.title("Alerts");
  await view.read();
  const concerns = ({ kind }) => ["alert", "ack"].includes(kind);
  const end = follow(live2, { concerns, read: () => view.read(), fail: stage2.fail, refreshMs: REFRESH_MS });
  document.addEventListener("keydown", view.keys);
  return () => {
    end();
    view.end();
    document.removeEventListener("keydown", view.keys);
  };
}
var AlertsView = class {
  #asked = 0;
  #rows = /* @__PURE__ */ new Map();
  #open = /* @__PURE__ */ new Set();
  #found = null;
  #isFramed = false;
  #before = "";
  #typed = null;
  constructor(stage2) {
    this.stage = stage2;
    this.limit = PAGE2;
    this.most = PAGE2;
    this.title = h("h1", {});
    this.count = h("p", { role: "status", class: "quiet" });
    this.filter = new AlertFilter(() => this.#filtered());
    this.selection = new AlertSelection(() => this.draw());
    this.bulk = new AlertBulk(this.selection, () => this.read());
    this.firing = table("Firing", () => (this.most += PAGE2, this.draw()));
    this.silences = h("section", { class: "alerts" });
    this.past = table("Resolved", () => (this.limit += PAGE2, this.read()));
    const none = "No alert matches these filters.";
    this.none = h("p", { class: "notice row" }, h("span", { class: "quiet" }, none), action("Show all alerts", () => this.filter.clear()));
    this.empty = h(
      "section",
      { class: "card empty quiet" },
      "No alert has fired yet. Built-in rules watch every run; docs/rules.md lists them and shows how to write your own."
    );
    this.keys = (event) => this.#key(event);
  }
  /** Read all firing alerts, since the oldest of hundreds may be the most severe, and the newest resolved ones that match. */
  async read() {
    const turn2 = ++this.#asked;
    const { query } = this.filter;
    const [firing, past, silences] = await Promise.all([
      all("/alerts", { state: "firing" }),
      query ? upTo(this.limit, "/alerts", { state: "resolved", ...query }) : { items: [], hasMore: false },
      all("/silences")
    ]);
    if (turn2 !== this.#asked) return;
    const known3 = [...firing, ...past.items];
    const resolved = leading(past.items, known3).map((alert) => ({ ...alert, silenced: null }));
    this.#found = { firing: leading(firing, known3), resolved, hasMore: past.hasMore, silences, query };
    if (!this.#isFramed) this.#frame();
    this.draw();
  }
  /** Filter what is loaded at once, and once typing pauses, all resolved alerts. */
  #filtered() {
    this.limit = PAGE2;
    this.draw();
    clearTimeout(this.#typed);
    this.#typed = setTimeout(() => this.read().catch(unanswered), TYPING_MS);
  }
  end() {
    clearTimeout(this.#typed);
  }
  #frame() {
    this.#isFramed = true;
    const head = h("header", { class: "row spread" }, this.title, action("New silence", () => this.#silence()));
    const tables = [this.firing.section, this.bulk.element, this.silences, this.past.section];
    this.stage.show(head, this.filter.bar, this.count, this.none, tables, this.empty);
  }
  draw() {
    if (!this.#found) return;
    const { firing, resolved, hasMore, silences, query } = this.#found;
    const isAnswered = JSON.stringify(query) === JSON.stringify(this.filter.query);
    const open = firing.filter((alert) => !alert.ack).length;
    const fires = `${plural(firing.length, "alert")} ${firing.length === 1 ? "fires" : "fire"}, ${open} unacknowledged`;
    write(this.title, firing.length ? fires : "No alert fires");
    const matching = this.filter.chosen(firing);
    const past = isAnswered ? resolved : this.filter.chosen(resolved);
    const isEmpty = !this.filter.isOn && firing.length + resolved.length === 0;
    write(this.count, this.filter.isOn ? `${step(matching.length)} of ${plural(firing.length, "firing alert")} shown` : "");
    this.filter.bar.hidden = !this.empty.toggleAttribute("hidden", !isEmpty);
    this.none.hidden = isEmpty || !isAnswered || matching.length + past.length > 0;
    this.past.section.setAttribute("aria-busy", String(!isAnswered));
    const lines3 = unfolded(linesOf(matching), this.#open);
    this.lines = lines3.slice(0, this.most);
    this.selection.follow(this.lines, firing);
    this.#fill(this.firing, this.lines, lines3.length - this.lines.length);
    this.#fill(this.past, past.map((alert) => ({ key: episode(alert), alerts: [alert] })), hasMore && isAnswered ? PAGE2 : 0);
    const kept2 = new Set([...lines3, ...resolved.map((alert) => ({ key: episode(alert) }))].map(({ key: key2 }) => key2));
    for (const key2 of this.#rows.keys()) if (!kept2.has(key2) && !this.filter.isOn) this.#rows.delete(key2);
    this.bulk.draw(firing, matching);
    this.#drawSilences(silences);
  }
  #fill({ section, list: list2, more }, lines3, rest) {
    section.hidden = !lines3.length && !rest;
    more.hidden = rest <= 0;
    const elements = lines3.map((line4) => {
      const row = this.#row(line4);
      row.show(line4, this.#open.has(line4.key));
      return row.element;
    });
    moving(() => put(list2, elements));
  }
  /** Reuse the row of each line so that what is open stays open. */
  #row(line4) {
    const fires = line4.alerts[0].state === "firing";
    const again = () => this.read();
    const find = (one) => this.#find(one);
    const kept2 = this.#rows.get(line4.key);
    if (kept2 && Boolean(kept2.selection) === fires) return kept2;
    const { selection } = this;
    const acknowledge2 = (alerts2) => this.bulk.acknowledge(alerts2);
    const row = line4.rule ? new AlertGroup({ selection, turn: (key2) => this.#turn(key2), acknowledge: acknowledge2 }) : new AlertRow({ again, find, selection: fires ? selection : null });
    this.#rows.set(line4.key, row);
    return row;
  }
  #turn(key2) {
    if (!this.#open.delete(key2)) this.#open.add(key2);
    this.draw();
  }
  #drawSilences(silences) {
    this.silences.hidden = !silences.length;
    const now2 = JSON.stringify(silences) + silences.map(left);
    if (now2 === this.#before) return;
    this.#before = now2;
    const rows2 = silences.map((one) => {
      const { id, author: author2, note, alerts: alerts2 } = one;
      return h(
        "li",
        { class: "row", id: `silence-${id}`, tabindex: "-1" },
        h("code", {}, said2(one)),
        h("span", { class: "quiet" }, `${left(one)}, by ${author2}${note ? `: ${note}` : ""} · mutes ${plural(alerts2, "alert")} now`),
        action("End", () => this.#end(one))
      );
    });
    refill(this.silences, h("h2", {}, "Silences"), h("ul", { class: "card silences" }, rows2));
  }
  #find({ id }) {
    const line4 = document.getElementById(`silence-${id}`);
    line4?.scrollIntoView({ block: "center" });
    line4?.focus({ preventScroll: true });
  }
  async #silence() {
    const matchers = ["project", "run", "rule", "owner"].map((label) => ({ label, value: "" }));
    if (await silence(matchers)) await this.read();
  }
  async #end(one) {
    await send("DELETE", `/silences/${one.id}`);
    await this.read();
  }
  #waiting = "";
  /** Move with j and k, select with x, acknowledge with a; g a is a way to this view. */
  #key(event) {
    if (typing(event.target) || document.querySelector("dialog") || event.metaKey || event.ctrlKey || event.altKey) return;
    const isSecond = this.#waiting === "g";
    this.#waiting = event.key;
    if (isSecond || !["j", "k", "x", "a"].includes(event.key)) return;
    const rows2 = [...this.firing.list.tBodies];
    const at = rows2.findIndex((row) => row.contains(document.activeElement));
    if (event.key === "j" || event.key === "k") {
      const next = at < 0 ? 0 : Math.min(rows2.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)));
      rows2[next]?.querySelector('[type="checkbox"]').focus();
      rows2[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "x" && at >= 0) {
      const line4 = this.lines[at];
      this.selection.choose(line4, !line4.alerts.every((alert) => this.selection.has(alert)), false);
    } else if (event.key === "a") {
      const chosen = this.selection.size ? this.bulk.chosen : (this.lines[at]?.alerts ?? []).filter((alert) => !alert.ack);
      this.bulk.acknowledge(chosen);
    } else return;
    event.preventDefault();
  }
};
function table(title, more) {
  const names2 = ["select", "severity", "alert", "run", "since", "actions"];
  const hidden = ["select", "actions"];
  const heads = names2.map((name2) => h("th", { scope: "col" }, h("span", { class: hidden.includes(name2) ? "sr" : "" }, name2)));
  const list2 = h("table", { class: "list", "aria-label": title }, h("thead", {}, h("tr", {}, heads)));
  const button = h("p", {}, action("Show more", more));
  const section = h("section", { class: "alerts" }, h("h2", {}, title), h("div", { class: "card scroll" }, list2), button);
  return { section, list: list2, more: button };
}
function put(list2, elements) {
  const kept2 = new Set(elements);
  for (const body of [...list2.tBodies]) if (!kept2.has(body)) body.remove();
  elements.forEach((element, i) => {
    if (list2.tBodies[i] !== element) list2.insertBefore(element, list2.tBodies[i] ?? null);
  });
}
function unanswered(error) {
  if (!(error instanceof ApiError)) throw error;
}
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
var said2 = ({ matchers, project }) => [project && `project=${project}`, ...matchers.map((m) => `${m.label}${m.operator}${m.value}`)].filter(Boolean).join(", ");
function left({ starts_at: starts, ends_at: ends }) {
  const seconds = now();
  return starts > seconds ? `from ${clock(starts)} for ${span(ends - starts)}` : `ends in ${span(ends - seconds)}`;
}

// src/plotoptions.js
var DASHES = [[], [5, 3], [2, 2]];
var CLUSTER_PX = 6;
var TICK_PX = 5;
var TIMES = [
  [86400, "{D} {MMM}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]
];
var GAP_PX = 4;
var FONT = "11px system-ui, sans-serif";
function opts({ n, banded, log, from, to, healthy, limits = [], stacked, width, height, course: course2, hooks }) {
  const ink = inks();
  return {
    width,
    height,
    legend: { show: false },
    padding: [6, 6, 0, 0],
    scales: { x: { time: course2.byTime }, y: { distr: log ? 3 : 1, range: ranged(log, from, to) } },
    axes: [
      axis(ink, { size: 22, space: 70, values: course2.byTime ? TIMES : (_, at) => at.map(step) }),
      axis(ink, {
        size: 50,
        space: 30,
        values: (_, at, _axis, _space, by) => at.map((value) => labelled(value, log ? value : by)),
        ...log ? { splits: decades, filter: (_, at) => at } : {}
      })
    ],
    series: [{}, ...Array.from({ length: n }, (_, i) => lines(ink, i, { banded, stacked })).flat()],
    bands: banded ? Array.from({ length: n }, (_, i) => ({ series: [3 * i + 3, 3 * i + 2], fill: ink.soft })) : [],
    cursor: cursor(ink),
    hooks: {
      drawClear: [(u) => healthy && band(u, healthy, ink)],
      draw: [
        (u) => limits.forEach((limit3) => level(u, limit3, ink)),
        (u) => marks(u, course2, ink),
        (u) => course2.byTime && named3(u, ink)
      ],
      setSelect: [(u) => selected(u, hooks.select)],
      setCursor: [(u) => hooks.cursor(u.cursor.idx ?? null)]
    }
  };
}
function inks() {
  const style = getComputedStyle(document.documentElement);
  const of = (name2) => style.getPropertyValue(`--${name2}`).trim();
  return {
    accent: of("accent"),
    soft: of("accent-soft"),
    line: of("line"),
    quiet: of("quiet"),
    second: of("second"),
    third: of("third"),
    faint: of("faint"),
    ink: of("ink"),
    act: of("act"),
    watch: of("watch"),
    good: of("good-soft"),
    card: of("card")
  };
}
function labelled(value, by) {
  if (value === null) return "";
  return number(value, Math.max(3, Math.ceil(Math.log10(Math.abs(value / by))) + 1));
}
function ranged(log, from, to) {
  return (_, min, max) => {
    if (to !== void 0) return [from, to];
    if (min === null) return log ? [1e-3, 1] : [0, 1];
    if (log) return [min / 1.3, Math.max(max * 1.3, min * 10)];
    if (max === min && min === from) return [from, from + 1];
    const room = (max - min || Math.abs(max) || 1) * 0.06;
    return [from === void 0 ? min - room : Math.min(from, min), max + room];
  };
}
function decades(_u, _axis, min, max) {
  const [first, last2] = [Math.ceil(Math.log10(min)), Math.floor(Math.log10(max))];
  if (last2 <= first) return [min, max];
  const by = Math.ceil((last2 - first) / 3);
  return Array.from({ length: Math.floor((last2 - first) / by) + 1 }, (_, i) => 10 ** (first + i * by));
}
function axis(ink, given) {
  const grid = { stroke: ink.line, width: 1 };
  return { stroke: ink.quiet, font: FONT, grid, ticks: { show: false }, gap: GAP_PX, ...given };
}
function lines(ink, i, { banded, stacked }) {
  const stroke = [ink.accent, ink.second, ink.third][i % 3];
  const line4 = {
    stroke,
    width: 1.5,
    dash: DASHES[i % 3],
    points: { show: true, filter: (u, at) => lone(u.data[at]), size: 4, fill: stroke, stroke },
    spanGaps: false,
    fill: stacked ? ink.soft : void 0
  };
  const edge = { stroke: "transparent", width: 0, points: { show: false } };
  return banded ? [line4, edge, edge] : [line4];
}
function lone(values) {
  const is = (value) => value !== null && value !== void 0;
  return values.flatMap((value, i) => is(value) && !is(values[i - 1]) && !is(values[i + 1]) ? [i] : []);
}
function cursor(ink) {
  const filters2 = { pub: (type) => type === "mousemove" || type === "mouseleave" };
  return {
    y: false,
    points: { size: 5, fill: ink.accent },
    drag: { x: true, y: false, setScale: false },
    sync: { key: "run", filters: filters2 },
    bind: { dblclick: () => () => null }
  };
}
function selected(u, select2) {
  const { left: left2, width } = u.select;
  if (width < 4) return;
  const [from, to] = [u.posToVal(left2, "x"), u.posToVal(left2 + width, "x")];
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  select2(from, to);
}
function band(u, [least, most], ink) {
  const { left: left2, top, width, height } = u.bbox;
  const y = (value, beyond) => Number.isFinite(value) && !(u.scales.y.distr === 3 && value <= 0) ? clamp(u.valToPos(value, "y", true), top, top + height) : beyond;
  const [up, down] = [y(most, top), y(least, top + height)];
  u.ctx.save();
  u.ctx.fillStyle = ink.good;
  u.ctx.fillRect(left2, up, width, down - up);
  u.ctx.restore();
}
function level(u, { at, kind }, ink) {
  const { ctx, bbox } = u;
  const y = Math.round(u.valToPos(at, "y", true)) + 0.5;
  ctx.save();
  ctx.strokeStyle = ink[kind];
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}
function marks(u, course2, ink) {
  const placed = course2.markers.map((marker) => ({ ...marker, x: u.valToPos(course2.position(marker.step), "x", true) }));
  for (const { x, kind } of clustered(placed)) {
    if (kind === "policy") upright(u, x, { colour: ink.quiet, dash: [], height: TICK_PX });
    else if (kind === "note") upright(u, x, { colour: ink.accent, dash: [], height: TICK_PX });
    else upright(u, x, { colour: ink[kind], dash: [3, 3] });
  }
  const { chosen } = course2;
  if (chosen !== null) upright(u, u.valToPos(course2.position(chosen), "x", true), { colour: ink.ink, dash: [] });
}
function named3(u, ink) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.font = FONT.replace("11px", `${11 * devicePixelRatio}px`);
  ctx.fillStyle = ink.quiet;
  ctx.textBaseline = "top";
  ctx.fillText(zone(u.scales.x.max), 0, bbox.top + bbox.height + GAP_PX * devicePixelRatio);
  ctx.restore();
}
var URGENCY = ["note", "policy", "watch", "act"];
function clustered(placed) {
  const clusters = [];
  for (const marker of placed) {
    const last2 = clusters.at(-1);
    if (!last2 || marker.x - last2.x > CLUSTER_PX * devicePixelRatio) clusters.push({ ...marker });
    else if (URGENCY.indexOf(marker.kind) > URGENCY.indexOf(last2.kind)) last2.kind = marker.kind;
  }
  return clusters;
}
function upright(u, at, { colour, dash, height = Infinity }) {
  const { ctx, bbox } = u;
  if (at < bbox.left || at > bbox.left + bbox.width) return;
  const x = Math.round(at) + 0.5;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + Math.min(bbox.height, height * devicePixelRatio));
  ctx.stroke();
  ctx.restore();
}
var clamp = (value, least, most) => Math.min(Math.max(value, least), most);

// src/panels.js
var PRIMARY = ["total", "mismatch", "staleness"];
var ENGINES = ["mismatch", "total"];
var PANELS = [
  { title: "Reward", note: "mean", lines: [own("reward_mean", "mean")], reference: "peak" },
  {
    title: "KL",
    note: "k3, nats per token",
    lines: [
      pair("kl_k3", ["mismatch"], "engines"),
      pair("kl_k3", ["staleness"], "staleness"),
      pair("kl_k3", ["total"], "total")
    ],
    floor: 1e-6,
    also: ["kl_k1", "kl_k2", "k3_excess", "staleness_growth"]
  },
  {
    title: "Effective samples",
    note: "by raw weights",
    lines: [pair("ess_token", PRIMARY, "tokens"), pair("ess_seq", PRIMARY, "sequences")],
    from: 0,
    also: ["ess_seq_relative"]
  },
  {
    title: "χ²",
    note: "per token",
    lines: [pair("chi2_token", PRIMARY, "mean"), pair("chi2_token_p95", PRIMARY, "p95 of sequences")],
    floor: 1e-3
  },
  {
    title: "Engines agree",
    note: "Pearson, token probabilities",
    lines: [pair("prob_pearson", ENGINES, "")],
    also: ["prob_diff_max", "ppl_ratio"]
  },
  {
    title: "Version lag",
    note: "updates",
    lines: [own("version_lag_mean", "mean"), own("version_lag_max", "largest")],
    from: 0,
    also: ["engine_lag", "staleness_lag"]
  },
  {
    title: "Response length",
    note: "tokens",
    lines: [own("response_length_mean", "mean"), own("response_length_p95", "p95")],
    also: ["response_length_growth"]
  },
  {
    title: "Gradient norm",
    note: "before clipping",
    lines: [own("grad_norm", "")],
    from: 0,
    also: ["grad_norm_relative", "grad_variance_rise"]
  },
  {
    title: "Risk of collapse",
    note: "within 200 steps",
    lines: [own("collapse_risk", "")],
    from: 0,
    to: 1,
    isRisk: true
  },
  {
    title: "Gradient noise",
    note: "proxy 3, a band",
    lines: [own("proxy3_pure_noise_low", "at least"), own("proxy3_pure_noise_high", "at most")],
    from: 0,
    also: ["proxy1_signal_strength", "proxy2_total_power_high", "grad_variance"]
  },
  {
    title: "Gradient direction",
    note: "cosine with the update before",
    lines: [own("grad_cosine", "")]
  },
  {
    title: "Pull on the entropy",
    note: "covariance of log-prob and advantage",
    lines: [own("logp_advantage_cov", "")],
    also: ["entropy_relative", "entropy_rise"]
  },
  {
    title: "KL to the reference",
    note: "nats per token",
    lines: [own("ref_kl_k3", "k3"), own("ref_kl_k3_is", "k3, weighted"), own("ref_kl_k1", "k1")]
  },
  {
    title: "Weights of sequences",
    note: "0 where rejected",
    lines: [own("sequence_weight_mean", "mean"), own("sequence_weight_ess", "effective share")],
    from: 0
  },
  {
    title: "Turns rejected",
    note: "share",
    lines: [own("turn_mask_rate", "turns"), own("turn_mask_rate_tokens", "their tokens")],
    from: 0,
    to: 1
  },
  {
    title: "Router flips",
    note: "other experts in training",
    lines: [own("router_flip_rate", "")],
    from: 0,
    also: ["router_flip_relative", "max_vio"]
  },
  {
    title: "Minorizer",
    note: "gain beyond the error bound, reward",
    lines: [own("minorizer", "")],
    also: ["bound_adaptive"]
  }
];
function own(name2, label) {
  return { find: (names2) => names2.has(name2) ? name2 : null, label };
}
function pair(stem2, pairs, label) {
  return { find: (names2) => pairs.map((of) => `${of}_${stem2}`).find((name2) => names2.has(name2)) ?? null, label };
}
var stem = (name2) => name2.replace(/^(mismatch|staleness|total)_/, "");
function signalsOf(names2) {
  return PANELS.map((panel) => {
    const lines3 = panel.lines.map((line4) => ({ name: line4.find(names2), label: line4.label })).filter((line4) => line4.name);
    return { ...panel, lines: lines3, names: lines3.map((line4) => line4.name) };
  }).filter((panel) => panel.lines.length);
}

// src/signalwords.js
var WORDS = {
  abs_log_ratio_max: "largest log-ratio of a token",
  chi2_token: "spread of token weights (χ²)",
  chi2_token_p95: "spread of token weights",
  clip_fraction: "clipped tokens",
  clip_fraction_rise: "clipped tokens against before",
  effective_signal: "learning signal",
  effective_signal_relative: "learning signal against the start",
  engine_lag: "versions behind at the engine",
  entropy_relative: "entropy against the start",
  entropy_rise: "trend of the entropy",
  ess_seq: "effective share of sequences",
  ess_seq_relative: "effective sequences against the start",
  ess_token: "effective share of tokens",
  grad_cosine: "cosine with the gradient before",
  grad_norm: "gradient norm",
  grad_norm_relative: "gradient norm against its median",
  grad_variance_rise: "gradient variance against before",
  invalid_fraction: "tokens without usable log-probs",
  k3_excess: "KL against the most that is possible",
  kl_k1: "KL per token, signed",
  kl_k3: "KL per token",
  kl_k3_ema: "KL per token, smoothed",
  kl_k3_relative: "KL against the start",
  length_limit_ema: "responses cut at the limit",
  length_limit_rise: "trend of cut responses",
  length_limit_share: "responses cut at the limit",
  ln_e_value: "evidence against the log-probs",
  logp_advantage_cov: "covariance of log-prob and advantage",
  lr: "learning rate",
  mask_rate: "masked sequences",
  minorizer: "gain beyond the error bound",
  nonfinite_steps: "steps with NaN or infinity",
  ppl_ratio: "ratio of perplexities",
  prob_diff_max: "largest gap of a token's probability",
  prob_diff_mean: "mean gap of token probabilities",
  prob_pearson: "agreement of token probabilities",
  proxy1_signal_strength: "squared gradient norm",
  proxy2_total_power_high: "mean squared gradient, at most",
  proxy2_total_power_low: "mean squared gradient, at least",
  proxy3_pure_noise_high: "gradient variance, at most",
  proxy3_pure_noise_low: "gradient variance, at least",
  ratio_mean: "mean importance ratio",
  ratio_shift: "shift of the mean ratio, in standard errors",
  ref_kl_k1: "KL to the reference, signed",
  ref_kl_k3: "KL to the reference",
  ref_kl_k3_is: "KL to the reference, weighted",
  response_length_growth: "response length against before",
  response_length_mean: "response length",
  response_length_relative: "response length against the start",
  reward_collapse: "fall of the reward",
  reward_decline: "slow fall of the reward",
  reward_length_corr: "correlation of reward and length",
  reward_length_corr_ema: "correlation of reward and length",
  reward_mean: "reward",
  reward_std: "spread of rewards",
  router_flip_rate: "tokens with other experts",
  router_flip_relative: "other experts against the start",
  router_replay: "routing is replayed",
  sampled_entropy: "entropy",
  saturated_fraction: "tokens with padded log-probs",
  saturated_outside_band: "padded tokens with unlikely ratios",
  kl_k3_early: "KL per token after the first updates",
  growth: "KL growth with the lag",
  lag: "updates since the rollout",
  sequence_weight_ess: "effective share of weighted sequences",
  sequence_weight_mean: "mean weight of sequences",
  staleness_abs_log_ratio_max: "largest log-ratio of the updates",
  staleness_ess_seq: "effective share of sequences in the updates",
  staleness_kl_k3: "KL of the updates",
  temperature_corr: "log-ratio follows the log-prob (correlation)",
  temperature_slope: "log-ratio follows the log-prob (slope)",
  turn_mask_rate: "masked turns",
  turn_mask_rate_tokens: "tokens of masked turns",
  version_lag_max: "versions behind",
  version_lag_mean: "age of the sampling weights",
  version_span_max: "versions within a response",
  version_span_rise: "trend of versions within a response",
  zero_variance_groups: "groups of equal rewards",
  zero_variance_groups_least: "groups of equal rewards"
};
var signalWords = (name2) => WORDS[name2] ?? WORDS[stem(name2)] ?? name2.replaceAll("_", " ");

// src/comparechart.js
var HEIGHT = 150;
var FONT2 = "11px system-ui, sans-serif";
var LOGARITHMIC = /* @__PURE__ */ new Set(["kl_k3", "grad_norm"]);
var LETTERS = "ABCDEFGH";
var DASHES2 = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
var CompareChart = class {
  #u = null;
  #data = [[]];
  #n = 0;
  #byTime = false;
  constructor(uPlot, name2) {
    Object.assign(this, { uPlot, name: name2 });
    this.where = h("span", { class: "plot tall" });
    this.values = h("span", { class: "note" });
    this.place = h("span", { class: "quiet" });
    const words3 = [h("h2", {}, capital(signalWords(name2))), this.place, this.values, h("span", {})];
    this.element = h("figure", { class: "card panel" }, h("figcaption", {}, words3), this.where);
    this.resized = new ResizeObserver(() => this.#size());
    this.resized.observe(this.where);
  }
  /** Show runs, over steps or over the time since their starts. */
  show(runs, { byTime }) {
    const isLog = LOGARITHMIC.has(this.name);
    const drawn = (value) => typeof value === "number" && (!isLog || value > 0) ? value : null;
    const tables = runs.map((run2) => [
      byTime ? run2.elapsed_seconds : run2.step,
      (run2.signals[this.name] ?? run2.step.map(() => null)).map(drawn)
    ]);
    this.#data = this.uPlot.join(tables.filter(([places]) => places.length));
    const isSame = this.#n === runs.length && this.#byTime === byTime;
    Object.assign(this, { runs });
    this.#n = runs.length;
    this.#byTime = byTime;
    if (isSame && this.#u) this.#u.setData(this.#data);
    else this.make();
    this.#say(null);
  }
  /** Rebuild the plot, for other runs or another theme. */
  make() {
    this.#u?.destroy();
    this.#u = null;
    if (!this.#n) return;
    this.#u = new this.uPlot(this.#options(), this.#data, this.where);
  }
  end() {
    this.resized.disconnect();
    this.#u?.destroy();
  }
  #size() {
    const width = this.where.clientWidth;
    if (this.#u && width && width !== this.#u.width) this.#u.setSize({ width, height: HEIGHT });
  }
  #options() {
    const ink = inks();
    const style = getComputedStyle(document.documentElement);
    const axis2 = { stroke: ink.quiet, font: FONT2, grid: { stroke: ink.line, width: 1 }, ticks: { show: false }, gap: 4 };
    const place = this.#byTime ? span : step;
    const isLog = LOGARITHMIC.has(this.name);
    const line4 = (i) => ({
      stroke: style.getPropertyValue(`--run-${i + 1}`).trim(),
      width: 1.5,
      dash: DASHES2[Math.floor(i / 2) % DASHES2.length],
      points: { show: false },
      spanGaps: true
      // Runs have their points at different places.
    });
    return {
      width: this.where.clientWidth || 320,
      height: HEIGHT,
      legend: { show: false },
      padding: [6, 6, 0, 0],
      scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 } },
      axes: [
        { ...axis2, size: 22, space: 70, values: (_, at) => at.map(place) },
        {
          ...axis2,
          size: 50,
          space: 30,
          values: (_, at) => at.map((value) => value === null ? "" : number(value)),
          ...isLog ? { splits: decades, filter: (_, at) => at } : {}
        }
      ],
      series: [{}, ...Array.from({ length: this.#n }, (_, i) => line4(i))],
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "compare" }, points: { size: 5 } },
      hooks: { setCursor: [(u) => this.#say(u.cursor.idx ?? null)] }
    };
  }
  /** Show the values at the cursor, or the newest ones. */
  #say(at) {
    const columns = this.#data.slice(1);
    const newest2 = (column) => at === null ? column.findLast((value) => known(value)) : nearest(column, at);
    fill(
      this.values,
      columns.map(
        (column, i) => h("span", { class: `legend run-${i + 1}` }, `${LETTERS[i]} ${number(newest2(column))}`)
      )
    );
    const place = at === null ? null : this.#data[0][at];
    this.place.textContent = place === null ? "newest" : this.#byTime ? span(place) : `step ${step(place)}`;
  }
};
var known = (value) => value !== null && value !== void 0;
function nearest(column, at) {
  for (let i = at; i >= 0; i--) if (known(column[i])) return column[i];
  return null;
}

// src/plot.js
var loading = null;
function plot() {
  loading ??= read("/static/vendor/uplot-1.6.32.js").then(() => window.uPlot);
  return loading;
}
function read(src) {
  return new Promise((done, failed) => {
    const script = Object.assign(document.createElement("script"), { src });
    script.onload = done;
    script.onerror = () => failed(new Error(`cannot load ${src}`));
    document.head.append(script);
  });
}

// src/compare.js
var REFRESH_MS2 = 5e3;
var LETTERS2 = "ABCDEFGH";
async function mountCompare(stage2, { live: live2 }) {
  const view = new CompareView(stage2, new URLSearchParams(location.search));
  stage2.title("Compare");
  await view.read();
  const concerns = ({ data }) => view.shows(data);
  const stop = follow(live2, { concerns, read: () => view.read(), fail: stage2.fail, refreshMs: REFRESH_MS2 });
  return () => {
    stop();
    view.end();
  };
}
var compareAddress = (runs) => `/compare?runs=${runs.map(({ project, run: run2 }) => `${encodeURIComponent(project)}/${encodeURIComponent(run2)}`).join(",")}`;
var CompareView = class {
  #charts = [];
  #found = null;
  #names = "";
  constructor(stage2, query) {
    this.stage = stage2;
    this.runs = query.get("runs") ?? "";
    this.byTime = query.get("by") === "time";
    this.words = h("section", { class: "card panel stack", "aria-label": "Where they part", "aria-live": "polite" });
    this.charts = h("section", { class: "charts", "aria-label": "Charts" });
    this.differences = h("section", { class: "card panel scroll", "aria-label": "Differences" });
    this.axes = h("span", { class: "row joined", role: "group", "aria-label": "Horizontal axis" });
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.theme = () => this.#charts.forEach((chart) => chart.make());
    this.system.addEventListener("change", this.theme);
    window.addEventListener("themechange", this.theme);
  }
  async read() {
    const query = { runs: this.runs, by: this.byTime ? "time" : "step" };
    const [found, uPlot] = await Promise.all([get("/compare", query), plot()]);
    const isFirst = this.#found === null;
    this.#found = found;
    if (isFirst) this.#frame();
    this.#draw(uPlot);
  }
  shows({ project, run: run2 }) {
    return this.#found?.runs.some(({ fleet }) => fleet.project === project && fleet.run === run2);
  }
  end() {
    this.system.removeEventListener("change", this.theme);
    window.removeEventListener("themechange", this.theme);
    this.#charts.forEach((chart) => chart.end());
  }
  #frame() {
    const head = h("header", {}, h("div", { class: "row" }, h("h1", {}, "Compare"), this.axes));
    this.stage.show(head, this.words, this.charts, this.differences);
  }
  #draw(uPlot) {
    const { runs, proposed, config: config2 } = this.#found;
    fill(
      this.axes,
      [false, true].map(
        (byTime) => h(
          "button",
          { "aria-pressed": String(byTime === this.byTime), onclick: () => this.#by(byTime) },
          byTime ? "Time" : "Steps"
        )
      )
    );
    fill(
      this.words,
      runs.slice(1).map((run2, i) => h("p", { class: "headline" }, parting(run2, i + 1, runs.length))),
      proposed && h("p", { class: "quiet" }, "B was proposed: the sound run of the project whose configuration differs least."),
      h("ul", { class: "compared" }, runs.map(entry))
    );
    this.#drawCharts(uPlot, runs);
    fill(this.differences, h("h2", {}, "Differences"), table2(this.#found), !config2.length && h("p", { class: "quiet" }, "The configurations do not differ."));
  }
  #drawCharts(uPlot, runs) {
    const names2 = [...new Set(runs.flatMap((run2) => Object.keys(run2.signals)))];
    if (names2.join() !== this.#names) {
      this.#names = names2.join();
      this.#charts.forEach((chart) => chart.end());
      this.#charts = names2.map((name2) => new CompareChart(uPlot, name2));
      fill(
        this.charts,
        this.#charts.map((chart) => chart.element)
      );
      this.#charts.forEach((chart) => chart.make());
    }
    this.#charts.forEach((chart) => chart.show(runs, { byTime: this.byTime }));
  }
  async #by(byTime) {
    this.byTime = byTime;
    const query = new URLSearchParams(location.search);
    if (byTime) query.set("by", "time");
    else query.delete("by");
    history.replaceState(null, "", `${location.pathname}?${decodeURIComponent(query.toString())}`);
    await this.read();
  }
};
var parting = (run2, i, n) => n > 2 ? `A and ${LETTERS2[i]}: ${run2.sentence}` : run2.sentence;
function entry({ fleet }, i) {
  const { verdict: verdict2 } = fleet;
  return h(
    "li",
    { class: `row run-${i + 1}` },
    h("span", { class: "swatch", "aria-hidden": "true" }),
    h("span", { class: "strong" }, LETTERS2[i]),
    h("a", { href: `/runs/${encodeURIComponent(fleet.project)}/${encodeURIComponent(fleet.run)}` }, `${fleet.project}/${fleet.run}`),
    h("span", { class: `kind kind-${verdict2.kind}` }, kindWords(verdict2.kind)),
    h("span", { class: "quiet" }, verdict2.why)
  );
}
function table2({ runs, config: config2, same_policy: isSamePolicy }) {
  const names2 = [...new Set(runs.flatMap((run2) => Object.keys(run2.signals)))];
  const rows2 = [
    ["newest step", runs.map((run2) => step(run2.fleet.step))],
    ["policy", runs.map(({ policy }) => policy.name + (isSamePolicy ? "" : ` ${policy.hash.slice(0, 8)}`))],
    ...names2.map((name2) => [
      `${signalWords(name2)}, newest`,
      runs.map((run2) => number(run2.signals[name2]?.findLast((value) => value !== null)))
    ]),
    ...config2.map(({ name: name2, values, given }) => [name2, values.map((value, i) => given[i] ? JSON.stringify(value) : "–")])
  ];
  const letters = runs.map((_, i) => h("th", { scope: "col" }, LETTERS2[i]));
  const head = [h("th", { scope: "col" }, h("span", { class: "sr" }, "difference")), letters];
  const body = rows2.map(
    ([name2, values]) => h("tr", {}, h("th", { scope: "row" }, capital(name2)), values.map((value) => h("td", {}, value)))
  );
  return h("table", { class: "differences" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
}

// src/fleetanswer.js
function answer(runs) {
  const count = (test) => runs.filter(test).length;
  const now2 = count((run2) => run2.verdict.need === "now");
  const taken = count(
    (run2) => run2.verdict.need === "none" && ["act", "watch", "crashed", "stalled"].includes(run2.verdict.kind)
  );
  const of = (kind) => count((run2) => run2.verdict.kind === kind);
  const parts = [
    now2 ? `${plural(now2, "run")} ${now2 === 1 ? "needs" : "need"} you` : "No run needs you",
    part(
      count((run2) => run2.verdict.need === "soon"),
      "to watch"
    ),
    part(taken, "acknowledged"),
    part(
      count((run2) => run2.verdict.need === "none" && run2.verdict.kind === "ended_ill"),
      "ended ill"
    ),
    part(of("healthy"), "healthy"),
    part(of("no_drift_found"), "no drift found"),
    part(of("training_healthy"), "training healthy"),
    part(of("unknown"), "unknown"),
    part(of("finished"), "finished")
  ];
  return parts.filter(Boolean).join(", ");
}
function headline(runs) {
  const now2 = runs.filter((run2) => run2.verdict.need === "now").length;
  return now2 ? `(${now2}) Fleet` : "Fleet";
}
var part = (n, words3) => n ? `${step(n)} ${words3}` : null;
var LINES = (url) => `import trmon_client as trmon
monitor = trmon.init(project="math", run="qwen3-8b-grpo", url="${url}")   # line 1
...
decision = monitor.log_batch(step=step, rollout_logprobs=mu, old_logprobs=old, logprobs=pi, mask=mask)   # line 2`;
function newService(url) {
  return h(
    "section",
    { class: "card empty stack" },
    h("h1", {}, "No runs yet"),
    h("p", {}, "Add two lines to the trainer; the run appears after its first step."),
    h("pre", {}, LINES(url)),
    h(
      "p",
      { class: "quiet" },
      "Install it with pip install trmon-client. To see a run that goes wrong first: ",
      h("code", {}, "make demo ARGS=--keep"),
      "."
    )
  );
}
function noneActive(isArchivedShown) {
  const [title, text, href, link] = isArchivedShown ? ["No archived run", "No run is archived.", "/", "Show the runs"] : ["Every run is archived", "A new run appears after its first step.", "/?archived=1", "Show archived runs"];
  return h(
    "section",
    { class: "card empty stack" },
    h("h1", {}, title),
    h("p", {}, text, " ", h("a", { class: "link", href }, link), ".")
  );
}

// src/cut.js
var END = 9;
var SHORT = 8;
function cut(text) {
  const letters = [...text];
  if (letters.length <= SHORT) return h("span", { class: "start" }, text);
  const end = Math.min(END, Math.floor(letters.length / 2));
  return [
    h("span", { class: "start" }, letters.slice(0, -end).join("")),
    h("span", { class: "end" }, letters.slice(-end).join(""))
  ];
}

// src/canvas.js
var HEIGHT2 = 132;
var CLICK_PX = 3;
var NEAR_PX = 8;
var NAMED3 = 3;
var Canvas = class {
  #u = null;
  #data = [[]];
  #tip = h("span", { class: "tip", hidden: true });
  constructor(where, { uPlot, course: course2, open, label, said: said4, lines: lines3 }) {
    Object.assign(this, { where, uPlot, course: course2, open, said: said4, lines: lines3 });
    where.tabIndex = 0;
    where.setAttribute("role", "group");
    this.label = label;
    this.describe("");
    where.addEventListener("keydown", (event) => this.#key(event));
    where.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.resized = new ResizeObserver(() => this.#size());
    this.resized.observe(where);
  }
  /** Say in words what the chart shows, for those who do not see it. */
  describe(words3) {
    this.where.setAttribute("aria-label", `${this.label}, chart${words3 ? `: ${words3}` : ""}`);
  }
  /** Rebuild the plot, for other lines or another theme. */
  make(form) {
    this.form = form;
    this.banded = form.banded;
    this.#u?.destroy();
    const { course: course2 } = this;
    const hooks = {
      select: (from, to) => course2.show(course2.stepAt(from), course2.stepAt(to)),
      cursor: (at) => this.#hover(at)
    };
    const size = { width: this.where.clientWidth || 320, height: HEIGHT2 };
    this.#u = new this.uPlot(opts({ ...form, ...size, course: course2, hooks }), this.#placed(), this.where);
    this.#listen(this.#u.over);
    this.#u.over.append(this.#tip);
  }
  data(columns) {
    this.#data = columns;
    this.#u.setData(this.#placed(), false);
    this.range();
  }
  range() {
    const [min, max] = this.course.view.map((step2) => this.course.position(step2));
    this.#u?.setScale("x", { min, max });
  }
  redraw() {
    this.#u?.redraw(false, false);
  }
  end() {
    this.resized.disconnect();
    this.#u?.destroy();
  }
  /** Return the columns with their steps as places on the horizontal axis. */
  #placed() {
    const [steps, ...columns] = this.#data;
    return [this.course.byTime ? steps.map((step2) => this.course.position(step2)) : steps, ...columns];
  }
  /** Tell the values at the cursor; under the mouse, a tip names the lines and the events near it. */
  #hover(at) {
    this.said(at);
    const { left: left2, event } = this.#u.cursor;
    this.#tip.hidden = at === null || event?.type !== "mousemove";
    if (this.#tip.hidden) return;
    const [place, beside] = [left2, left2 + NEAR_PX].map((x) => this.course.stepAt(this.#u.posToVal(x, "x")));
    this.#tip.textContent = [...this.lines(at), ...told(this.course.markersNear(place, beside - place))].join("\n");
    this.#tip.classList.toggle("leftward", left2 > this.where.clientWidth / 2);
    this.#tip.style.left = `${left2}px`;
  }
  #size() {
    const width = this.where.clientWidth;
    if (this.#u && width && width !== this.#u.width) this.#u.setSize({ width, height: HEIGHT2 });
  }
  #listen(over) {
    let pressed = null;
    over.addEventListener("mousedown", (event) => pressed = event.clientX);
    over.addEventListener("click", (event) => {
      const at = this.#u.cursor.idx;
      if (at !== null && Math.abs(event.clientX - pressed) <= CLICK_PX) this.open(this.#data[0][at]);
    });
    over.addEventListener("dblclick", () => this.course.show());
  }
  #key(event) {
    const { course: course2 } = this;
    const act = {
      ArrowLeft: () => course2.pan(-0.1),
      ArrowRight: () => course2.pan(0.1),
      "+": () => course2.zoom(0.5),
      "-": () => course2.zoom(2),
      0: () => course2.show()
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }
  /** Horizontal scrolling pans and Ctrl+scroll zooms; vertical scrolling stays with the page. */
  #wheel(event) {
    if (event.ctrlKey) {
      event.preventDefault();
      const around = this.course.stepAt(this.#u.posToVal(event.offsetX, "x"));
      this.course.zoom(event.deltaY > 0 ? 1.25 : 0.8, around);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.course.pan((event.deltaX || event.deltaY) / this.where.clientWidth);
    }
  }
};
function told(events) {
  const more = events.length > NAMED3 ? [`and ${events.length - NAMED3} more`] : [];
  return [...events.slice(0, NAMED3).map(({ step: at, what }) => `${step(at)}: ${what}`), ...more];
}

// src/download.js
function download(content, name2) {
  const url = URL.createObjectURL(content);
  const link = Object.assign(document.createElement("a"), { href: url, download: name2 });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1e4);
}

// src/chartexport.js
var TITLE_PX = 26;
var PAD_PX = 10;
function exportMenu(title, { rows: rows2, canvas }) {
  const name2 = () => `${location.pathname.split("/").slice(2).join("-")}-${title}`.replace(/[^\w.-]+/g, "-").toLowerCase();
  const menu = h(
    "details",
    { class: "export" },
    h("summary", { "aria-label": `Save the chart ${title}`, title: "Save" }, "⤓"),
    h(
      "div",
      { class: "card menu" },
      h("button", { onclick: () => close(saveCsv(rows2(), `${name2()}.csv`)) }, "CSV"),
      h("button", { onclick: () => close(savePng(canvas(), { title, name: `${name2()}.png` })) }, "PNG")
    )
  );
  const close = () => menu.open = false;
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  return menu;
}
function saveCsv(rows2, name2) {
  const text = rows2.map((row) => row.map(cell).join(",")).join("\r\n");
  download(new Blob([`${text}\r
`], { type: "text/csv;charset=utf-8" }), name2);
}
function cell(value) {
  if (value === null || value === void 0) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
function savePng(drawn, { title, name: name2 }) {
  const style = getComputedStyle(document.documentElement);
  const of = (token2) => style.getPropertyValue(`--${token2}`).trim();
  const ratio = devicePixelRatio;
  const [pad, top] = [PAD_PX * ratio, TITLE_PX * ratio];
  const made = Object.assign(document.createElement("canvas"), {
    width: drawn.width + 2 * pad,
    height: drawn.height + top + pad
  });
  const ctx = made.getContext("2d");
  ctx.fillStyle = of("card");
  ctx.fillRect(0, 0, made.width, made.height);
  ctx.fillStyle = of("ink");
  ctx.font = `600 ${14 * ratio}px system-ui, sans-serif`;
  ctx.fillText(title, pad, top - 8 * ratio);
  ctx.drawImage(drawn, pad, top);
  made.toBlob((blob) => download(blob, name2), "image/png");
}

// src/figure.js
var Figure = class {
  now = h("span", { class: "strong" });
  against = h("span", { class: "quiet" });
  legend = h("span", {});
  constructor({ uPlot, course: course2, open, title, note, label = title }) {
    const where = h("span", { class: "plot" });
    const below = h("span", { class: "note" }, note && `${note} `, this.legend);
    const menu = exportMenu(title, { rows: () => this.rows(), canvas: () => where.querySelector("canvas") });
    const words3 = [h("span", { class: "row tight" }, h("h2", {}, title), menu), this.now, below, this.against];
    this.course = course2;
    this.element = h("figure", { class: "card panel" }, h("figcaption", {}, words3), where);
    const told2 = { said: (at) => this.say(at), lines: (at) => this.lines(at) };
    this.canvas = new Canvas(where, { uPlot, course: course2, open, label, ...told2 });
  }
  range() {
    this.canvas.range();
  }
  redraw() {
    this.canvas.redraw();
  }
  end() {
    this.canvas.end();
  }
};

// src/healthy.js
var FORMS = [
  [/^0$/, () => [0, 0]],
  [/^<=? ([\d.e-]+)$/, ([, most]) => [-Infinity, Number(most)]],
  [/^>=? ([\d.e-]+)$/, ([, least]) => [Number(least), Infinity]],
  [/^([\d.e-]+) to ([\d.e-]+)$/, ([, least, most]) => [Number(least), Number(most)]],
  [/^\|x\| < ([\d.e-]+)$/, ([, most]) => [-Number(most), Number(most)]]
];
function range(words3) {
  for (const [form, bounds2] of FORMS) {
    const found = form.exec(words3 ?? "");
    if (found) return bounds2(found);
  }
  return null;
}

// src/chart.js
var BASELINE_POINTS = 20;
var Chart = class extends Figure {
  constructor({ uPlot, course: course2, panel, open }) {
    super({ uPlot, course: course2, open, title: panel.title, note: panel.note });
    this.panel = panel;
    this.healthy = range(course2.catalogue.get(panel.names[0])?.healthy);
  }
  /** Return whether the chart draws a signal that is evidence. */
  shows(evidence) {
    const shown2 = /* @__PURE__ */ new Set([...this.panel.names.map(stem), ...this.panel.also ?? []]);
    return [...evidence].some((name2) => shown2.has(stem(name2)) || shown2.has(name2));
  }
  make() {
    const { panel } = this;
    this.canvas.make({
      n: panel.lines.length,
      banded: !this.course.series.exact,
      log: panel.floor !== void 0,
      from: panel.from,
      to: panel.to,
      healthy: this.healthy,
      limits: this.limits
    });
    this.data();
  }
  /** The horizontal lines to draw, each a value `at` which something is told, and its `kind`, watch or act. */
  get limits() {
    return [];
  }
  range() {
    super.range();
    this.say(null);
  }
  data() {
    const { series } = this.course;
    if (this.canvas.banded !== !series.exact) return this.make();
    const columns = this.panel.names.flatMap((name2) => {
      const { mean: mean2, min, max } = series.signals[name2];
      const isThere = this.#has(mean2);
      return (series.exact ? [mean2] : [mean2, min, max]).map((values) => this.#drawable(values, isThere));
    });
    this.canvas.data([series.step, ...columns]);
    this.#name(series);
    this.say(null);
  }
  /** Show a legend if there is more than one line. */
  #name({ signals: signals2 }) {
    const drawn = this.panel.lines.map((line4, i) => ({ ...line4, i })).filter(({ name: name2 }) => this.#has(signals2[name2].mean));
    fill(this.legend, drawn.length > 1 && drawn.map(({ i, label }) => h("span", { class: `legend line-${i}` }, label)));
  }
  /** Show the values at the cursor, or the newest value next to its reference. */
  say(at) {
    const { series } = this.course;
    const values = this.panel.names.map((name2) => series.signals[name2].mean);
    if (at !== null) {
      this.now.textContent = values.map((column) => number(column[at])).join(" · ");
      this.against.textContent = `step ${step(series.step[at])}`;
      return;
    }
    const end = series.step.findLastIndex((step2, i) => values[0][i] !== null && step2 <= this.course.view[1]);
    this.now.textContent = number(values[0][end]);
    this.against.textContent = this.course.isAtEnd || end < 0 ? this.reference() : `step ${step(series.step[end])}`;
    this.canvas.describe(this.#summary(values));
  }
  /** Return each line's newest value and its range, e.g. "reward newest 0.41, from 0.35 to 0.78". */
  #summary(values) {
    const parts = this.panel.lines.map(({ label }, i) => {
      const known3 = values[i].filter((value) => typeof value === "number");
      if (!known3.length) return null;
      const name2 = this.panel.lines.length > 1 && label ? `${label} ` : "";
      return `${name2}newest ${number(known3.at(-1))}, from ${number(Math.min(...known3))} to ${number(Math.max(...known3))}`;
    });
    const steps = this.course.series.step;
    return steps.length ? [...parts.filter(Boolean), `steps ${step(steps[0])} to ${step(steps.at(-1))}`].join("; ") : "";
  }
  lines(at) {
    const { series, catalogue } = this.course;
    const unit = unitWords(catalogue.get(this.panel.names[0])?.unit);
    const values = this.panel.lines.map(({ name: name2, label }) => {
      const named5 = label && this.panel.lines.length > 1 ? label : this.panel.title.toLowerCase();
      return `${named5} ${number(series.signals[name2].mean[at])}${unit}`;
    });
    return [`step ${step(series.step[at])}, ${clock(series.closed_at[at])}`, ...values];
  }
  rows() {
    const { series, catalogue } = this.course;
    const columns = this.panel.names.flatMap((name2) => {
      const unit = catalogue.get(name2)?.unit;
      const statistics = series.exact ? ["mean"] : ["mean", "min", "max"];
      return statistics.map((statistic) => ({
        head: `${name2}${series.exact ? "" : ` ${statistic}`}${unit ? ` (${unit})` : ""}`,
        values: series.signals[name2][statistic]
      }));
    });
    const time = (at) => new Date(1e3 * at).toISOString();
    const body = series.step.map((at, i) => [at, time(series.closed_at[i]), ...columns.map(({ values }) => values[i])]);
    return [["step", "closed at (UTC)", ...columns.map(({ head }) => head)], ...body];
  }
  /** Return the reference of the newest value, from the whole run. */
  reference() {
    const words3 = this.course.catalogue.get(this.panel.names[0])?.healthy;
    if (words3) return `healthy ${words3.replace("<=", "≤").replace(">=", "≥")}`;
    const values = this.course.whole.signals[this.panel.names[0]]?.mean ?? [];
    const known3 = values.filter((value) => typeof value === "number");
    if (!known3.length) return "";
    if (this.panel.reference === "peak") return `peak ${number(Math.max(...known3))}`;
    const first = known3.slice(0, BASELINE_POINTS).sort((a, b) => a - b);
    return `initially ${number(first[Math.floor(first.length / 2)])}`;
  }
  /** Whether there is data to draw: a logarithmic scale cannot show a series of zeros. */
  #has(values) {
    return values.some((value) => value !== null && (value > 0 || this.panel.floor === void 0));
  }
  /** Infinities cannot be drawn; values below the floor are drawn on it. */
  #drawable(values, isThere) {
    const { floor = -Infinity } = this.panel;
    return values.map((value) => isThere && typeof value === "number" ? Math.max(value, floor) : null);
  }
};
var PLAIN = /* @__PURE__ */ new Set(["ratio", "fraction", "chi2", "reward", void 0]);
var unitWords = (unit) => PLAIN.has(unit) ? "" : ` ${unit}`;

// src/risk.js
var WARNING = ["warn", "page"];
var SHOWN = 6;
var PREDICTIONS = ["collapse_risk", "collapse_risk_high"];
var PAST = "The reward has collapsed, or the run has finished: there is nothing left to predict.";
var isPrediction = (incident) => PREDICTIONS.includes(incident?.cause);
function riskLine({ diagnosis }) {
  const risk = diagnosis?.collapse_risk;
  if (!WARNING.includes(risk?.level)) return null;
  const within = `${percent(risk.probability)} risk of collapse within ${risk.horizon_steps} steps`;
  return h("p", { class: `risk risk-${risk.level}` }, within, drivenBy(risk.drivers));
}
function riskBadge({ collapse_risk: risk }) {
  if (!WARNING.includes(risk?.level)) return null;
  const title = risk.driven_by.length ? `risk of collapse, driven by ${risk.driven_by.join(" and ")}` : "risk of collapse";
  return h("span", { class: `risk risk-${risk.level}`, title }, `${percent(risk.probability)} risk`);
}
var RiskChart = class extends Chart {
  #risk = null;
  #drivers = h("div", { class: "drivers" });
  constructor(given) {
    super(given);
    this.element.classList.add("beside");
    this.element.append(this.#drivers);
  }
  /** Show the drivers of the newest step, and the thresholds of the model that made the estimate. */
  learn({ diagnosis }) {
    const risk = diagnosis?.collapse_risk ?? null;
    if (JSON.stringify(risk) === JSON.stringify(this.#risk)) return;
    const isMoved = risk?.warn_at !== this.#risk?.warn_at || risk?.page_at !== this.#risk?.page_at;
    this.#risk = risk;
    fill(this.#drivers, risk && explained(risk));
    if (isMoved) this.make();
  }
  get limits() {
    if (!this.#risk) return [];
    return [
      { at: this.#risk.warn_at, kind: "watch" },
      { at: this.#risk.page_at, kind: "act" }
    ];
  }
  reference() {
    return this.#risk ? `warns at ${percent(this.#risk.warn_at)}, pages at ${percent(this.#risk.page_at)}` : "";
  }
};
function explained(risk) {
  const shown2 = [...risk.drivers].sort((a, b) => Math.abs(b.log_odds) - Math.abs(a.log_odds)).slice(0, SHOWN);
  const most = Math.max(...shown2.map(({ log_odds: size }) => Math.abs(size)));
  return [
    risk.level === "past" && h("p", { class: "quiet" }, PAST),
    h("p", { class: "quiet" }, "What drives it, in log-odds"),
    h(
      "ol",
      {},
      shown2.sort((a, b) => b.log_odds - a.log_odds).map((driver) => line(driver, most))
    ),
    uncertain(risk)
  ];
}
function line({ input, log_odds: size }, most) {
  const bar2 = h("span", { class: "bar", "aria-hidden": "true", "data-sign": size < 0 ? "against" : "for" });
  bar2.style.width = `${Math.round(100 * Math.abs(size) / (most || 1))}%`;
  return h(
    "li",
    { title: input },
    h("span", {}, signalWords(input)),
    h("span", { class: "track" }, bar2),
    h("span", { class: "number" }, `${size < 0 ? "−" : "+"}${Math.abs(size).toFixed(2)}`)
  );
}
function uncertain({ missing, outside }) {
  const parts = [
    missing.length && `Not sent: ${missing.map(signalWords).join(", ")}.`,
    outside.length && `Beyond what the model was fitted to: ${outside.map(signalWords).join(", ")}.`
  ].filter(Boolean);
  return parts.length ? h("p", { class: "quiet uncertain", title: parts.join("\n") }, parts.join(" ")) : null;
}
function drivenBy(drivers) {
  const words3 = drivers.slice(0, 2).filter(({ log_odds: size }) => size > 0);
  return words3.length ? `, driven by ${words3.map(({ input }) => signalWords(input)).join(" and ")}` : "";
}

// src/runstate.js
var hasEnded = ({ state }) => state === "finished" || state === "crashed";

// src/sparkline.js
var WIDTH = 120;
var HEIGHT3 = 26;
function sparkline(values, label, least = []) {
  const known3 = [...values.filter((value) => value !== null), ...least];
  const bottom = Math.min(...known3);
  const range2 = Math.max(...known3) - bottom;
  const x = (i) => values.length < 2 ? WIDTH / 2 : i / (values.length - 1) * (WIDTH - 2) + 1;
  const y = (value) => range2 > 0 ? HEIGHT3 - 2 - (value - bottom) / range2 * (HEIGHT3 - 4) : HEIGHT3 / 2;
  let path3 = "";
  values.forEach((value, i) => {
    if (value === null) return;
    path3 += `${i && values[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT3}`, role: "img", "aria-label": label },
    svg("path", { d: path3 })
  );
}

// src/fleetrow.js
var HEALTHY_KL = 5e-3;
var NEEDS = ["none", "soon", "now"];
var KINDS = [
  ...["finished", "healthy", "no_drift_found", "training_healthy", "unknown"],
  ...["ended_ill", "watch", "stalled", "crashed", "act"]
];
var last = (line4) => line4?.values.findLast((value) => value !== null) ?? null;
var COLUMNS = [
  {
    name: "verdict",
    key: (run2) => NEEDS.indexOf(run2.verdict.need) * 10 + KINDS.indexOf(run2.verdict.kind),
    isDown: true
  },
  { name: "run", key: (run2) => `${run2.project}/${run2.run}`, isDown: false },
  { name: "step", key: (run2) => run2.step, isDown: true },
  { name: "reward", key: (run2) => last(run2.reward), isDown: true },
  { name: "KL (k3)", key: (run2) => last(run2.kl), isDown: true },
  { name: "masked", key: (run2) => typeof run2.mask_rate === "number" ? run2.mask_rate : null, isDown: true },
  { name: "alerts", key: (run2) => run2.alerts.length, isDown: true },
  { name: "owner", key: (run2) => run2.owner, isDown: false },
  { name: "last report", key: (run2) => run2.last_report_at, isDown: true }
];
var Row = class {
  element = h("tr", { role: "row" });
  #shown = "";
  #line = null;
  constructor(selection) {
    this.selection = selection;
    this.box = h("input", { type: "checkbox" });
    this.box.addEventListener("click", (event) => selection.choose(this.#line, this.box.checked, event.shiftKey));
  }
  /** Render a run; the DOM is untouched if nothing changed. */
  show(line4) {
    const { run: run2 } = line4;
    this.#line = line4;
    this.box.checked = this.selection.has(run2);
    this.element.toggleAttribute("data-selected", this.box.checked);
    const now2 = JSON.stringify(run2) + ago(run2.last_report_at);
    if (now2 === this.#shown) return;
    this.#shown = now2;
    this.box.setAttribute("aria-label", `Select ${run2.project}/${run2.run}`);
    this.element.dataset.kind = run2.verdict.kind;
    this.element.dataset.need = run2.verdict.need;
    fill(
      this.element,
      h("td", { role: "cell", "data-name": "select" }, this.box),
      cells(run2).map((content, i) => h("td", { role: "cell", "data-name": COLUMNS[i].name }, content))
    );
  }
};
function cells(run2) {
  return [
    verdict(run2),
    name(run2),
    h("span", { class: "number" }, step(run2.step)),
    course(run2.reward, "reward", []),
    course(run2.kl, "KL", [0, HEALTHY_KL]),
    h("span", { class: "number" }, percent(run2.mask_rate)),
    alerts(run2),
    run2.owner ? h("span", { class: "cut", title: run2.owner }, cut(run2.owner)) : h("span", { class: "quiet" }, "–"),
    h("span", { class: "quiet" }, ago(run2.last_report_at))
  ];
}
function isAhead(run2) {
  return run2.judged_step !== null && run2.judged_step < run2.step - (hasEnded(run2) ? 0 : 1);
}
var limit = (run2) => isAhead(run2) && `(to step ${step(run2.judged_step)})`;
function verdict(run2) {
  const { verdict: verdict2 } = run2;
  const todo = verdict2.need !== "none" && verdict2.todo;
  const when = run2.state === "finished" ? "For the next run" : "Do";
  return h(
    "div",
    { class: "oneline", title: [verdict2.why, todo && `${when}: ${todo}`].filter(Boolean).join("\n") },
    h("span", { class: `kind kind-${verdict2.kind}` }, kindWords(verdict2.kind)),
    limit(run2) && [" ", h("span", { class: "quiet" }, limit(run2))],
    " ",
    riskBadge(run2),
    h("span", { class: "why" }, verdict2.why, todo && [" ", h("span", { class: "todo" }, h("b", {}, `${when}: `), todo)])
  );
}
function name(run2) {
  const since2 = run2.verdict.since_step === null ? "" : `?step=${run2.verdict.since_step}`;
  const tags = run2.tags.map((tag) => h("span", { class: "tag" }, tag));
  return h(
    "div",
    { class: "oneline", title: [`${run2.project} / ${run2.run}`, ...run2.tags].join("\n") },
    h("span", { class: "project" }, run2.project),
    h("span", { class: "quiet", "aria-hidden": "true" }, "/"),
    h("a", { class: "run cut", href: runPath(run2.project, run2.run) + since2 }, cut(run2.run)),
    tags.length > 0 && h("span", { class: "tags" }, tags)
  );
}
function course(line4, what, height) {
  if (last(line4) === null) return h("span", { class: "quiet" }, "–");
  const now2 = number(last(line4));
  const label = `${what} over steps ${line4.first_step} to ${line4.last_step}, now ${now2}`;
  return h("span", { class: "course" }, sparkline(line4.values, label, height), h("span", { class: "number" }, now2));
}
function alerts({ alerts: open, incident }) {
  if (!open.length && incident?.state !== "firing") return h("span", { class: "quiet" }, "0");
  const authors = [incident?.state === "firing" && incident.acked_by, ...open.map((alert) => alert.acked_by)];
  const taken = [...new Set(authors.filter(Boolean))];
  const title = open.map((alert) => `${alert.rule} (${alert.severity}) since step ${alert.step}`).join("\n");
  return h(
    "span",
    { title: [title, ...taken].filter(Boolean).join("\n"), class: "oneline" },
    String(open.length),
    taken.length > 0 && h("span", { class: "quiet why" }, ` · ${taken.join(", ")}`)
  );
}

// src/fleetcontrols.js
function controls(changed) {
  return new Controls(changed);
}
var Controls = class {
  #offered = "";
  constructor(changed) {
    const given = new URLSearchParams(location.search);
    this.changed = changed;
    this.column = COLUMNS.find(({ name: name2 }) => name2 === given.get("sort")) ?? COLUMNS[0];
    this.isDown = given.has("order") ? given.get("order") === "desc" : this.column.isDown;
    this.text = this.#input(given.get("q") ?? "");
    this.lists = { project: select("project", given), owner: select("owner", given), tag: select("tag", given) };
    for (const list2 of Object.values(this.lists)) list2.addEventListener("change", () => this.#choose(list2));
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
      project: set(runs, (run2) => [run2.project]),
      owner: set(runs, (run2) => [run2.owner]),
      tag: set(runs, (run2) => run2.tags)
    };
    if (JSON.stringify(offered) === this.#offered) return;
    this.#offered = JSON.stringify(offered);
    for (const [name2, list2] of Object.entries(this.lists)) {
      const chosen = list2.dataset.wanted;
      const values = set([chosen, ...offered[name2]], (value) => [value]);
      const options = values.map((value) => h("option", { value, selected: value === chosen }, value));
      list2.replaceChildren(h("option", { value: "" }, `every ${name2}`), ...options);
      list2.hidden = offered[name2].length < 2 && !chosen;
    }
  }
  /** Return the runs to show, in order. */
  chosen(runs) {
    const { project, owner, tag } = this.lists;
    const words3 = this.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run2) => (!project.value || run2.project === project.value) && (!owner.value || run2.owner === owner.value) && (!tag.value || run2.tags.includes(tag.value)) && words3.every((word) => searched2(run2).includes(word));
    return runs.filter(fits).sort(this.#order());
  }
  /** Whether the most urgent runs come first. */
  isByVerdict() {
    return this.column === COLUMNS[0] && this.isDown;
  }
  /** Remove every filter. */
  clear() {
    this.text.value = "";
    for (const list2 of Object.values(this.lists)) list2.value = list2.dataset.wanted = "";
    this.#turned();
    this.text.focus();
  }
  said(shown2, all2) {
    const by = this.isByVerdict() ? "most urgent first" : `sorted by ${this.column.name}`;
    return shown2 === all2 ? `${plural(all2, "run")} · ${by}` : `${step(shown2)} of ${plural(all2, "run")} · ${by}`;
  }
  /** Return the header of a column; a click sorts by it, the next one reverses the order. */
  head(column) {
    const button = h("button", { class: "plain", onclick: () => this.#by(column, cell2) }, column.name);
    const sorted = this.#sorted(column.name);
    const cell2 = h("th", { role: "columnheader", scope: "col", "aria-sort": sorted, "data-name": column.name }, button);
    return cell2;
  }
  #by(column, cell2) {
    this.isDown = this.column === column ? !this.isDown : column.isDown;
    this.column = column;
    for (const other of cell2.parentElement.children) other.setAttribute("aria-sort", this.#sorted(other.dataset.name));
    this.#turned();
  }
  #sorted(name2) {
    if (name2 !== this.column.name) return "none";
    return this.isDown ? "descending" : "ascending";
  }
  #order() {
    const { key: key2 } = this.column;
    const sign = this.isDown ? -1 : 1;
    const heard2 = (run2) => -(run2.last_report_at ?? 0);
    return (a, b) => compare(key2(a), key2(b), sign) || compare(heard2(a), heard2(b), 1);
  }
  #choose(list2) {
    list2.dataset.wanted = list2.value;
    this.#turned();
  }
  #turned() {
    const said4 = {
      q: this.text.value,
      project: this.lists.project.value,
      owner: this.lists.owner.value,
      tag: this.lists.tag.value
    };
    const archived = this.archived() ? "1" : "";
    const order = this.isDown === this.column.isDown ? "" : this.isDown ? "desc" : "asc";
    const sort = this.column === COLUMNS[0] ? "" : this.column.name;
    const kept2 = Object.entries({ ...said4, group: this.group.value, sort, order, archived }).filter(([, value]) => value);
    const query = new URLSearchParams(kept2).toString();
    history.replaceState(null, "", query ? `/?${query}` : "/");
    this.changed();
  }
  #input(value) {
    const field = h("input", {
      type: "search",
      value,
      placeholder: "Filter runs",
      "aria-label": "Filter runs",
      "data-filter": true
    });
    field.addEventListener("input", () => this.#turned());
    return field;
  }
};
function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return sign * (a < b ? -1 : a > b ? 1 : 0);
}
function grouping(given) {
  const offered = [["", "no groups"], ...["project", "owner", "tag"].map((name2) => [name2, `by ${name2}`])];
  const options = offered.map(([value, text]) => h("option", { value, selected: value === given }, text));
  return h("select", { "aria-label": "group" }, options);
}
var set = (runs, values) => [...new Set(runs.flatMap(values).filter(Boolean))].sort();
var select = (name2, given) => h("select", { "aria-label": name2, "data-wanted": given.get(name2) ?? "" });
var searched2 = (run2) => [run2.project, run2.run, run2.owner, ...run2.tags, run2.verdict.kind, run2.verdict.why].join(" ").toLowerCase();

// src/fleetselection.js
var keyOf = (run2) => `${run2.project}/${run2.run}`;
var Selection = class {
  #keys = /* @__PURE__ */ new Set();
  #lines = [];
  #anchor = null;
  /** `changed` is called when runs are selected or deselected by a person. */
  constructor(changed) {
    this.changed = changed;
    this.every = h("input", { type: "checkbox", "aria-label": "Select every run that matches the filters" });
    this.every.addEventListener("change", () => this.#chooseEvery(this.every.checked));
  }
  has(run2) {
    return this.#keys.has(keyOf(run2));
  }
  get size() {
    return this.#keys.size;
  }
  keys() {
    return [...this.#keys];
  }
  /** Select exactly these runs. */
  set(keys) {
    this.#keys = new Set(keys);
    this.changed();
  }
  /** Take the lines in their order and the runs that match the filters; runs that no longer exist leave. */
  follow(lines3, matching, runs) {
    this.#lines = lines3;
    this.matching = matching;
    for (const key2 of this.#keys) if (!runs.has(key2)) this.#keys.delete(key2);
    const n = matching.filter((run2) => this.has(run2)).length;
    this.every.checked = n > 0 && n === matching.length;
    this.every.indeterminate = n > 0 && n < matching.length;
  }
  /** Select or deselect the run of a line; with Shift, every line from the one that was clicked last to this one. */
  choose(line4, isChosen, isRange) {
    const at = this.#lines.findIndex(({ key: key2 }) => key2 === line4.key);
    const from = isRange ? this.#lines.findIndex(({ key: key2 }) => key2 === this.#anchor) : -1;
    const range2 = at < 0 || from < 0 ? [line4] : this.#lines.slice(Math.min(at, from), Math.max(at, from) + 1);
    for (const { run: run2 } of range2) if (run2) this.#put(run2, isChosen);
    this.#anchor = line4.key;
    this.changed();
  }
  #chooseEvery(isChosen) {
    for (const run2 of this.matching) this.#put(run2, isChosen);
    this.changed();
  }
  #put(run2, isChosen) {
    if (isChosen) this.#keys.add(keyOf(run2));
    else this.#keys.delete(keyOf(run2));
  }
};

// src/fleetbulk.js
var AT_ONCE = 4;
var MOST_COMPARED = 8;
var NAMED4 = 100;
var NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]*";
var BulkBar = class {
  #working = null;
  #outcome = null;
  /** `found()` returns the fleet's runs by key; `changed(changes)` takes the new fields of runs by key. */
  constructor(selection, { found, changed }) {
    this.selection = selection;
    this.found = found;
    this.changed = changed;
    this.count = h("p", { role: "status", class: "strong" });
    this.buttons = h("div", { class: "row" });
    this.result = h("div", { role: "alert" });
    this.element = h(
      "section",
      { class: "card selected", "aria-label": "Selected runs", hidden: true },
      h("div", { class: "row" }, this.count, this.buttons),
      this.result
    );
  }
  draw() {
    const runs = this.#runs();
    const now2 = JSON.stringify([runs.map((run2) => [keyOf(run2), run2.archived, run2.tags]), this.#hidden(), this.#working]);
    this.element.hidden = runs.length === 0 && !this.#outcome;
    if (now2 === this.drawn) return;
    this.drawn = now2;
    const count = `${plural(runs.length, "run")} selected`;
    this.count.textContent = this.#working ?? (this.#hidden() ? `${count}, ${step(this.#hidden())} not shown` : count);
    fill(this.buttons, this.#actions(runs));
  }
  #runs() {
    return this.selection.keys().map((key2) => this.found().get(key2));
  }
  /** Return how many selected runs the filters hide. */
  #hidden() {
    if (!this.selection.size) return 0;
    const matching = new Set(this.selection.matching?.map(keyOf));
    return this.selection.keys().filter((key2) => !matching.has(key2)).length;
  }
  #actions(runs) {
    const disabled = this.#working !== null;
    const button = (text, act) => h("button", { disabled, onclick: () => act(runs) }, text);
    const matching = this.selection.matching ?? [];
    const isEvery = matching.every((run2) => this.selection.has(run2));
    return [
      runs.length > 0 && !isEvery && button(`Select all ${step(matching.length)}`, () => this.selection.set(union(this.selection, matching))),
      runs.length >= 2 && runs.length <= MOST_COMPARED && h("a", { class: "button", href: compareAddress(runs) }, "Compare"),
      runs.some((run2) => !run2.archived) && button("Archive", (given) => this.#archive(given, true)),
      runs.some((run2) => run2.archived) && button("Unarchive", (given) => this.#archive(given, false)),
      runs.length > 0 && [
        button("Owner …", (given) => this.#owner(given)),
        button("Add tag …", (given) => this.#addTag(given)),
        runs.some((run2) => run2.tags.length) && button("Remove tag …", (given) => this.#removeTag(given)),
        button("Note …", (given) => this.#note(given)),
        button("Delete …", (given) => this.#delete(given))
      ],
      button(runs.length ? "Clear" : "Close", () => this.#clear())
    ];
  }
  #clear() {
    this.#tell(null);
    this.selection.set([]);
  }
  #archive(runs, archived) {
    const words3 = archived ? ["Archiving", "archived"] : ["Unarchiving", "unarchived"];
    return this.#each(runs, words3, (run2) => change(run2, { archived }));
  }
  async #owner(runs) {
    const owners = [...new Set([...this.found().values()].map(({ owner: owner2 }) => owner2).filter(Boolean))].sort();
    const known3 = h("datalist", { id: "owners" }, owners.map((value) => h("option", { value })));
    const field = h("input", { required: true, maxlength: 128, list: "owners" });
    const isGiven = await this.#asked("Set the owner", runs, [h("label", {}, "Owner", field), known3], "Set owner");
    const owner = field.value.trim();
    if (isGiven) await this.#each(runs, ["Changing", "changed"], (run2) => change(run2, { owner }));
  }
  async #addTag(runs) {
    const title = "Letters, digits, '.', '_' and '-', a letter or digit first";
    const field = h("input", { required: true, maxlength: 128, pattern: NAME, title });
    const isGiven = await this.#asked("Add a tag", runs, [h("label", {}, "Tag", field)], "Add tag");
    if (isGiven) await this.#each(runs, ["Tagging", "tagged"], (run2) => change(run2, { add_tags: [field.value] }));
  }
  async #removeTag(runs) {
    const tags = [...new Set(runs.flatMap((run2) => run2.tags))].sort();
    const field = h("select", {}, tags.map((tag) => h("option", { value: tag }, tag)));
    const isGiven = await this.#asked("Remove a tag", runs, [h("label", {}, "Tag", field)], "Remove tag");
    const having = runs.filter((run2) => run2.tags.includes(field.value));
    if (isGiven) await this.#each(having, ["Changing", "changed"], (run2) => change(run2, { remove_tags: [field.value] }));
  }
  async #note(runs) {
    const text = h("textarea", { rows: 3, required: true, maxlength: 2e3 });
    let note = null;
    const isGiven = await this.#asked("Write a note", runs, [h("label", {}, "Note", text), author()], "Add note", (form) => {
      note = { text: text.value, author: said(form) };
    });
    const write3 = (run2) => send("POST", `${runPath(run2.project, run2.run)}/notes`, note);
    if (isGiven) await this.#each(runs, ["Writing to", "noted"], (run2) => write3(run2).then(() => run2));
  }
  async #delete(runs) {
    const n = String(runs.length);
    const field = h("input", { required: true, autocomplete: "off", inputmode: "numeric" });
    const fields = [
      h("p", {}, "All their data is deleted: steps, alerts and notes. This cannot be undone."),
      runs.length > 1 && h("label", {}, `Type the number of runs, ${n}, to confirm`, field)
    ];
    const isGiven = await this.#asked("Delete", runs, fields, `Delete ${plural(runs.length, "run")}`, () => {
      if (runs.length > 1 && field.value.trim() !== n) throw new Error(`Type ${n} to delete the ${n} runs.`);
    });
    const remove = (run2) => send("DELETE", runPath(run2.project, run2.run));
    if (isGiven) await this.#each(runs, ["Deleting", "deleted"], remove);
  }
  /** Ask in a dialog that names the runs; resolves to whether it was confirmed. */
  #asked(what, runs, fields, action2, check = () => {
  }) {
    const names2 = runs.slice(0, NAMED4).map((run2) => h("li", {}, keyOf(run2)));
    const more = runs.length > NAMED4 && h("li", {}, `and ${step(runs.length - NAMED4)} more`);
    return asked(`${what}: ${plural(runs.length, "run")}`, [h("ul", { class: "names" }, names2, more), fields], action2, check);
  }
  /** Change runs, a few at a time; those that fail stay selected, and each is named with its reason. */
  async #each(runs, [doing, did], act) {
    if (this.#working !== null) return;
    const waiting3 = [...runs];
    const changes = /* @__PURE__ */ new Map();
    const failures = /* @__PURE__ */ new Map();
    this.#tell(null);
    const work = async () => {
      for (let run2 = waiting3.shift(); run2; run2 = waiting3.shift()) {
        this.#working = `${doing} ${step(runs.length - waiting3.length)} of ${plural(runs.length, "run")} …`;
        this.draw();
        try {
          changes.set(keyOf(run2), await act(run2));
        } catch (error) {
          failures.set(refusal(error), [...failures.get(refusal(error)) ?? [], keyOf(run2)]);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    this.#working = null;
    const failed = [...failures.values()].flat();
    this.#tell(failed.length ? outcome2(changes.size, runs.length, did, failures) : null);
    if (failed.length) this.selection.set(failed);
    await this.changed(changes);
  }
  #tell(outcome3) {
    this.#outcome = outcome3;
    this.drawn = "";
    fill(this.result, outcome3);
    this.draw();
  }
};
var change = (run2, fields) => send("PATCH", runPath(run2.project, run2.run), fields);
var union = (selection, runs) => [...selection.keys(), ...runs.map(keyOf)];
function outcome2(n, of, did, failures) {
  const reasons = [...failures].map(([reason, keys]) => h("li", {}, `${keys.join(", ")}: ${reason}`));
  return [
    h("p", {}, `${step(n)} of ${plural(of, "run")} ${did}. Not ${did}:`),
    h("ul", { class: "failures" }, reasons)
  ];
}

// src/fleetcourses.js
var WAIT_MS = 80;
var MOST2 = 60;
var Courses = class {
  #known = /* @__PURE__ */ new Map();
  #wanted = [];
  #timer = null;
  /** `arrived` is called once runs have got their sparklines; `failed` gets an error. */
  constructor({ arrived, failed }) {
    Object.assign(this, { arrived, failed });
  }
  end() {
    clearTimeout(this.#timer);
  }
  /** Return runs with the sparklines that are known of them; those of an earlier step end in the newest value. */
  joined(runs) {
    for (const [key2, run2] of runs) if (!isBrief(run2)) this.#known.set(key2, run2);
    return new Map([...runs].map(([key2, run2]) => [key2, this.#joined(key2, run2)]));
  }
  /** Read the sparklines of runs in view that are not known, or of an earlier step. */
  follow(runs) {
    this.#wanted = runs.filter((run2) => isBrief(run2) || isOld(run2)).slice(0, MOST2);
    if (this.#wanted.length) this.#timer ??= setTimeout(() => this.#read(), WAIT_MS);
  }
  #joined(key2, run2) {
    const known3 = this.#known.get(key2);
    if (!known3 || !isBrief(run2)) return run2;
    return { ...run2, reward: continued(known3.reward, run2.reward), kl: continued(known3.kl, run2.kl) };
  }
  async #read() {
    try {
      const found = this.#wanted.length ? await get("/fleet/named", { runs: this.#wanted.map(keyOf).join() }) : [];
      for (const run2 of found) this.#known.set(keyOf(run2), run2);
      this.#timer = null;
      if (found.length) this.arrived(found);
    } catch (error) {
      this.#timer = null;
      this.failed(error);
    }
  }
};
var isOld = ({ judged_step: judged, reward, kl }) => judged > ((reward ?? kl)?.last_step ?? judged);
var continued = (known3, brief) => known3 && brief && { ...known3, values: [...known3.values.slice(0, -1), ...brief.values] };
var isBrief = ({ reward, kl }) => [reward, kl].some((line4) => line4 && line4.values.length < 2 && line4.first_step < line4.last_step);

// src/fleethead.js
var Head = class {
  #shown = "";
  constructor(turn2) {
    this.element = h("tr", { role: "row", class: "head" });
    this.turn = turn2;
  }
  /** Render a head; the DOM is untouched if nothing changed. */
  show({ key: key2, head, text, members, isOpen, kind }) {
    const now2 = JSON.stringify([head, text, members.length, isOpen]);
    if (now2 === this.#shown) return;
    this.#shown = now2;
    this.element.dataset.kind = kind;
    this.element.dataset.need = kind === "stalled" ? "now" : "none";
    const said4 = kind === "stalled" ? text : `${plural(members.length, "run")}: ${text}`;
    const button = h(
      "button",
      { class: "plain oneline", "aria-expanded": String(isOpen), title: said4, onclick: () => this.turn(key2) },
      h("span", { class: `kind kind-${kind}` }, head),
      " ",
      h("span", { class: "why" }, said4)
    );
    fill(this.element, h("td", { role: "cell", "aria-colspan": "10" }, button));
  }
};

// src/fleetlines.js
var TOGETHER_SECONDS = 120;
var FEWEST = 3;
var NAMES = { project: (run2) => [run2.project], owner: (run2) => [run2.owner], tag: (run2) => run2.tags };
function linesOf2(runs, { group, isByVerdict, turned }) {
  if (!NAMES[group]) return isByVerdict ? joined(runs, "", turned) : runs.map((run2) => line2(run2, ""));
  return [...grouped(runs, NAMES[group])].flatMap(([name2, members]) => {
    const key2 = `group ${name2 ?? ""}`;
    const isOpen = !turned.has(key2);
    const head = { key: key2, head: name2 ?? `no ${group}`, text: answer(members), members, isOpen, kind: "group" };
    if (!isOpen) return [head];
    return [head, ...isByVerdict ? joined(members, key2, turned) : members.map((run2) => line2(run2, key2))];
  });
}
var line2 = (run2, under) => ({ key: `${under} ${keyOf(run2)}`, run: run2 });
function joined(runs, under, turned) {
  const together = stalledTogether(runs);
  const shown2 = /* @__PURE__ */ new Set();
  return runs.flatMap((run2) => {
    const members = together.get(run2);
    if (!members) return [line2(run2, under)];
    if (shown2.has(members)) return [];
    shown2.add(members);
    const key2 = `stalled ${under} ${members.map(keyOf).sort()[0]}`;
    const isOpen = turned.has(key2);
    const since2 = Math.min(...members.map((member) => member.last_report_at));
    const text = `${plural(members.length, "run")} stopped reporting together, ${ago(since2)}`;
    const head = { key: key2, head: "Stalled", text, members, isOpen, kind: "stalled" };
    return isOpen ? [head, ...members.map((member) => line2(member, key2))] : [head];
  });
}
function stalledTogether(runs) {
  const stalled = runs.filter((run2) => run2.verdict.kind === "stalled" && run2.verdict.need === "now" && run2.last_report_at);
  stalled.sort((a, b) => a.last_report_at - b.last_report_at);
  const found = /* @__PURE__ */ new Map();
  for (let from = 0; from < stalled.length; ) {
    const until = stalled.findIndex((run2) => run2.last_report_at > stalled[from].last_report_at + TOGETHER_SECONDS);
    const members = stalled.slice(from, until < 0 ? stalled.length : until);
    if (members.length >= FEWEST) {
      const known3 = new Set(members);
      const ordered = runs.filter((run2) => known3.has(run2));
      for (const run2 of members) found.set(run2, ordered);
    }
    from += members.length;
  }
  return found;
}
function grouped(runs, names2) {
  const groups = /* @__PURE__ */ new Map();
  for (const run2 of runs) {
    const given = names2(run2);
    for (const name2 of given.length ? given : [null]) {
      if (!groups.has(name2)) groups.set(name2, []);
      groups.get(name2).push(run2);
    }
  }
  return groups;
}

// src/virtuallist.js
var AROUND = 8;
var VirtualList = class {
  #views = /* @__PURE__ */ new Map();
  #lines = [];
  #asked = 0;
  /** `made(line)` returns a view of a line: its `element`, and `show(line)`, which renders it; `seen(lines)` is called
   *  with the lines that are in the document, each time they may have changed. */
  constructor(body, made, seen2) {
    Object.assign(this, { body, made, seen: seen2 });
    this.moved = () => this.#asked ||= requestAnimationFrame(() => this.#draw());
    window.addEventListener("scroll", this.moved, { passive: true });
    window.addEventListener("resize", this.moved);
  }
  /** Stop following the window. */
  end() {
    cancelAnimationFrame(this.#asked);
    window.removeEventListener("scroll", this.moved);
    window.removeEventListener("resize", this.moved);
  }
  /** Show lines, each with a `key` of its own. */
  show(lines3) {
    this.#lines = lines3;
    const keys = new Set(lines3.map(({ key: key2 }) => key2));
    for (const key2 of this.#views.keys()) if (!keys.has(key2)) this.#views.delete(key2);
    this.#draw();
  }
  /** Return the index of the line that holds an element; -1 for none. */
  indexOf(element) {
    const row = element?.closest?.("tr");
    return row && this.body.contains(row) ? Number(row.getAttribute("aria-rowindex")) - 2 : -1;
  }
  /** Bring a line into view and focus its link or button. */
  focus(index) {
    const line4 = this.#lines[index];
    if (!line4) return;
    const height = this.#height();
    const top = this.body.getBoundingClientRect().top + index * height;
    const above = (this.body.previousElementSibling?.getBoundingClientRect().bottom ?? 0) + height / 2;
    if (top < above) window.scrollBy(0, top - above);
    else if (top + height > window.innerHeight) window.scrollBy(0, top + 1.5 * height - window.innerHeight);
    this.#draw();
    this.#views.get(line4.key)?.element.querySelector("a.run, button")?.focus({ preventScroll: true });
  }
  #height() {
    return parseFloat(getComputedStyle(this.body).getPropertyValue("--line-height"));
  }
  #draw() {
    this.#asked = 0;
    const height = this.#height();
    const top = this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / height) - AROUND);
    const end = Math.ceil((window.innerHeight - top) / height) + AROUND;
    const focused = this.indexOf(document.activeElement);
    const focusedKey = this.body.contains(document.activeElement) ? [...this.#views].find(([, view]) => view.element.contains(document.activeElement))?.[0] : null;
    const shown2 = this.#lines.map((line4, index) => ({ line: line4, index })).filter(({ line: line4, index }) => index >= first && index < end || focused >= 0 && line4.key === focusedKey);
    this.body.style.height = `${this.#lines.length * height}px`;
    this.body.parentElement?.setAttribute("aria-rowcount", this.#lines.length + 1);
    const elements = shown2.map(({ line: line4, index }) => this.#placed(line4, index, height));
    moving(() => this.#put(elements));
    const kept2 = new Set(shown2.map(({ line: line4 }) => line4.key));
    for (const key2 of this.#views.keys()) if (!kept2.has(key2)) this.#views.delete(key2);
    this.seen(shown2.map(({ line: line4 }) => line4));
  }
  #placed(line4, index, height) {
    if (!this.#views.has(line4.key)) this.#views.set(line4.key, this.made(line4));
    const view = this.#views.get(line4.key);
    view.show(line4);
    view.element.style.top = `${index * height}px`;
    view.element.setAttribute("aria-rowindex", index + 2);
    return view.element;
  }
  /** Put the elements in order, moving as few as possible. */
  #put(elements) {
    const kept2 = new Set(elements);
    for (const child of [...this.body.children]) if (!kept2.has(child)) child.remove();
    elements.forEach((element, i) => {
      if (this.body.children[i] !== element) this.body.insertBefore(element, this.body.children[i] ?? null);
    });
  }
};

// src/fleet.js
var FIRST = 25;
var PAGE3 = 500;
var MOST_SINGLY = 8;
var REFRESH_MS3 = 2e3;
var EVERY_MS2 = 3e4;
async function mountFleet(stage2, { live: live2 }) {
  const fleet = new Fleet(stage2);
  try {
    await fleet.read();
  } catch (error) {
    fleet.end();
    throw error;
  }
  const heard2 = ({ detail }) => fleet.heard(`${detail.data.project}/${detail.data.run}`);
  const back = () => live2.state === "live" && fleet.due();
  live2.addEventListener("event", heard2);
  live2.addEventListener("state", back);
  const timer = setInterval(() => fleet.refresh(), REFRESH_MS3);
  document.addEventListener("keydown", fleet.keys);
  return () => {
    fleet.end();
    clearInterval(timer);
    live2.removeEventListener("event", heard2);
    live2.removeEventListener("state", back);
    document.removeEventListener("keydown", fleet.keys);
  };
}
var Fleet = class {
  runs = /* @__PURE__ */ new Map();
  #changed = /* @__PURE__ */ new Set();
  #readAt = 0;
  #turn = 0;
  #isReading = false;
  #isFramed = false;
  #turned = /* @__PURE__ */ new Set();
  constructor(stage2) {
    this.stage = stage2;
    this.title = h("h1", {});
    this.under = h("p", { class: "quiet" });
    this.body = h("tbody", { role: "rowgroup" });
    this.selection = new Selection(() => this.draw());
    this.bulk = new BulkBar(this.selection, { found: () => this.runs, changed: (runs) => this.#changedByHand(runs) });
    this.courses = new Courses({ arrived: (runs) => this.#drawn(runs), failed: (error) => this.#failed(error) });
    const made = (line4) => line4.run ? new Row(this.selection) : new Head((key2) => this.#toggle(key2));
    this.list = new VirtualList(this.body, made, (lines3) => this.courses.follow(lines3.flatMap(({ run: run2 }) => run2 ?? [])));
    this.controls = controls(() => this.draw());
    this.keys = (event) => this.#key(event);
  }
  end() {
    this.#turn++;
    this.list.end();
    this.courses.end();
  }
  /** Read everything at the next refresh: events may have been missed. */
  due() {
    this.#readAt = 0;
  }
  /** Read every page; the first is rendered before the second is requested. A later read takes the place of this one. */
  async read() {
    const turn2 = ++this.#turn;
    this.#isReading = true;
    try {
      await this.#readPages(turn2);
    } finally {
      if (turn2 === this.#turn) this.#isReading = false;
    }
  }
  async #readPages(turn2) {
    const isFirst = this.runs.size === 0;
    this.#readAt = Date.now();
    this.#changed.clear();
    const found = /* @__PURE__ */ new Map();
    let after = null;
    do {
      const size = isFirst && !after ? { limit: FIRST } : { limit: PAGE3, brief: true };
      const page = await get("/fleet", { after, ...size, archived: this.controls.archived() || null });
      if (turn2 !== this.#turn) return;
      for (const run2 of page.items) found.set(keyOf(run2), run2);
      after = page.next;
      if (after && this.runs.size === 0) {
        await this.#show(new Map(found), turn2);
        this.under.textContent = "loading more runs …";
      }
    } while (after);
    await this.#show(found, turn2);
  }
  heard(key2) {
    this.#changed.add(key2);
  }
  /** Read what changed since, and the runs that the service had no time to compute. */
  async refresh() {
    if (this.#isReading) return;
    const unseen = [...this.runs].filter(([, run2]) => run2.step !== null && !run2.reward).map(([key2]) => key2);
    const wanted = /* @__PURE__ */ new Set([...this.#changed, ...unseen]);
    for (const key2 of this.#ahead()) if (wanted.size < MOST_SINGLY) wanted.add(key2);
    try {
      if (wanted.size > MOST_SINGLY || Date.now() - this.#readAt > EVERY_MS2) return await this.read();
      if (wanted.size) await this.#readSingly(wanted);
    } catch (error) {
      this.#failed(error);
    }
  }
  #failed(error) {
    if (error.status === 401) this.stage.fail(error);
  }
  /** Draw runs whose sparklines have arrived. */
  #drawn(found) {
    const known3 = found.filter((run2) => this.runs.has(keyOf(run2)));
    this.runs = new Map([...this.runs, ...known3.map((run2) => [keyOf(run2), run2])]);
    this.draw();
  }
  /** Return the runs that are further on than their verdicts; those first that no event will come of any more. */
  #ahead() {
    const ahead = [...this.runs].filter(([, run2]) => isAhead(run2));
    return ahead.sort(([, a], [, b]) => a.last_report_at - b.last_report_at).map(([key2]) => key2);
  }
  /** Read runs one by one; a run that is not found any more, or was archived or taken back, leaves the list. */
  async #readSingly(keys) {
    const turn2 = ++this.#turn;
    this.#changed.clear();
    const found = await Promise.all([...keys].map(async (key2) => [key2, await orNothing(get(`/fleet/${path(key2)}`))]));
    if (turn2 !== this.#turn) return;
    const runs = new Map(this.runs);
    for (const [key2, run2] of found) {
      if (run2 && run2.archived === this.controls.archived()) runs.set(key2, run2);
      else runs.delete(key2);
    }
    await this.#show(runs, turn2);
  }
  /** Show at once what a person changed, { key: new fields, or null for a deleted run }, then read it. */
  async #changedByHand(changes) {
    const runs = new Map(this.runs);
    for (const [key2, change2] of changes) {
      const run2 = change2 && { ...runs.get(key2), owner: change2.owner, tags: change2.tags, archived: change2.archived };
      if (run2 && run2.archived === this.controls.archived()) runs.set(key2, run2);
      else runs.delete(key2);
    }
    await this.#show(runs, ++this.#turn);
    await this.read();
  }
  async #show(runs, turn2) {
    this.runs = this.courses.joined(runs);
    if (runs.size === 0) {
      this.#isFramed = false;
      const archived = this.controls.archived() || (await get("/fleet", { archived: true, limit: 1 })).items.length;
      if (turn2 !== this.#turn) return;
      return this.stage.show(archived ? noneActive(this.controls.archived()) : newService(location.origin));
    }
    if (!this.#isFramed) this.#frame();
    this.draw();
  }
  #frame() {
    this.#isFramed = true;
    const all2 = h("th", { role: "columnheader", scope: "col", "data-name": "select" }, this.selection.every);
    const heads = [all2, ...COLUMNS.map((column) => this.controls.head(column))];
    const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": "1" }, heads));
    const table3 = h("table", { class: "fleet", role: "table", "aria-label": "Runs" }, head, this.body);
    this.none = h(
      "p",
      { class: "notice row", hidden: true },
      h("span", { class: "quiet" }, "No run matches these filters."),
      h("button", { onclick: () => this.controls.clear() }, "Show all runs")
    );
    this.stage.show(
      h("header", {}, this.title, this.under),
      this.controls.bar,
      h("div", { class: "card" }, table3, this.none),
      this.bulk.element
    );
  }
  /** Put the lines in order; unchanged lines are reused. */
  draw() {
    const runs = [...this.runs.values()];
    this.title.textContent = answer(runs);
    this.stage.title(headline(runs));
    this.controls.offer(runs);
    const chosen = this.controls.chosen(runs);
    this.under.textContent = this.controls.said(chosen.length, runs.length);
    this.none.hidden = chosen.length > 0;
    const isByVerdict = this.controls.isByVerdict();
    const lines3 = linesOf2(chosen, { group: this.controls.group.value, isByVerdict, turned: this.#turned });
    this.selection.follow(lines3, chosen, this.runs);
    this.list.show(lines3);
    this.bulk.draw();
  }
  #toggle(key2) {
    if (!this.#turned.delete(key2)) this.#turned.add(key2);
    this.draw();
  }
  #key(event) {
    const by = { j: 1, k: -1 }[event.key];
    if (typing(event.target) || document.querySelector("dialog") || event.metaKey || event.ctrlKey || event.altKey) return;
    if (event.key === "x") document.activeElement.closest("tbody tr")?.querySelector("[type=checkbox]")?.click();
    if (!by) return;
    const last2 = Number(this.body.parentElement?.getAttribute("aria-rowcount")) - 2;
    const at = this.list.indexOf(document.activeElement);
    this.list.focus(Math.min(Math.max(at + by, 0), last2));
  }
};
var path = (key2) => key2.split("/").map(encodeURIComponent).join("/");

// src/live.js
var SILENT_MS = 4e4;
var WAITS_MS = [500, 1e3, 2e3, 5e3, 1e4];
var Live = class extends EventTarget {
  state = "connecting";
  heardAt = null;
  #last = null;
  #failures = 0;
  #abort = null;
  #resume = () => {
  };
  /** Stream events until the page closes; dispatches "event" with { kind, data }, and "state". Only a visible tab holds
   *  a connection: a browser opens at most six per host over HTTP/1.1, and one more tab would never load. */
  async start() {
    document.addEventListener("visibilitychange", () => document.hidden ? this.#abort?.abort() : this.restart());
    for (; ; ) {
      await seen();
      await this.#follow().catch((error) => this.#lost(error));
      await this.#pause();
    }
  }
  /** Reconnect at once, e.g. with another token. */
  restart() {
    this.#failures = 0;
    this.#resume();
    this.#abort?.abort();
  }
  /** Back off before the next attempt; without a valid token, wait for a new one. */
  #pause() {
    const milliseconds = WAITS_MS[Math.min(this.#failures++, WAITS_MS.length - 1)];
    return new Promise((done) => {
      this.#resume = done;
      if (this.state !== "signed out") setTimeout(done, milliseconds);
    });
  }
  async #follow() {
    this.#abort = new AbortController();
    const place = this.#last === null ? {} : { "Last-Event-ID": this.#last };
    const answer2 = await fetch("/api/v1/events", { headers: headers(place), signal: this.#abort.signal });
    if (!answer2.ok) throw Object.assign(new Error("refused"), { status: answer2.status });
    this.#heard();
    const watchdog = setInterval(() => this.#silent() && this.#abort.abort(), 5e3);
    try {
      for await (const block of blocks(answer2.body)) this.#take(block);
    } finally {
      clearInterval(watchdog);
    }
    this.#lost();
  }
  #take(block) {
    this.#heard();
    const fields = Object.fromEntries(block.split("\n").map((line4) => split(line4)));
    if (fields.id) this.#last = fields.id;
    if (!fields.data) return;
    const detail = { kind: fields.event, data: JSON.parse(fields.data) };
    this.dispatchEvent(new CustomEvent("event", { detail }));
  }
  #heard() {
    this.heardAt = Date.now();
    this.#failures = 0;
    this.#become("live");
  }
  #silent() {
    return Date.now() - this.heardAt > SILENT_MS;
  }
  #lost(error) {
    this.#become(error?.status === 401 ? "signed out" : "reconnecting");
  }
  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
};
function seen() {
  return new Promise((done) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });
}
async function* blocks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting3 = "";
  for (; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (waiting3 + value).split("\n\n");
    waiting3 = parts.pop();
    yield* parts;
  }
}
function split(line4) {
  const colon = line4.indexOf(":");
  return [line4.slice(0, colon), line4.slice(colon + 1).trimStart()];
}

// src/livebadge.js
var WORDS2 = { connecting: "connecting", reconnecting: "reconnecting", "signed out": "signed out" };
var heard = ({ heardAt }) => Date.now() - heardAt < 1e3 ? "now" : `${span((Date.now() - heardAt) / 1e3)} ago`;
function watch(badge2, live2) {
  let isOver = false;
  const show2 = () => {
    const isLive = live2.state === "live" && reach.isGood;
    badge2.dataset.state = isLive || live2.state !== "live" ? live2.state : "reconnecting";
    if (isLive) badge2.textContent = isOver ? "up to date" : `live · ${heard(live2)}`;
    else badge2.textContent = live2.state === "live" ? "no answer" : WORDS2[live2.state];
  };
  live2.addEventListener("state", show2);
  live2.addEventListener("event", show2);
  reach.addEventListener("change", show2);
  setInterval(show2, 1e3);
  show2();
  return (over) => {
    isOver = over;
    show2();
  };
}

// src/notfound.js
function notFound(root2, path3) {
  document.title = "Not found · trmon";
  fill(
    root2,
    h(
      "section",
      { class: "card empty stack", role: "alert" },
      h("h1", {}, "Nothing is at this address."),
      h("p", {}, "There is no page ", h("code", {}, path3), ". Runs are at ", h("code", {}, "/runs/PROJECT/RUN"), "."),
      h("p", {}, h("a", { href: "/" }, "All runs"), " · ", h("a", { href: "/alerts" }, "Alerts"))
    )
  );
}

// src/rule.js
async function mountRule(stage2, { parameters: [name2] }) {
  const rule = await get(`/rules/${encodeURIComponent(name2)}`);
  stage2.title(rule.name);
  stage2.show(
    h("header", {}, h("h1", {}, rule.name.replaceAll("_", " "))),
    h(
      "section",
      { class: "card stack rule" },
      h("p", {}, rule.meaning || rule.summary),
      h("h2", {}, "What to do"),
      h("p", { class: "strong" }, rule.runbook || "The rule names nothing to do."),
      h("h2", {}, "When it fires"),
      list(rule.fires_when.map(({ words: words3, depth }) => h("li", { class: `deep-${Math.min(depth, 3)}` }, code(words3)))),
      list(rule.terms.map((term) => h("li", {}, code(term))))
    )
  );
  return () => {
  };
}
var list = (items) => h("ul", {}, items);
var code = (text) => text.split("`").map((part2, i) => i % 2 ? h("code", {}, part2) : part2);

// src/budgetsection.js
var BudgetSection = class {
  #body = h("div", {});
  #details = h(
    "details",
    { class: "card panel", ontoggle: () => this.follow() },
    h("summary", {}, "Budget: mismatch, lag, advice by pipeline"),
    this.#body
  );
  element = h("section", { "aria-label": "Budget" }, this.#details);
  #said = null;
  constructor(path3) {
    this.path = path3;
  }
  /** Read the budget anew while it is open; a request that fails is repeated with the next update. */
  async follow() {
    if (!this.#details.open) return;
    try {
      const [{ budgetOf }, found] = await Promise.all([import("/static/budget.js"), orNothing(get(`${this.path}/budget`))]);
      const said4 = JSON.stringify(found);
      if (this.#said === said4) return;
      this.#said = said4;
      refill(this.#body, found ? budgetOf(found) : h("p", { class: "quiet" }, "No batch has closed yet."));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (this.#said === null) fill(this.#body, h("p", { class: "quiet" }, error.message));
    }
  }
};

// src/reasons.js
var SHOWN2 = 3;
var ReasonsChart = class extends Figure {
  #found = { steps: [], mask_rate: [], reasons: {} };
  #asked = 0;
  constructor({ uPlot, course: course2, open }) {
    super({ uPlot, course: course2, open, title: "Masked, by reason", label: "Masked" });
  }
  shows(evidence) {
    return evidence.has("mask_rate");
  }
  make() {
    this.canvas.make({ n: Math.max(this.#names().length, 1), banded: false, from: 0 });
    this.#draw();
  }
  /** Read the displayed steps; if responses overtake each other, the newest request wins. */
  async data() {
    const turn2 = ++this.#asked;
    const [from, to] = this.course.view;
    const found = await get(`${this.course.path}/reasons`, {
      from,
      to,
      attempt_id: this.course.attempt,
      points: 200
    }).catch(() => null);
    if (!found || turn2 !== this.#asked) return;
    const before2 = this.#names().join();
    this.#found = found;
    if (this.#names().join() === before2) this.#draw();
    else this.make();
  }
  #names() {
    const total = (name2) => this.#found.reasons[name2].reduce((sum, share2) => sum + share2, 0);
    return Object.keys(this.#found.reasons).sort((a, b) => total(b) - total(a)).slice(0, SHOWN2);
  }
  #draw() {
    const names2 = this.#names();
    const columns = names2.length ? names2.map((name2) => this.#found.reasons[name2]) : [this.#found.mask_rate];
    this.canvas.data([this.#found.steps, ...columns]);
    fill(
      this.legend,
      names2.map((name2, i) => h("span", { class: `legend line-${i}` }, name2))
    );
    this.say(null);
  }
  lines(at) {
    const { steps, mask_rate: rates, reasons } = this.#found;
    const values = this.#names().map((name2) => `${name2} ${percent(reasons[name2][at])}`);
    return [`step ${step(steps[at])}`, `masked ${percent(rates[at])}`, ...values];
  }
  rows() {
    const { steps, mask_rate: rates, reasons } = this.#found;
    const names2 = Object.keys(reasons);
    const body = steps.map((at, i) => [at, rates[i], ...names2.map((name2) => reasons[name2][i])]);
    return [["step", "masked (fraction)", ...names2.map((name2) => `${name2} (fraction)`)], ...body];
  }
  say(at) {
    const { steps, mask_rate: rates } = this.#found;
    const place = at === null ? rates.length - 1 : at;
    this.now.textContent = percent(rates[place]);
    this.against.textContent = at === null ? `initially ${percent(rates[0])}` : `step ${step(steps[place])}`;
  }
};

// src/skeleton.js
var FIGURES = 9;
var ROWS = 12;
var bone = (kind) => h("span", { class: `bone ${kind}` });
var several = (n, made) => Array.from({ length: n }, made);
var heading = (...more) => h("header", {}, bone("title"), more);
var filters = () => h("div", { class: "row controls" }, bone("field"), bone("field narrow"));
var words = (n) => h("div", { class: "card panel stack" }, several(n, () => bone("line")));
var rows = (kind) => h("div", { class: "card" }, several(ROWS, () => h("div", { class: `bones ${kind}` }, bone("line"))));
var SHAPES = {
  fleet: () => [heading(bone("title narrow"), bone("line half")), filters(), rows("run-line")],
  alerts: () => [heading(bone("field narrow")), filters(), bone("subtitle"), rows("alert-line")],
  run: () => [
    heading(bone("field narrow"), bone("line half"), bone("line third")),
    h("div", { class: "card diagnosis" }, h("div", { class: "stack" }, several(5, () => bone("line")))),
    h("div", { class: "rangebar" }, bone("field")),
    h("div", { class: "charts" }, figures(FIGURES))
  ],
  compare: () => [heading(), words(4), h("div", { class: "charts" }, figures(FIGURES))],
  rule: () => [heading(), words(6)]
};
function skeleton(view) {
  const said4 = h("p", { class: "sr", role: "status" }, "Loading …");
  return [said4, h("div", { class: "skeleton", "aria-hidden": "true" }, SHAPES[view]())];
}
function figures(n) {
  return several(n, () => h("figure", { class: "card panel", "aria-hidden": "true" }, bone("caption"), bone("plot")));
}
var lines2 = (n) => several(n, () => h("span", { class: "bone line", "aria-hidden": "true" }));

// src/charts.js
var Charts = class {
  element = h("section", { class: "charts", "aria-label": "Charts" });
  #charts = [];
  #panels = null;
  #facts = null;
  constructor(course2, open) {
    this.course = course2;
    this.open = open;
    course2.addEventListener("view", () => this.#each((chart) => chart.range()));
    course2.addEventListener("series", () => this.#draw());
    course2.addEventListener("markers", () => this.redraw());
    course2.addEventListener("axis", () => this.#each((chart) => chart.make()));
    this.theme = () => this.#each((chart) => chart.make());
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", this.theme);
    window.addEventListener("themechange", this.theme);
  }
  /** Draw the charts once the library is loaded; until then, shapes take their room. */
  async begin() {
    const n = this.course.panels.length;
    if (n) fill(this.element, figures(n + 1));
    this.uPlot = await plot();
    this.#draw();
  }
  redraw() {
    this.#each((chart) => chart.redraw());
  }
  /** Outline the charts that show evidence of the finding, and tell that of the risk what drives it. */
  outline(facts) {
    const { diagnosis, judged } = this.#facts = facts;
    const evidence = new Set((diagnosis?.observed ?? []).flatMap((found) => found.evidence.map((item2) => item2.signal)));
    const kind = ["act", "watch"].includes(judged.verdict.kind) ? judged.verdict.kind : "";
    this.#each((chart) => chart.element.dataset.evidence = chart.shows(evidence) ? kind : "");
    this.#each((chart) => chart.learn?.(facts));
  }
  end() {
    this.system.removeEventListener("change", this.theme);
    window.removeEventListener("themechange", this.theme);
    this.#each((chart) => chart.end());
  }
  #draw() {
    if (!this.uPlot) return;
    if (this.#panels !== this.course.panels && this.course.panels.length) this.#frame();
    this.#each((chart) => chart.data());
  }
  #frame() {
    const { uPlot, course: course2, open } = this;
    this.#panels = course2.panels;
    this.#each((chart) => chart.end());
    this.#charts = course2.panels.map((panel) => new (panel.isRisk ? RiskChart : Chart)({ uPlot, course: course2, panel, open }));
    this.#charts.splice(5, 0, new ReasonsChart({ uPlot, course: course2, open }));
    fill(
      this.element,
      this.#charts.map((chart) => chart.element)
    );
    this.#each((chart) => chart.make());
    if (this.#facts) this.outline(this.#facts);
  }
  #each(act) {
    this.#charts.forEach(act);
  }
};

// src/permalink.js
var NUMBERS = ["step", "from", "to", "attempt"];
function read2() {
  const given = new URLSearchParams(location.search);
  const numbers = NUMBERS.map((name2) => [name2, /^\d+$/.test(given.get(name2) ?? "") ? Number(given.get(name2)) : null]);
  return { ...Object.fromEntries(numbers), tab: given.get("tab"), by: given.get("by") };
}
function write2(changes, path3 = location.pathname) {
  if (path3 !== location.pathname) return;
  const kept2 = new URLSearchParams(location.search);
  for (const [name2, value] of Object.entries(changes)) {
    if (value === null) kept2.delete(name2);
    else kept2.set(name2, value);
  }
  const query = kept2.toString().replaceAll("%2C", ",");
  history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
}

// src/course.js
var POINTS = 320;
var WAIT_MS2 = 120;
var LEAST_STEPS = 10;
var Course = class extends EventTarget {
  chosen = null;
  markers = [];
  extent = [0, 1];
  view = [0, 1];
  byTime = false;
  #timer = null;
  #asked = null;
  #fits = true;
  names = /* @__PURE__ */ new Set();
  constructor(path3, given) {
    super();
    this.path = path3;
    this.attempt = given.attempt;
    this.given = given;
    this.byTime = given.by === "time";
  }
  /** Draw charts over the time at which steps closed, or over steps. */
  drawBy(byTime) {
    this.byTime = byTime;
    write2({ by: byTime ? "time" : null }, this.path);
    this.dispatchEvent(new Event("axis"));
  }
  /** Return where a step lies on the horizontal axis: itself, or when it closed in seconds since the epoch. */
  position(at) {
    return this.byTime ? interpolated(this.series.step, this.series.closed_at, at) : at;
  }
  /** Return the step at a place on the horizontal axis. */
  stepAt(place) {
    return this.byTime ? interpolated(this.series.closed_at, this.series.step, place) : place;
  }
  async begin() {
    const [catalogue] = await Promise.all([get("/signals").then(byName), this.#learn()]);
    this.catalogue = catalogue;
    await this.#readAll();
    if (this.given.from !== null && this.given.to !== null) this.show(this.given.from, this.given.to);
  }
  /** Read the newest steps; a view of all steps grows with the run. */
  async follow() {
    await this.#learn();
    return this.#readDrawn();
  }
  /** Whether the newest step is displayed. */
  get isAtEnd() {
    return this.view[1] >= this.extent[1];
  }
  /** Return the typical distance in steps between two reports. */
  get stride() {
    const { step: steps, count } = this.series;
    const later2 = count.slice(1).reduce((sum, n) => sum + n, 0);
    return later2 ? Math.max((steps.at(-1) - steps[0]) / later2, 1) : 1;
  }
  /** Display other steps: with cached data at once, in full resolution once it is read. No range means all steps. */
  show(from = this.extent[0], to = this.extent[1]) {
    const [first, last2] = this.extent;
    const width = Math.min(Math.max(to - from, LEAST_STEPS), Math.max(last2 - first, 1));
    const start = Math.min(Math.max(from, first), last2 - width);
    this.view = [Math.round(start), Math.round(start + width)];
    this.#fits = this.view[0] <= first && this.view[1] >= last2;
    this.dispatchEvent(new Event("view"));
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#settle(), WAIT_MS2);
  }
  /** Pan by a fraction of the displayed range. */
  pan(share2) {
    const by = (this.view[1] - this.view[0]) * share2;
    this.show(this.view[0] + by, this.view[1] + by);
  }
  /** Zoom the displayed range by `factor`, around the middle or around a step. */
  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    this.show(around - (around - this.view[0]) * factor, around + (this.view[1] - around) * factor);
  }
  /** Return the displayed step next to a step. */
  beside(step2, by) {
    const steps = this.series.step;
    const at = steps.findIndex((other) => other >= step2);
    return steps[Math.min(Math.max((at < 0 ? steps.length : at) + by, 0), steps.length - 1)];
  }
  /** Return the markers within some steps of a step. */
  markersNear(at, within) {
    return this.markers.filter((marker) => Math.abs(marker.step - at) <= within);
  }
  /** Record the steps at which alerts began, policies changed and notes were written. */
  mark({ run: run2, alerts: alerts2, policies, notes }) {
    this.extent = [this.extent[0], Math.max(this.extent[1], this.#fits ? 0 : run2.last_step)];
    const of = alerts2.items.filter((alert) => alert.severity !== "info");
    this.markers = [
      ...of.map((alert) => ({ step: alert.step, kind: alert.severity === "page" ? "act" : "watch", what: alert.title })),
      ...policies.slice(1).map((version) => ({ step: this.stepOf(version), kind: "policy", what: `policy ${version.name}` })),
      ...notes.filter((note) => note.step !== null).map((note) => ({ step: note.step, kind: "note", what: `note: ${note.text}` }))
    ].sort((a, b) => a.step - b.step);
    this.dispatchEvent(new Event("markers"));
  }
  end() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
  }
  /** Record which signals exist; some appear at a later step. */
  async #learn() {
    const found = /* @__PURE__ */ new Set([...this.names, ...await get(`${this.path}/signals/names`)]);
    if (this.panels && found.size === this.names.size) return;
    this.names = found;
    this.panels = signalsOf(found);
  }
  /** Read the displayed range; a newer request replaces one that is in flight. */
  async #readDrawn() {
    try {
      await (this.#fits ? this.#readAll() : this.#readView());
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }
  async #readAll() {
    this.series = await this.#read({});
    this.whole = this.series;
    const { step: steps, count } = this.series;
    if (steps.length) this.extent = [Math.max(steps[0] - count[0] + 1, 0), Math.max(steps.at(-1), steps[0] + 1)];
    if (this.#fits) this.view = [...this.extent];
    this.dispatchEvent(new Event("series"));
  }
  async #readView() {
    const width = this.view[1] - this.view[0];
    const range2 = { from: Math.max(0, this.view[0] - width), to: this.view[1] + width };
    this.series = await this.#read({ ...range2, points: 3 * POINTS });
    this.dispatchEvent(new Event("series"));
  }
  #read(query) {
    const names2 = this.panels.flatMap((panel) => panel.names).join(",");
    if (!names2) return { exact: true, step: [], count: [], closed_at: [], signals: {} };
    this.#asked?.abort();
    this.#asked = new AbortController();
    const detail = { statistics: "mean,min,max", digits: 5, points: POINTS, attempt_id: this.attempt };
    return get(`${this.path}/signals`, { names: names2, ...detail, ...query }, { signal: this.#asked.signal });
  }
  async #settle() {
    write2(this.#fits ? { from: null, to: null } : { from: this.view[0], to: this.view[1] }, this.path);
    await this.#readDrawn().catch((error) => {
      if (!(error instanceof ApiError)) throw error;
    });
  }
  /** Return the first step that used a version of the policy. */
  stepOf(version) {
    if (version.from_step) return version.from_step;
    const { step: steps, closed_at: closed } = [this.whole, this.series].find((series) => series.closed_at.at(-1) >= version.created_at) ?? {};
    return closed ? steps[closed.findIndex((at) => at >= version.created_at)] : this.extent[1];
  }
};
var byName = (specs) => new Map(specs.map((spec) => [spec.name, spec]));
function interpolated(xs, ys, x) {
  if (xs.length < 2) return ys[0] ?? x;
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = low + high >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  const width = xs[high] - xs[low];
  return width > 0 ? ys[low] + (x - xs[low]) / width * (ys[high] - ys[low]) : ys[low];
}

// src/copybutton.js
var SHOWN_MS = 2e3;
function copyButton(label, text, given = {}) {
  return h("button", { ...given, onclick: (event) => copy(event.currentTarget, { label, text: text() }) }, label);
}
async function copy(button, { label, text }) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => button.textContent = label, SHOWN_MS);
  } catch {
    prompt("Copy this", text);
  }
}

// src/evidence.js
function evidenceTable(found, { catalogue, open }) {
  const seen2 = /* @__PURE__ */ new Set();
  const items = found.flatMap((one) => one.evidence).filter(({ signal }) => !seen2.has(signal) && seen2.add(signal));
  const rows2 = items.map(
    (item2) => h(
      "tr",
      {},
      h(
        "td",
        { title: catalogue.get(item2.signal)?.description ?? "" },
        signalWords(item2.signal),
        h("br"),
        h("code", { class: "quiet" }, breakable(item2.signal))
      ),
      h("td", { class: "number strong" }, number(item2.value)),
      h("td", { class: "number quiet" }, item2.rules_out ? "usual" : limit2(item2)),
      h(
        "td",
        { class: "number" },
        h("button", { class: "link", onclick: () => open(item2.since_step) }, step(item2.since_step))
      )
    )
  );
  const head = h(
    "tr",
    {},
    ["Evidence", "value", "limit", "since step"].map((text, i) => h("th", { class: i ? "number" : "" }, text))
  );
  return h("table", { class: "evidence" }, h("thead", {}, head), h("tbody", {}, rows2));
}
var breakable = (name2) => name2.split(/(?<=_)/).flatMap((part2) => [part2, h("wbr")]);
function limit2({ bound: bound3, threshold, away_from: centre }) {
  if (centre !== null) return centre === 0 ? `±${number(threshold)}` : `${number(centre)} ± ${number(threshold)}`;
  return `${bound3 === "above" ? "≤" : "≥"} ${number(threshold)}`;
}

// src/remedy.js
var TRAINERS = { verl: "verl", trl: "TRL" };
var KEPT = "trmon.trainer";
var whenToDo = ({ has_ended: hasEnded2 }) => hasEnded2 ? "For the next run: " : "Do this: ";
function remedy(diagnosis) {
  const { remedy: given, quadrant } = diagnosis;
  const after = h("p", { class: "quiet" }, `Correction: ${quadrant.advice}`);
  return [
    h("p", {}, h("span", { class: "strong" }, whenToDo(diagnosis)), given.fix),
    configuration(given),
    h("details", {}, h("summary", { class: "quiet" }, "If it persists"), h("p", {}, given.persists), after)
  ];
}
function configuration(given) {
  const known3 = (key2) => Object.entries(given[key2]);
  const inWords = (key2) => Object.entries(given[`${key2}_in_words`]);
  const keys = Object.keys(TRAINERS).filter((key2) => known3(key2).length + inWords(key2).length);
  if (!keys.length) return null;
  const lines3 = h("pre", { class: "config" });
  const byHand = h("div", { class: "small" });
  const tabs = keys.map((key2) => h("button", { role: "tab", onclick: () => choose(key2) }, TRAINERS[key2]));
  const show2 = (key2) => {
    tabs.forEach((tab, i) => tab.setAttribute("aria-selected", String(keys[i] === key2)));
    lines3.hidden = copy2.hidden = !known3(key2).length;
    fill(lines3, known3(key2).map(([option, value]) => `${option}=${value}`).join("\n"));
    fill(byHand, inWords(key2).length > 0 && unknownValues(inWords(key2)));
  };
  const choose = (key2) => {
    localStorage.setItem(KEPT, key2);
    write2({ tab: key2 });
    show2(key2);
  };
  const list2 = h("div", { class: "row", role: "tablist", "aria-label": "Trainer" }, tabs);
  const copy2 = copyButton("Copy", () => lines3.textContent, { "aria-label": "Copy the configuration" });
  show2([read2().tab, localStorage.getItem(KEPT)].find((key2) => keys.includes(key2)) ?? keys[0]);
  return h("div", { class: "snippet" }, h("div", { class: "row between" }, list2, copy2), lines3, byHand);
}
function unknownValues(options) {
  const items = options.map(([option, words3]) => h("li", {}, h("code", {}, option), `: ${words3}`));
  return [h("p", { class: "quiet" }, "To set by hand; the run's configuration does not tell the value:"), h("ul", {}, items)];
}

// src/story.js
var REWARD_RULE = "reward_collapse";
var REWARD_FINDING = "R";
var TOLD = 2;
function storyOf({ diagnosis, alerts: alerts2 }) {
  const began = diagnosis?.since_step ?? null;
  if (began === null || isPrediction(diagnosis.incident)) return null;
  const found = diagnosis.observed.find((one) => one.finding === REWARD_FINDING)?.since_step;
  const alert = alerts2.items.find((one) => one.rule === REWARD_RULE && one.step >= began);
  const isReward = diagnosis.primary === REWARD_FINDING;
  return {
    began,
    lastGood: diagnosis.last_good_step ?? null,
    rewardFell: isReward ? null : found ?? alert?.step ?? null,
    cause: diagnosis.observed.find((one) => one.finding === diagnosis.primary) ?? null,
    meaning: diagnosis.meaning
  };
}
function storyLines(story, { open, closedAt }) {
  const link = (at, words3) => h("button", { class: "link strong", onclick: () => open(at) }, `${words3} ${step(at)}`);
  const when = closedAt === null ? null : [", ", closedAt === void 0 ? unread() : moment(closedAt)];
  const good = story.lastGood !== null && ["; ", link(story.lastGood, "last good step")];
  return [
    h("p", {}, link(story.began, "Broke at step"), when, before(story), good, "."),
    story.meaning && h("p", {}, story.meaning, " ", measured(story.cause))
  ];
}
async function closingTime({ path: path3, names: [name2], attempt }, at) {
  if (!name2) return null;
  const query = { names: name2, statistics: "last", from: at, to: at, attempt_id: attempt };
  const series = await get(`${path3}/signals`, query).catch(() => null);
  return series?.closed_at[0] ?? null;
}
var unread = () => h("span", { class: "bone inline", "aria-hidden": "true" }, h("span", {}, moment(now())));
var moment = (closedAt) => [h("time", { datetime: new Date(1e3 * closedAt).toISOString() }, clock(closedAt)), `, ${ago(closedAt)}`];
function before({ began, rewardFell }) {
  if (rewardFell === null) return null;
  const by = rewardFell - began;
  if (by <= 0) return ", as the reward fell";
  return `, ${step(by)} ${by === 1 ? "step" : "steps"} before the reward fell (step ${step(rewardFell)})`;
}
function measured(cause) {
  const items = (cause?.evidence ?? []).filter((item2) => !item2.rules_out).slice(0, TOLD);
  if (!items.length) return "";
  const said4 = items.map((item2) => `${signalWords(item2.signal)} ${number(item2.value)} (${limitWords(item2)})`);
  const text = said4.join(", ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
function limitWords({ bound: bound3, threshold, away_from: centre }) {
  if (centre !== null) return `usual: ${number(centre)} ± ${number(threshold)}`;
  return `${bound3 === "above" ? "at most" : "at least"} ${number(threshold)}`;
}

// src/timeline.js
var REWARD = "reward_mean";
var LABELS = 18;
var STRIP = 62;
var GAP = 22;
var FOOT = 16;
var PER_LETTER = 6.3;
var Timeline = class {
  element = h("div", { class: "timeline" });
  #told = null;
  #asked = 0;
  #key = null;
  constructor(course2, open) {
    Object.assign(this, { course: course2, open });
    this.resized = new ResizeObserver(() => this.#draw());
    this.resized.observe(this.element);
  }
  /** Show a story, or nothing with null; the series is read again only when the run has gone on.
   *
   *  As many points as the charts have, so that both tell the same newest value. */
  async show(story) {
    this.element.hidden = story === null;
    if (!story) return;
    const names2 = this.#names(story);
    const key2 = JSON.stringify([story.began, story.rewardFell, names2, this.course.series.step.at(-1)]);
    if (key2 === this.#key || !names2.length) return;
    this.element.style.minHeight = `${heightOf(names2)}px`;
    const turn2 = ++this.#asked;
    const query = { names: names2.join(), statistics: "mean", digits: 4, points: POINTS, attempt_id: this.course.attempt };
    const series = await get(`${this.course.path}/signals`, query).catch(() => null);
    if (!series || turn2 !== this.#asked) return;
    this.#key = key2;
    this.#told = { story, series, names: names2 };
    this.#draw();
  }
  end() {
    this.resized.disconnect();
  }
  /** Return the reward, and the first evidence of the cause that the run has as a series. */
  #names({ cause }) {
    const has = (name2) => this.course.names.has(name2);
    const drawn = (cause?.evidence ?? []).filter((item2) => !item2.rules_out).map(({ signal }) => has(signal) ? signal : this.#panelOf(signal)).find((name2) => name2 && name2 !== REWARD);
    return [has(REWARD) && REWARD, drawn].filter(Boolean);
  }
  #panelOf(signal) {
    const panel = this.course.panels.find(
      (one) => one.names.some((name2) => stem(name2) === stem(signal)) || one.also?.includes(signal)
    );
    return panel?.names[0];
  }
  #draw() {
    const width = this.element.clientWidth;
    if (!this.#told || !width) return;
    const { story, series, names: names2 } = this.#told;
    const height = heightOf(names2);
    const first = Math.max(series.step[0] - series.count[0] + 1, 0);
    const last2 = Math.max(series.step.at(-1), first + 1);
    const x = (at) => (Math.min(Math.max(at, first), last2) - first) / (last2 - first) * (width - 2) + 1;
    const parts = names2.map((name2, i) => strip(series, name2, { x, width, top: LABELS + i * (GAP + STRIP) + GAP }));
    const bottom = height - FOOT;
    const drawing2 = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary(story, series, names2) },
      svg("rect", { class: "ill", x: x(story.began), y: LABELS, width: width - x(story.began), height: bottom - LABELS }),
      parts,
      marks2(story).map((mark2, i, all2) => marked(mark2, { x, width, bottom, row: crowded(all2, i, { x, width }) ? 1 : 0 })),
      svg("text", { x: 0, y: height - 3 }, `step ${step(first)}`),
      svg("text", { x: width, y: height - 3, "text-anchor": "end" }, step(last2))
    );
    drawing2.addEventListener(
      "click",
      (event) => this.open(Math.round(first + event.offsetX / width * (last2 - first)))
    );
    fill(this.element, drawing2);
  }
};
var heightOf = (names2) => LABELS + names2.length * (GAP + STRIP) + FOOT;
function marks2({ began, rewardFell }) {
  const fell = rewardFell !== null && rewardFell > began && { at: rewardFell, text: "reward fell", kind: "fell" };
  return [{ at: began, text: "broke", kind: "broke" }, fell].filter(Boolean);
}
var labelOf = ({ at, text }) => `${text} ${step(at)}`;
function extentOf(mark2, { x, width }) {
  const [at, length] = [x(mark2.at), labelOf(mark2).length * PER_LETTER];
  return at + 4 + length < width ? [at + 4, at + 4 + length] : [at - 4 - length, at - 4];
}
function crowded(all2, i, within) {
  if (!i) return false;
  const [[from, to], [start, end]] = [extentOf(all2[i - 1], within), extentOf(all2[i], within)];
  return start < to + 4 && end > from - 4;
}
function marked(mark2, { x, width, bottom, row }) {
  const text = labelOf(mark2);
  const at = x(mark2.at);
  const [from] = extentOf(mark2, { x, width });
  const place = from > at ? { x: from } : { x: at - 4, "text-anchor": "end" };
  return svg(
    "g",
    { class: `mark ${mark2.kind}` },
    svg("line", { x1: at, x2: at, y1: row ? LABELS : 2, y2: bottom }),
    svg("text", { ...place, y: row ? LABELS + 11 : 12 }, text)
  );
}
function strip(series, name2, { x, width, top }) {
  const values = series.signals[name2].mean.map((value) => typeof value === "number" ? value : null);
  const known3 = values.filter((value) => value !== null);
  const [least, most] = known3.length ? [Math.min(...known3), Math.max(...known3)] : [0, 1];
  const isLog = least > 0 && most / least > 100;
  const scale = isLog ? Math.log10 : (value) => value;
  const [low, high] = [scale(least), scale(most)];
  const y = (value) => top + STRIP - 2 - (high === low ? 0.5 : (scale(value) - low) / (high - low)) * (STRIP - 4);
  const words3 = `${capital(signalWords(name2))} ${number(known3.at(-1))}`;
  const span2 = high === low ? "" : `${number(least)} to ${number(most)}${isLog ? ", logarithmic" : ""}`;
  return [
    svg("text", { class: "name", x: 0, y: top - 7 }, words3),
    svg("text", { x: width, y: top - 7, "text-anchor": "end" }, span2),
    svg("line", { class: "base", x1: 0, x2: width, y1: top + STRIP, y2: top + STRIP }),
    svg("path", { class: "course", d: path2(series.step, values, { x, y }) })
  ];
}
function path2(steps, values, { x, y }) {
  let pen = "M";
  return values.map((value, i) => {
    const drawn = value === null ? "" : `${pen}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = value === null ? "M" : "L";
    return drawn;
  }).join("");
}
function summary({ began, rewardFell, lastGood }, series, names2) {
  const newest2 = (name2) => number(series.signals[name2].mean.findLast((value) => value !== null));
  const marks3 = [
    lastGood !== null && `last good step ${step(lastGood)}`,
    `broke at step ${step(began)}`,
    rewardFell !== null && `reward fell at step ${step(rewardFell)}`
  ];
  const values = names2.map((name2) => `${signalWords(name2)} now ${newest2(name2)}`);
  return [...marks3.filter(Boolean), ...values].join(", ");
}

// src/diagnosis.js
var SILENT = "2";
var DiagnosisCard = class {
  element = h("section", { "aria-label": "Diagnosis" });
  announcement = h("p", { class: "sr", role: "status" });
  #kind = null;
  #said = null;
  #closed = { step: null, at: null };
  /** `open` opens a step; `again` reads the facts anew after an action. */
  constructor(course2, { open, again }) {
    Object.assign(this, { course: course2, open, again });
    this.timeline = new Timeline(course2, open);
  }
  /** Show the facts, unless they are unchanged; the time at which the run broke is shown once it is read. */
  async show(facts) {
    const story = storyOf(facts);
    this.timeline.show(story);
    const isKnown = !story || this.#closed.step === story.began;
    if (!isKnown) this.#closed = { step: story.began, at: void 0 };
    this.#update(facts, story);
    if (isKnown) return;
    this.#closed.at = await closingTime(this.course, story.began);
    this.#update(facts, story);
  }
  end() {
    this.timeline.end();
  }
  #update(facts, story) {
    const said4 = JSON.stringify([facts.judged.verdict, facts.diagnosis, facts.alerts, this.#closed]);
    if (this.#said === said4) return;
    this.#said = said4;
    this.#announce(facts.judged.verdict);
    this.#draw(facts, story);
  }
  /** Tell screen readers that the verdict has changed, not each number in it. */
  #announce({ kind, why }) {
    if (this.#kind !== null && this.#kind !== kind) this.announcement.textContent = `${kindWords(kind)}: ${why}`;
    this.#kind = kind;
  }
  #draw(facts, story) {
    const { catalogue } = this.course;
    const seen2 = facts.diagnosis?.observed ?? [];
    const words3 = [
      headline2(facts.judged.verdict),
      circumstances(facts),
      riskLine(facts),
      story && storyLines(story, { open: this.open, closedAt: this.#closed.at }),
      story && !story.cause && h("p", { class: "quiet" }, "The newest steps no longer show it."),
      also(facts),
      toDo(facts),
      actions(facts, this.again)
    ];
    const evidence = seen2.length > 0 && [
      h("summary", {}, `Evidence: ${plural(new Set(seen2.flatMap(signals)).size, "signal")}`),
      evidenceTable(seen2, { catalogue, open: this.open })
    ];
    const beside = [story && this.timeline.element, evidence && h("details", { "data-name": "evidence" }, evidence)];
    refill(
      this.element,
      h(
        "div",
        { class: "card diagnosis", "data-kind": facts.judged.verdict.kind },
        h("div", { class: "stack" }, words3),
        beside.some(Boolean) && h("div", { class: "stack" }, beside)
      )
    );
  }
};
var signals = (found) => found.evidence.map((item2) => item2.signal);
var headline2 = ({ kind, why: words3 }) => h("p", { class: "headline" }, h("span", { class: `kind kind-${kind}` }, `${kindWords(kind)}: `), h("span", {}, words3));
function circumstances({ diagnosis }) {
  const told2 = diagnosis?.circumstances ?? [];
  return told2.map((one) => h("p", {}, h("span", { class: "strong" }, `${one.summary}. `), one.fix));
}
function also({ diagnosis, judged }) {
  const observed = diagnosis?.observed ?? [];
  const others = observed.filter((one) => one.finding !== diagnosis.primary);
  const alerts2 = judged.incident?.state === "firing" ? judged.alerts : [];
  const lines3 = [
    ...others.map((one) => `${capital(one.title)} since step ${step(one.since_step)}`),
    ...alerts2.map((one) => `Alert ${one.rule.replaceAll("_", " ")} since step ${step(one.step)}`)
  ];
  if (!lines3.length) return null;
  const items = lines3.map((line4) => h("li", {}, line4));
  return h("details", { "data-name": "also" }, h("summary", { class: "quiet" }, `Also seen (${lines3.length})`), h("ul", {}, items));
}
function toDo({ diagnosis }) {
  if (!diagnosis) return null;
  if (diagnosis.remedy) return remedy(diagnosis);
  const fix = (diagnosis.since_step ?? null) !== null && diagnosis.incident?.fix;
  return [fix && h("p", {}, h("span", { class: "strong" }, whenToDo(diagnosis)), fix), unknown(diagnosis)];
}
function unknown({ unknown: findings, shortfall }) {
  const gaps = new Map(findings.flatMap((one) => one.missing.map((gap) => [gap.provide, one.title])));
  if (!gaps.size && !shortfall.length) return null;
  const items = [...gaps].map(
    ([provide, title]) => h("li", {}, `${capital(provide)}. `, h("span", { class: "quiet" }, `Needed for: ${title}.`))
  );
  return h(
    "details",
    { open: gaps.size < 4, "data-name": "missing" },
    h("summary", {}, `Not measured: missing inputs (${plural(gaps.size, "item")})`),
    h("ul", {}, items)
  );
}
function actions({ alerts: alerts2, run: run2 }, again) {
  const firing = leading(alerts2.items.filter((alert) => alert.state === "firing"));
  const open = firing.filter((alert) => !alert.ack);
  const taken = [...new Set(firing.filter((alert) => alert.ack).map((alert) => alert.ack.author))];
  const mute = async () => await silence(
    [
      { label: "run", value: run2.run },
      { label: "rule", value: "" }
    ],
    run2.project
  ) && again();
  const take = async () => await acknowledge(open) && again();
  const buttons = [
    open.length > 0 && action(`Acknowledge ${plural(open.length, "alert")}`, take),
    firing.length > 0 && action("Silence", mute, { title: `for ${SILENT} hours or longer` }),
    copyButton("Copy link", () => location.href),
    firing.length > 0 && h("span", { class: "quiet" }, holder(taken, run2))
  ];
  return h("div", { class: "row actions" }, buttons);
}
function holder(taken, { owner }) {
  if (taken.length) return `acknowledged by ${taken.join(", ")}`;
  return `nobody has acknowledged it${owner ? `; owner: ${owner}` : ""}`;
}

// src/marklegend.js
var WORDS3 = { act: "page alert", watch: "warning", policy: "policy change", note: "note" };
function markLegend(markers) {
  const kinds = Object.keys(WORDS3).filter((kind) => markers.some((marker) => marker.kind === kind));
  if (!kinds.length) return null;
  const items = kinds.map((kind) => h("li", { class: `mark-${kind}` }, WORDS3[kind]));
  return h("div", { class: "marks quiet" }, "Marks on the charts:", h("ul", { "aria-label": "Marks on the charts" }, items));
}

// src/eventlist.js
var SHOWN3 = 100;
var EventList = class {
  element = h("section", { class: "eventlist", "aria-label": "Events" });
  #said = null;
  constructor(course2, open) {
    Object.assign(this, { course: course2, open });
    course2.addEventListener("markers", () => this.#draw());
  }
  #draw() {
    const { markers } = this.course;
    const said4 = JSON.stringify(markers);
    if (said4 === this.#said) return;
    this.#said = said4;
    const items = markers.slice(-SHOWN3).map(
      ({ step: at, what, kind }) => h(
        "li",
        {},
        h("button", { class: "link", onclick: () => this.open(at) }, `step ${step(at)}`),
        h("span", { class: `kind-${kind}` }, what)
      )
    );
    const summary2 = h("summary", { class: "quiet" }, plural(markers.length, "event"));
    const list2 = items.length > 0 && h("details", { "data-name": "events" }, summary2, h("ol", {}, items));
    refill(this.element, list2, markLegend(markers));
  }
};

// src/heatdrawing.js
var HEIGHT4 = 190;
var LEFT = 58;
var BOTTOM = 20;
var TICKS = 4;
function drawHeat(canvas, found, { view, width }) {
  const ink = inks();
  const scale = devicePixelRatio;
  Object.assign(canvas, { width: width * scale, height: HEIGHT4 * scale });
  Object.assign(canvas.style, { width: `${width}px`, height: `${HEIGHT4}px` });
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  const [from, to] = view;
  const x = (at) => LEFT + (at - from) / Math.max(to - from, 1) * (width - LEFT);
  const place = { ctx, ink, found, x, y: vertical(found.edges), width, from, to };
  canvas.stepAt = (offset) => from + (offset - LEFT) / (width - LEFT) * (to - from);
  cells2(place);
  bounds(place);
  drafted(place);
  labels(place);
  canvas.valueAt = (offset) => valueAt(found.edges, offset);
  canvas.heightOf = place.y;
}
function valueAt(edges, offset) {
  const bins = edges.length - 1;
  const place = Math.min(Math.max((1 - offset / (HEIGHT4 - BOTTOM)) * bins, 0), bins);
  const bin = Math.min(Math.floor(place), bins - 1);
  return Number(edges[bin]) + (place - bin) * (Number(edges[bin + 1]) - Number(edges[bin]));
}
function drafted({ ctx, ink, found, y, width }) {
  for (const value of Object.values(found.draft ?? {})) {
    if (value === null || value === void 0) continue;
    ctx.save();
    ctx.strokeStyle = ink.accent;
    ctx.lineWidth = 2;
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    ctx.moveTo(LEFT, y(value));
    ctx.lineTo(width, y(value));
    ctx.stroke();
    ctx.restore();
  }
}
function vertical(edges) {
  const bins = edges.length - 1;
  return (value) => {
    const bin = edges.findLastIndex((edge) => edge <= value);
    const at = Math.min(Math.max(bin, 0), bins - 1);
    const within = (value - edges[at]) / (edges[at + 1] - edges[at]);
    return (HEIGHT4 - BOTTOM) * (1 - (at + Math.min(Math.max(within, 0), 1)) / bins);
  };
}
function cells2({ ctx, ink, found, x, width }) {
  const { steps, counts } = found;
  const tall = (HEIGHT4 - BOTTOM) / (found.edges.length - 1);
  ctx.fillStyle = ink.accent;
  steps.forEach((at, i) => {
    const left2 = Math.max(x(i ? (steps[i - 1] + at) / 2 : at), LEFT);
    const right = Math.min(x(i + 1 < steps.length ? (at + steps[i + 1]) / 2 : at + 1), width);
    const all2 = counts[i].reduce((sum, n) => sum + n, 0);
    if (right <= left2 || !all2) return;
    counts[i].forEach((n, bin) => {
      if (!n) return;
      ctx.globalAlpha = 0.12 + 0.88 * Math.sqrt(n / all2);
      ctx.fillRect(left2, HEIGHT4 - BOTTOM - (bin + 1) * tall, right - left2 + 0.4, tall - 0.5);
    });
  });
  ctx.globalAlpha = 1;
}
function bounds({ ctx, ink, found, x, y }) {
  ctx.strokeStyle = ink.ink;
  ctx.lineWidth = 1.5;
  for (const bound3 of [found.lower, found.upper]) {
    ctx.beginPath();
    bound3.forEach((value, i) => {
      if (value === null) return;
      const [left2, right] = [x(found.steps[i]), x(found.steps[i + 1] ?? found.steps[i] + 1)];
      ctx.lineTo(Math.max(left2, LEFT), y(value));
      ctx.lineTo(Math.max(right, LEFT), y(value));
    });
    ctx.stroke();
  }
}
function round(length) {
  const power = 10 ** Math.floor(Math.log10(Math.max(length, 1)));
  return power * [5, 2, 1].find((times) => times * power <= Math.max(length, 1));
}
function labels({ ctx, ink, found, x, y, width, from, to }) {
  const { edges } = found;
  ctx.clearRect(0, 0, LEFT - 1, HEIGHT4);
  ctx.fillStyle = ink.quiet;
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "right";
  for (let tick = 0; tick <= TICKS; tick++) {
    const edge = edges[Math.round(tick / TICKS * (edges.length - 1))];
    ctx.fillText(number(Number(edge)), LEFT - 6, Math.min(Math.max(y(edge) + 4, 10), HEIGHT4 - BOTTOM));
  }
  ctx.textAlign = "center";
  const by = round((to - from) / TICKS);
  for (let at = Math.ceil(from / by) * by; at <= to; at += by) {
    ctx.fillText(step(at), Math.min(Math.max(x(at), LEFT + 4), width - 14), HEIGHT4 - 5);
  }
}

// src/heatmap.js
var WAIT_MS3 = 350;
var FOLLOW_MS = 1e4;
var POINTS2 = 120;
var Heatmap = class extends EventTarget {
  #found = null;
  #asked = 0;
  #timer = null;
  #readAt = 0;
  #chosen = null;
  #isChoosing = false;
  /** Dispatches "choosing" when another criterion is asked for and "chosen" when it has been read. */
  constructor(course2, open) {
    super();
    this.course = course2;
    this.choice = h("select", { "aria-label": "Criterion", hidden: true, onchange: () => this.#choose() });
    this.now = h("span", { class: "strong" });
    this.against = h("span", { class: "quiet" });
    this.note = h("span", { class: "note" });
    this.canvas = h("canvas", { role: "img", "aria-label": "Sequences against the threshold, not read yet" });
    this.where = h("div", { class: "heat" }, this.canvas);
    const caption = h(
      "figcaption",
      {},
      h("h2", {}, "Sequences against the threshold"),
      this.now,
      h("span", { class: "note" }, this.choice, " ", this.note),
      this.against
    );
    this.element = h("figure", { class: "card panel" }, caption, this.where);
    this.canvas.addEventListener("click", (event) => this.#open(event, open));
    this.resized = new ResizeObserver(() => this.#draw());
    this.resized.observe(this.where);
    course2.addEventListener("view", () => this.#later());
    this.theme = () => this.#draw();
    window.addEventListener("themechange", this.theme);
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", this.theme);
  }
  /** Read the new steps of a growing run, rate-limited. */
  follow() {
    if (Date.now() - this.#readAt > FOLLOW_MS) this.read();
  }
  /** Read the displayed steps; if responses overtake each other, the newest request wins. */
  async read() {
    const turn2 = ++this.#asked;
    this.#readAt = Date.now();
    const [from, to] = this.course.view;
    const query = { from, to, points: POINTS2, attempt_id: this.course.attempt, ...this.#chosen };
    const found = await this.#ask(query);
    if (!found || turn2 !== this.#asked) return;
    this.#found = { ...found, draft: this.#found?.draft };
    this.#isChoosing = false;
    this.#say();
    this.#draw();
    this.dispatchEvent(new Event("chosen"));
  }
  /** Return the distribution, or null without an answer; a criterion that these steps do not have gives way to another. */
  async #ask(query) {
    try {
      return await get(`${this.course.path}/distribution`, query);
    } catch (error) {
      if (error.status !== 400 || !this.#chosen) return null;
      this.#chosen = null;
      return this.#ask({ ...query, statistic: null, pair: null, where: null });
    }
  }
  /** Show another criterion with the next read, given as { statistic, pair, where }. */
  choose(criterion2) {
    this.#chosen = criterion2;
  }
  /** Whether the steps of the chosen criterion have been read. */
  get isRead() {
    return this.#found !== null && !this.#isChoosing;
  }
  /** The criterion that is drawn, with its newest bounds and the edges of the bins; null without stored sequences or until they are read. */
  get shown() {
    if (!this.isRead || !this.#found.chosen) return null;
    const { chosen, edges, lower, upper } = this.#found;
    return { ...chosen, edges, lower: lower.at(-1), upper: upper.at(-1) };
  }
  /** Draw bounds that are being tried. */
  try(draft) {
    if (!this.#found) return;
    this.#found.draft = draft;
    this.#draw();
  }
  end() {
    clearTimeout(this.#timer);
    this.resized.disconnect();
    window.removeEventListener("themechange", this.theme);
    this.system.removeEventListener("change", this.theme);
  }
  #later() {
    this.#draw();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read(), WAIT_MS3);
  }
  #choose() {
    const { statistic, pair: pair2, where } = this.#found.criteria[this.choice.value];
    this.choose({ statistic, pair: pair2, where });
    this.#isChoosing = true;
    this.dispatchEvent(new Event("choosing"));
    this.read();
  }
  #say() {
    const { criteria, chosen, steps, counts } = this.#found;
    if (!chosen) return fill(this.note, "no stored sequences in these steps");
    const read3 = ({ statistic, pair: pair2, where }) => [statistic, pair2, where].join();
    fill(
      this.choice,
      criteria.map((one, value) => h("option", { value, selected: read3(one) === read3(chosen) }, one.statistic))
    );
    this.choice.hidden = criteria.length < 2;
    fill(this.note, `${criteria.length < 2 ? `${chosen.statistic} ` : ""}${bound(this.#found)}`);
    const [first, last2] = [this.#beyond(0), this.#beyond(steps.length - 1)];
    fill(this.now, `${percent(last2)} beyond`);
    fill(this.against, `initially ${percent(first)}`);
    const n = counts.reduce((sum, row) => sum + row.reduce((a, b) => a + b, 0), 0);
    this.canvas.setAttribute(
      "aria-label",
      `${n} sequences of ${steps.length} steps: ${percent(first)} of the first step's lie beyond the bound, ${percent(last2)} of the last step's`
    );
  }
  /** Return the share of a step's sequences in bins beyond its bounds. */
  #beyond(at) {
    const { edges, counts, lower, upper, n_unknown: unknown2 } = this.#found;
    const row = counts[at];
    const all2 = row.reduce((sum, n) => sum + n, 0) + unknown2[at];
    const out = row.filter(
      (_, bin) => upper[at] !== null && edges[bin] >= upper[at] || lower[at] !== null && edges[bin + 1] <= lower[at]
    );
    return all2 ? (out.reduce((sum, n) => sum + n, 0) + unknown2[at]) / all2 : null;
  }
  #draw() {
    if (this.#found?.chosen && this.where.clientWidth)
      drawHeat(this.canvas, this.#found, { view: this.course.view, width: this.where.clientWidth });
  }
  #open(event, open) {
    const { steps } = this.#found ?? { steps: [] };
    if (!steps.length) return;
    const at = this.canvas.stepAt(event.offsetX);
    open(steps.reduce((best, step2) => Math.abs(step2 - at) < Math.abs(best - at) ? step2 : best));
  }
};
function bound({ lower, upper }) {
  const [least, most] = [lower.at(-1), upper.at(-1)];
  if (least === null) return `at most ${number(most)}`;
  return most === null ? `at least ${number(least)}` : `${number(least)} to ${number(most)}`;
}

// src/notes.js
var SHOWN4 = 5;
function notesList(element, notes, open) {
  const items = notes.toReversed().map((note) => item(note, open));
  const older = items.slice(SHOWN4);
  fill(
    element,
    items.length > 0 && h("ul", {}, items.slice(0, SHOWN4)),
    older.length > 0 && h("details", {}, h("summary", { class: "quiet" }, plural(older.length, "older note")), h("ul", {}, older))
  );
}
function item(note, open) {
  const on = note.step !== null && h("button", { class: "link", onclick: () => open(note.step) }, `step ${step(note.step)}`);
  const by = h("span", { class: "quiet", title: clock(note.at) }, `${note.author}, ${ago(note.at)}`);
  return h("li", {}, on, h("span", { class: "text" }, note.text), by);
}

// src/proposals.js
var SOURCES = {
  recommended: "from the target share of rejected sequences",
  bound_budget: "from the error bound and the reward gained so far"
};
function proposalsOf(adaptation) {
  return Object.entries(SOURCES).map(([name2, source]) => ({ ...adaptation[name2], source, isAutomatic: adaptation.mode === "apply" && name2 === "recommended" })).filter(({ policy }) => policy);
}
function evidenceOf({ n_sequences: n, mask_rate_before: before2, mask_rate_after: after, moves, basis }) {
  const limited = moves.filter(({ limit: limit3 }) => limit3).map((one) => `${one.statistic} without limits: ${number(one.wanted)}; kept by the ${one.limit}`);
  const measured2 = Object.entries(basis).map(([name2, value]) => `${name2.replaceAll("_", " ")} ${number(value)}`);
  return [
    `Would reject ${percent(after)} instead of ${percent(before2)} of the newest ${plural(n, "sequence")}.`,
    ...[limited, measured2].filter((words3) => words3.length).map((words3) => `${capital(words3.join(", "))}.`)
  ];
}
function enforce(proposal2, changes, { current, path: path3 }) {
  const words3 = [h("ul", {}, changes.map((text) => h("li", {}, text))), evidenceOf(proposal2).map((text) => h("p", {}, text))];
  return asked(
    `Put ${proposal2.policy.name} in force`,
    words3,
    "Put in force",
    () => send("PUT", `${path3}/policy`, {
      policy: proposal2.policy,
      pinned: current.pinned,
      reason: `proposed bounds, put in force on the page: ${proposal2.reason}`.slice(0, 1e3),
      replaces: current.hash
    })
  );
}

// src/policyhistory.js
function policyHistory(element, { policies, adaptation }, { path: path3, again }) {
  const proposals = proposalsOf(adaptation);
  const said4 = JSON.stringify([proposals, policies.map(({ hash, created_at: at }) => [hash, at])]);
  if (element.dataset.said === said4) return;
  element.dataset.said = said4;
  const items = policies.map((version, i) => entry2(version, policies[i - 1], { isCurrent: i === policies.length - 1, path: path3, again }));
  const proposed = proposals.map((one) => proposal(one, { current: policies.at(-1), path: path3, again }));
  const words3 = [plural(policies.length, "version"), proposals.length > 0 && plural(proposals.length, "proposal")];
  const summary2 = h("summary", {}, `History: ${words3.filter(Boolean).join(", ")}`);
  const list2 = h("ol", { class: "versions" }, proposed, items.reverse());
  refill(element, h("details", { "data-name": "policyhistory" }, summary2, list2));
}
function proposal(given, { current, path: path3, again }) {
  const changes = proposedChanges(given.policy, current);
  const put2 = async () => await enforce(given, changes, { current, path: path3 }) && again();
  return h(
    "li",
    { class: "proposal" },
    h("p", {}, h("span", { class: "strong" }, given.policy.name), " · adaptation", h("span", { class: "pill" }, "proposed")),
    h("p", { class: "quiet small" }, `Computed ${given.source}.`),
    h("ul", { class: "small" }, changes.map((text) => h("li", {}, text))),
    evidenceOf(given).map((text) => h("p", { class: "small" }, text)),
    given.isAutomatic ? h("p", { class: "quiet small" }, "The worker puts it in force by itself.") : h("p", {}, action("Put in force", put2))
  );
}
function entry2(version, before2, { isCurrent, path: path3, again }) {
  const { name: name2, author: author2, reason, created_at: at, hash, pinned } = version;
  const back = () => asked(
    `Roll back to ${name2}`,
    [h("p", {}, `It becomes the newest version; ${differences(version, before2).join("; ") || "it was the first"}.`)],
    "Roll back",
    () => send("POST", `${path3}/policy/rollback`, { hash })
  ).then((isDone) => isDone && again());
  return h(
    "li",
    {},
    h("p", {}, h("span", { class: "strong" }, name2), ` · ${author2}${pinned ? " · pinned" : ""}`, isCurrent && h("span", { class: "pill" }, "in force")),
    h("p", { class: "quiet small" }, clock(at), reason && `: ${reason}`),
    before2 && h("ul", { class: "small" }, differences(version, before2).map((text) => h("li", {}, text))),
    !isCurrent && h("p", {}, action("Roll back to this", back))
  );
}
var proposedChanges = (policy, current) => differences({ ...current, name: policy.name, policy }, current);
function differences(version, before2) {
  if (!before2) return [];
  const [old, now2] = [before2, version].map(({ policy }) => new Map(policy.criteria.map((one) => [named4(one), one])));
  const all2 = [.../* @__PURE__ */ new Set([...old.keys(), ...now2.keys()])];
  const changes = all2.flatMap((name2) => criterion(name2, old.get(name2), now2.get(name2)));
  const isSame = (key2) => JSON.stringify(before2.policy[key2] ?? []) === JSON.stringify(version.policy[key2] ?? []);
  const shadows = [before2, version].map(({ shadows: shadows2 }) => shadows2.map(({ name: name2 }) => name2).join(", ") || "none");
  return [
    ...before2.name === version.name ? [] : [`${before2.name} → ${version.name}`],
    ...changes,
    ...isSame("tokens") ? [] : ["token rules changed"],
    ...isSame("turns") ? [] : ["turn criteria changed"],
    ...shadows[0] === shadows[1] ? [] : [`shadows: ${shadows[0]} → ${shadows[1]}`]
  ];
}
var named4 = ({ statistic, pair: pair2, where }) => `${statistic}, ${pair2} pair${where ? `, ${where}` : ""}`;
function criterion(name2, old, now2) {
  if (!old) return [`${name2}: added`];
  if (!now2) return [`${name2}: removed`];
  return ["lower", "upper"].filter((side) => (old[side] ?? null) !== (now2[side] ?? null)).map((side) => `${side} bound of ${name2}: ${bound2(old[side])} → ${bound2(now2[side])}`);
}
var bound2 = (value) => value === null || value === void 0 ? "none" : number(value);

// src/policies.js
var NEWEST2 = 20;
var SHADOW = "mask_rate:";
var CEILINGS = "Its bounds are ceilings until the run's own mismatch has been measured.";
var UNCALIBRATED = ["uncalibrated", "starts_ill"];
async function policiesCard(where, { policies, adaptation }, { course: course2, path: path3, again }) {
  const current = policies.at(-1);
  const names2 = ["mask_rate", ...current.shadows.map((shadow) => SHADOW + shadow.name)];
  const { rates, n } = await newest(names2, { course: course2, path: path3 });
  const decides = UNCALIBRATED.includes(current.calibration) ? "decides, uncalibrated" : "decides";
  const bars = names2.map(
    (name2, i) => bar(i ? name2.slice(SHADOW.length) : current.name, i ? "shadow" : decides, rates[i])
  );
  const note = h("span", { class: "note" }, `mean of the last ${plural(n, "step")}`);
  const caption = h("figcaption", {}, h("h2", {}, "What each policy masks"), note);
  const words3 = [kept(where, adaptation, { current, path: path3, again }), origin(policies, course2)];
  fill(where, caption, h("div", { class: "bars" }, bars), words3);
}
function kept(where, adaptation, by) {
  const said4 = JSON.stringify([adaptation, by.current.hash]);
  if (where.advised?.said !== said4) where.advised = { said: said4, element: advised(adaptation, by) };
  return where.advised.element;
}
async function newest(names2, { course: course2, path: path3 }) {
  const from = Math.max(0, Math.floor(course2.extent[1] - (NEWEST2 - 1) * course2.stride));
  const query = { names: names2.join(","), from, statistics: "mean", digits: 5, attempt_id: course2.attempt };
  const { signals: signals2, step: steps } = await get(`${path3}/signals`, query);
  const rates = names2.map((name2) => mean(signals2[name2].mean.slice(-NEWEST2)));
  return { rates, n: Math.min(steps.length, NEWEST2) };
}
function origin(policies, course2) {
  const { name: name2, author: author2, reason, calibration } = policies.at(-1);
  const since2 = policies.length > 1 ? `step ${step(course2.stepOf(policies.at(-1)))}` : "the start";
  const told2 = h("p", { class: "quiet small" }, `${name2} since ${since2}, by ${author2}${reason ? `: ${reason}` : ""}`);
  return calibration === "uncalibrated" ? [told2, h("p", { class: "quiet small" }, CEILINGS)] : told2;
}
function bar(name2, role, rate) {
  const filled2 = h("span", { class: "filled" });
  filled2.style.width = `${100 * (rate ?? 0)}%`;
  return h(
    "div",
    { class: "bar" },
    h("span", { class: "name" }, name2, h("span", { class: "quiet" }, ` · ${role}`)),
    h("span", { class: "track" }, filled2),
    h("span", { class: "number" }, percent(rate))
  );
}
function advised({ mode, recommended }, { current, path: path3, again }) {
  if (mode === "off" || !recommended || mode === "apply" && recommended.policy) return null;
  if (!recommended.policy) return h("p", { class: "small" }, `Bounds unchanged: ${recommended.reason}`);
  const changes = proposedChanges(recommended.policy, current);
  const put2 = async () => await enforce(recommended, changes, { current, path: path3 }) && again();
  const [effect2] = evidenceOf(recommended);
  const moves = recommended.moves.map((one) => `${one.statistic} ${one.side} ${number(one.before)} → ${number(one.after)}`);
  return h(
    "div",
    { class: "stack small" },
    h("p", {}, `Adaptation proposes ${moves.join(", ")}. ${effect2}`),
    h("p", {}, action("Apply these bounds", put2))
  );
}
function mean(values) {
  const known3 = values.filter((value) => typeof value === "number");
  return known3.length ? known3.reduce((sum, value) => sum + value, 0) / known3.length : null;
}

// src/rangebar.js
var NEWEST3 = [1e3, 200];
var RangeBar = class {
  constructor(course2, open) {
    Object.assign(this, { course: course2, open });
    this.words = h("span", { class: "quiet" });
    this.field = h("input", { type: "number", min: 0, "aria-label": "Step", placeholder: "step" });
    this.all = h("button", { onclick: () => course2.show() }, "All steps");
    this.newest = NEWEST3.map(
      (n) => h("button", { onclick: () => this.#newest(n), "data-steps": n }, `Last ${step(n)}`)
    );
    const nearer = h("button", { "aria-label": "Closer", onclick: () => course2.zoom(0.5) }, "+");
    const wider = h("button", { "aria-label": "Wider", onclick: () => course2.zoom(2) }, "−");
    this.axes = [false, true].map(
      (byTime) => h("button", { onclick: () => course2.drawBy(byTime) }, byTime ? "Time" : "Steps")
    );
    const axes = h("span", { class: "row joined", role: "group", "aria-label": "Horizontal axis" }, this.axes);
    const form = h(
      "form",
      { class: "row", onsubmit: (event) => this.#ask(event) },
      this.field,
      h("button", {}, "Open step")
    );
    const parts = [this.all, this.newest, nearer, wider, axes, this.words, form];
    this.element = h("div", { class: "row rangebar", role: "toolbar", "aria-label": "Steps" }, parts);
    course2.addEventListener("view", () => this.draw());
    course2.addEventListener("series", () => this.draw());
    course2.addEventListener("axis", () => this.draw());
  }
  draw() {
    const { view, extent, chosen } = this.course;
    this.words.textContent = `steps ${step(view[0])} to ${step(view[1])}`;
    this.all.setAttribute("aria-pressed", String(view[0] <= extent[0] && view[1] >= extent[1]));
    this.axes.forEach((button, i) => button.setAttribute("aria-pressed", String(this.course.byTime === Boolean(i))));
    for (const button of this.newest) button.hidden = extent[1] - extent[0] <= Number(button.dataset.steps);
    if (document.activeElement !== this.field) this.field.value = chosen ?? "";
  }
  #newest(n) {
    const last2 = this.course.extent[1];
    this.course.show(last2 - n, last2);
  }
  #ask(event) {
    event.preventDefault();
    this.open(this.field.value === "" ? null : Number(this.field.value));
  }
};

// src/runhead.js
function runHead(head, { run: run2, judged, attempts }, attempt) {
  const now2 = attempts.find(({ id }) => id === attempt) ?? attempts.at(-1);
  const pills = [attempts.length > 1 && `attempt ${now2.ordinal}`, run2.mode, run2.state].filter(Boolean);
  const seconds = judged.expected_step_seconds;
  const facts = [
    run2.project,
    run2.last_step === null ? "no step yet" : `step ${step(run2.last_step)}`,
    seconds && `${span(seconds)} a step`,
    now2 && plural(now2.world_size, "rank"),
    run2.owner && `owner ${run2.owner}`,
    run2.last_report_at && `last report ${ago(run2.last_report_at)}`,
    run2.tags.length > 0 && `tags ${run2.tags.join(", ")}`
  ];
  refill(
    head,
    h(
      "div",
      { class: "row" },
      h("h1", {}, run2.run),
      pills.map((text) => h("span", { class: "pill" }, text)),
      attempts.length > 1 && chooser(attempts, now2),
      h("a", { class: "button", href: compareAddress([run2]), title: "with a sound run of this project" }, "Compare"),
      action("Share report", () => share(run2), { title: "one HTML file: verdict, course, episodes; no configuration" })
    ),
    h("p", { class: "quiet", title: `first report ${clock(run2.created_at)}` }, facts.filter(Boolean).join(" · ")),
    ending(run2),
    run2.warnings.map(({ text }) => h("p", { class: "misuse" }, text)),
    config(run2.config)
  );
}
function chooser(attempts, now2) {
  const options = attempts.map(
    (one) => h("option", { value: one.id, selected: one.id === now2.id }, `attempt ${one.ordinal}, ${clock(one.started_at)}`)
  );
  const go2 = (event) => location.assign(`${location.pathname}?attempt=${event.target.value}`);
  return h("select", { "aria-label": "Attempt", onchange: go2 }, options);
}
function ending({ end, end_phrase }) {
  if (!end_phrase) return null;
  const frames = end?.traceback;
  return [
    h("p", { class: "ending" }, end ? `${end_phrase}, ${ago(end.at)}` : end_phrase),
    frames && h("details", {}, h("summary", { class: "quiet" }, "innermost frames"), h("pre", { class: "config" }, frames))
  ];
}
function config(given) {
  const rows2 = Object.entries(given);
  if (!rows2.length) return null;
  const text = rows2.map(([name2, value]) => `${name2} = ${JSON.stringify(value)}`).join("\n");
  return h(
    "details",
    {},
    h("summary", { class: "quiet" }, `configuration, ${plural(rows2.length, "entry", "entries")}`),
    h("pre", { class: "config" }, text)
  );
}
async function share({ project, run: run2 }) {
  download(await file(`${runPath(project, run2)}/report.html`), `${project}-${run2}.html`);
}

// src/scatter.js
var WIDTH2 = 420;
var HEIGHT5 = 260;
var LEFT2 = 52;
var BOTTOM2 = 36;
function scatter({ columns, decisions }, criterion2) {
  const accepted = decisions.find((one) => one.role === "active")?.accepted;
  if (!criterion2 || !accepted) return null;
  const points = criterion2.values.map((value, i) => ({ value, length: columns.n_tokens[i], accepted: accepted[i] })).filter(({ value }) => typeof value === "number");
  return points.length ? h("div", {}, drawing(points, criterion2), legend()) : null;
}
function drawing(points, criterion2) {
  const bounds2 = [criterion2.lower, criterion2.upper].filter((bound3) => bound3 !== null);
  const values = points.map(({ value }) => value);
  const lengths = points.map(({ length }) => length);
  const y = vertical2([...values, ...bounds2]);
  const x = linear(lengths, [LEFT2 + 8, WIDTH2 - 10]);
  const dots = points.map((point) => dot(point, { x, y }));
  const words3 = (bound3) => `${bound3 === criterion2.upper ? "at most" : "at least"} ${number(bound3)}`;
  const lines3 = bounds2.map((bound3) => line3(y.at(bound3), words3(bound3)));
  const n = points.filter((point) => !point.accepted).length;
  const label = `${criterion2.statistic} against length of ${points.length} sequences, ${n} of them rejected`;
  const given = { viewBox: `0 0 ${WIDTH2} ${HEIGHT5}`, role: "img", "aria-label": label, class: "scatter" };
  return svg("svg", given, lines3, dots, ticks(x, y), names(criterion2));
}
var dot = ({ length, value, accepted }, { x, y }) => svg("circle", { cx: x.at(length), cy: y.at(value), r: 3, class: accepted ? "in" : "out" });
var line3 = (y, words3) => [
  svg("line", { x1: LEFT2, x2: WIDTH2, y1: y, y2: y, class: "bound" }),
  svg("text", { x: LEFT2 + 6, y: y - 5, class: "limit" }, words3)
];
function legend() {
  const marks3 = ["in", "out"].map((kind) => h("span", { class: `dot ${kind}` }));
  return h("p", { class: "quiet small" }, marks3[0], "accepted ", marks3[1], "rejected");
}
function linear(values, [start, end]) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const at = (value) => most > least ? start + (value - least) / (most - least) * (end - start) : (start + end) / 2;
  return { least, most, at };
}
function vertical2(values) {
  const positive = values.filter((value) => value > 0);
  const least = Math.min(...positive);
  const isLog = Math.min(...values) >= 0 && positive.length > 0 && Math.max(...values) > 30 * least;
  if (!isLog) return linear(values, [HEIGHT5 - BOTTOM2 - 4, 10]);
  const scale = linear(positive.map(Math.log), [HEIGHT5 - BOTTOM2 - 4, 10]);
  return { least, most: Math.exp(scale.most), at: (value) => scale.at(Math.log(Math.max(value, least))) };
}
function ticks(x, y) {
  const text = (words3, given) => svg("text", given, words3);
  return [
    text(number(y.most), { x: LEFT2 - 6, y: y.at(y.most) + 4, "text-anchor": "end" }),
    text(number(y.least), { x: LEFT2 - 6, y: y.at(y.least) + 4, "text-anchor": "end" }),
    text(step(x.least), { x: x.at(x.least), y: HEIGHT5 - 20, "text-anchor": "middle" }),
    x.most > x.least ? text(step(x.most), { x: x.at(x.most), y: HEIGHT5 - 20, "text-anchor": "end" }) : null,
    svg("path", { d: `M${LEFT2} 6V${HEIGHT5 - BOTTOM2}H${WIDTH2}`, class: "axis" })
  ].filter(Boolean);
}
var names = (criterion2) => [
  svg("text", { x: (LEFT2 + WIDTH2) / 2, y: HEIGHT5 - 4, "text-anchor": "middle" }, "tokens"),
  svg(
    "text",
    { x: 12, y: (HEIGHT5 - BOTTOM2) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(HEIGHT5 - BOTTOM2) / 2})` },
    criterion2.statistic
  )
];

// src/sequencetable.js
function sequenceTable(sequences, criterion2, openTurns) {
  return new SequenceTable(sequences, criterion2, openTurns).element;
}
var SequenceTable = class {
  constructor(sequences, criterion2, openTurns) {
    this.columns = columnsOf(sequences, criterion2, openTurns);
    this.order = sequences.columns.n_tokens.map((_, i) => i);
    this.body = h("tbody", {});
    this.heads = this.columns.map((column, at) => this.#head(column, at));
    this.element = h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.#sort(
      Math.max(
        this.columns.findIndex((column) => column.isFirst),
        0
      )
    );
  }
  #head({ name: name2 }, at) {
    const button = h("button", { class: "plain", onclick: () => this.#sort(at) }, name2);
    return h("th", { scope: "col", "aria-sort": "none" }, button);
  }
  /** Sort descending; the same column again reverses the order. */
  #sort(at) {
    const head = this.heads[at];
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of this.heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const { value } = this.columns[at];
    this.order.sort((a, b) => (down ? -1 : 1) * compare2(value(a), value(b)) || a - b);
    fill(
      this.body,
      this.order.map((i) => this.#row(i))
    );
  }
  #row(i) {
    const cells3 = this.columns.map(
      ({ cell: cell2, value, isNumber }) => h("td", { class: isNumber ? "number" : "" }, cell2 ? cell2(i) : number(value(i)))
    );
    return h("tr", {}, cells3);
  }
};
function columnsOf({ columns, decisions, first, turn_counts: turns }, criterion2, openTurns) {
  const plain = (name2, values) => values && { name: name2, isNumber: true, value: (i) => values[i] };
  const whole = (name2, value) => ({ name: name2, isNumber: true, value, cell: (i) => step(value(i)) });
  const found = [
    whole("place", (i) => first + i),
    whole("tokens", (i) => columns.n_tokens[i]),
    turns && turnsOf(turns, first, openTurns),
    plain("reward", columns.reward),
    plain("advantage", columns.advantage),
    criterion2 && { ...plain(criterion2.statistic, criterion2.values), isFirst: true },
    columns.argmax_abs_d && worst(columns),
    ...decisions.map(decided)
  ];
  return found.filter(Boolean);
}
var decided = (one) => ({
  name: one.policy,
  value: (i) => one.reasons[i] ?? "",
  cell: (i) => h("span", { class: one.accepted[i] ? "quiet" : "" }, said3(one, i))
});
var said3 = (one, i) => one.accepted[i] ? "accepted" : `✕ ${one.reasons[i] ?? "rejected"}`;
var turnsOf = ({ n_turns: counts, n_rejected: rejected }, first, openTurns) => ({
  name: "turns",
  isNumber: true,
  value: (i) => counts[i],
  cell: (i) => {
    const label = `Turns of sequence ${step(first + i)}`;
    const masked = rejected?.[i] ? `, ✕ ${step(rejected[i])}` : "";
    const open = () => openTurns(first + i);
    return h("button", { class: "plain", "aria-label": label, onclick: open }, `${step(counts[i])}${masked}`);
  }
});
var worst = ({ argmax_abs_d: places, n_tokens: lengths }) => ({
  name: "worst token",
  value: (i) => places[i],
  cell: (i) => position(places[i], lengths[i])
});
function position(at, length) {
  if (at < 0) return h("span", { class: "quiet" }, "–");
  const mark2 = h("span", { class: "mark" });
  mark2.style.left = `${length > 1 ? 100 * at / (length - 1) : 0}%`;
  const track = h("span", { class: "track" }, mark2);
  return h(
    "span",
    { class: "position", title: `token ${at} of ${length}` },
    track,
    h("span", { class: "number" }, step(at))
  );
}
function compare2(a, b) {
  const [left2, right] = [a, b].map((value) => value === null ? -Infinity : value === "inf" ? Infinity : value);
  return left2 < right ? -1 : left2 > right ? 1 : 0;
}

// src/turntable.js
function turnTable(turns, { place, pair: pair2, onClose }) {
  const heading2 = `Turns of sequence ${step(place)}`;
  const columns = columnsOf2(turns, pair2);
  const rows2 = turns.columns.n_tokens.map(
    (_, i) => h(
      "tr",
      {},
      columns.map(({ cell: cell2, isNumber }) => h("td", { class: isNumber ? "number" : "" }, cell2(i)))
    )
  );
  const heads = columns.map(({ name: name2 }) => h("th", { scope: "col" }, name2));
  return h(
    "section",
    { class: "turns", "aria-label": heading2 },
    h("h3", {}, heading2),
    h("button", { class: "plain", "aria-label": "Close the turns", onclick: onClose }, "✕"),
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows2))
  );
}
function columnsOf2({ columns, accepted, reasons, criteria }, pair2) {
  const counted = (name2, values) => ({ name: name2, isNumber: true, cell: (i) => step(values[i]) });
  const measured2 = (name2, value) => ({ name: name2, isNumber: true, cell: (i) => number(value(i)) });
  const ofPair = (stem2) => columns[`${pair2}_${stem2}`];
  const shown2 = criteria.length ? criteria.map(({ statistic, values }) => measured2(statistic, (i) => values[i])) : [
    ofPair("max_abs_d") && measured2("max |d|", (i) => ofPair("max_abs_d")[i]),
    ofPair("sum_k3") && measured2("mean k3", (i) => ofPair("sum_k3")[i] / columns.n_tokens[i])
  ];
  return [
    { name: "turn", isNumber: true, cell: (i) => step(i) },
    counted("tokens", columns.n_tokens),
    ...shown2,
    accepted && { name: "decision", cell: (i) => decided2(accepted[i], reasons[i]) }
  ].filter(Boolean);
}
function decided2(isAccepted, reason) {
  if (reason === "empty") return h("span", { class: "quiet" }, "empty");
  return h("span", { class: isAccepted ? "quiet" : "" }, isAccepted ? "accepted" : `✕ ${reason}`);
}

// src/steppanel.js
var COLUMNS2 = "n_tokens,argmax_abs_d,reward,advantage,version_min";
var MOST3 = 500;
var LINES2 = 8;
var COMPLETENESS = { true: "", false: ", incomplete", null: ", completeness unknown" };
var StepPanel = class {
  element = h("section", { class: "card panel step", "aria-label": "Step", hidden: true });
  #asked = 0;
  constructor(path3, open) {
    Object.assign(this, { path: path3, open });
  }
  /** Show a step, or close the panel with null. */
  async show(step2, attempt) {
    const turn2 = ++this.#asked;
    this.element.hidden = step2 === null;
    if (step2 === null) return;
    if (!this.element.childElementCount) fill(this.element, this.#caption(`Step ${step(step2)}`, ""), lines2(LINES2));
    const of = `${this.path}/batches/${step2}`;
    try {
      const query = { attempt_id: attempt };
      const batch = await get(of, query);
      const [decisions, sequences] = await Promise.all([
        get(`${of}/decisions`, query),
        // If the sequences were pruned or damaged, show what is known about the batch itself.
        get(`${of}/sequences`, { ...query, names: COLUMNS2, limit: MOST3 }).catch((error) => error)
      ]);
      if (turn2 === this.#asked) this.#draw(batch, decisions, sequences);
    } catch (error) {
      if (turn2 === this.#asked)
        fill(this.element, this.#caption(`Step ${step(step2)}`, ""), h("p", { class: "quiet" }, error.message));
    }
  }
  #draw(batch, decisions, sequences) {
    const update = batch.update === null ? "rollout" : `update ${batch.update}`;
    const gaps = COMPLETENESS[String(batch.complete)];
    const note = `${update}, ${plural(batch.n_sequences, "sequence")}, ${plural(batch.n_tokens, "token")}, ${plural(batch.n_ranks, "rank")}${gaps}`;
    const policies = decisions.map(
      (one) => h(
        "span",
        { class: "pill" },
        `${one.policy}${one.role === "active" ? " decides" : ""} · masks ${percent(one.mask_rate)}`
      )
    );
    fill(
      this.element,
      this.#caption(`Step ${step(batch.step)}`, note),
      h("div", { class: "row" }, policies),
      setAside(batch.quarantined),
      ...sequences instanceof Error ? [h("p", { class: "quiet" }, sequences.message)] : this.#body(batch, sequences)
    );
  }
  /** Render the sequences as a table and as a plot, and below them the turns that are asked for. */
  #body(batch, sequences) {
    const some = sequences.n_sequences > MOST3 && h("p", { class: "quiet" }, `the first ${MOST3} of them`);
    const table3 = h("div", { class: "scroll sequences" });
    const criterion2 = criterionOf(sequences);
    const turns = h("div", { "aria-live": "polite" });
    const openTurns = (place) => this.#showTurns(turns, batch, place);
    fill(table3, sequenceTable(sequences, criterion2, openTurns));
    return [some, h("div", { class: "stepbody" }, table3, scatter(sequences, criterion2)), turns];
  }
  async #showTurns(element, batch, place) {
    const query = { attempt_id: batch.attempt_id, update: batch.update };
    const selection = { names: "n_tokens", first: place, limit: 1, turns: true };
    try {
      const { turns } = await get(`${this.path}/batches/${batch.step}/sequences`, { ...query, ...selection });
      const onClose = () => fill(element);
      fill(element, turnTable(turns[0], { place, pair: batch.primary_pair, onClose }));
    } catch (error) {
      fill(element, h("p", { class: "quiet" }, error.message));
    }
  }
  #caption(title, note) {
    const close = h("button", { class: "plain", "aria-label": "Close the step", onclick: () => this.open(null) }, "✕");
    return h("figcaption", {}, h("h2", {}, title), close, h("span", { class: "note" }, note));
  }
};
function setAside(parts) {
  const lines3 = parts.map(({ part: part2, place, reason }) => h("li", {}, `${part2}, ${place}: ${reason}`));
  return lines3.length > 0 && h("ul", { class: "setaside", "aria-label": "Quarantined" }, lines3);
}
function criterionOf({ criteria, decisions }) {
  const reasons = decisions.find((one) => one.role === "active")?.reasons ?? [];
  const rejected = (criterion2) => reasons.filter((reason) => reason === criterion2.statistic).length;
  return [...criteria].sort((a, b) => rejected(b) - rejected(a))[0] ?? null;
}

// src/draftaddress.js
var SIDES = ["lower", "upper"];
function draftInAddress() {
  const given = new URLSearchParams(location.search);
  const [statistic, pair2, where = null] = (given.get("try") ?? "").split(",");
  const bounds2 = Object.fromEntries(SIDES.map((side) => [side, given.has(side) ? Number(given.get(side) || NaN) : null]));
  const isRead = statistic && pair2 && Object.values(bounds2).every((value) => value === null || Number.isFinite(value));
  return isRead ? { criterion: { statistic, pair: pair2, where }, bounds: bounds2 } : null;
}
function keepDraft(draft, path3) {
  if (!draft) return write2({ try: null, lower: null, upper: null }, path3);
  const { criterion: criterion2, bounds: bounds2 } = draft;
  const name2 = [criterion2.statistic, criterion2.pair, criterion2.where].filter(Boolean).join(",");
  write2({ try: name2, ...Object.fromEntries(SIDES.map((side) => [side, bounds2[side] ?? null])) }, path3);
}

// src/thresholdeditor.js
var WAIT_MS4 = 250;
var STEPS = 400;
var NEAR_PX2 = 10;
var MOST_STEPS = 1e3;
var ThresholdEditor = class {
  #policy = null;
  #draft = {};
  #asked = 0;
  #timer = null;
  #given = null;
  /** `again` reads the run's facts anew after a change. */
  constructor(heat, course2, { path: path3, again }) {
    Object.assign(this, { heat, course: course2, path: path3, again });
    this.sliders = Object.fromEntries(["lower", "upper"].map((side) => [side, slider(side, (value) => this.#set(side, value))]));
    this.effect = h("div", { class: "stack", role: "status" });
    this.problem = h("p", { class: "strong", role: "alert" });
    const back = h("button", { type: "button", onclick: () => this.#reset() }, "Back to today's");
    const buttons = [
      action("Save as shadow", () => this.#save(), { title: "evaluated beside the policy, masks nothing" }),
      action("Put in force", () => this.#enforce()),
      back
    ];
    this.body = h("div", { class: "stack" }, this.problem, Object.values(this.sliders).map(({ element }) => element), this.effect, h("div", { class: "row" }, buttons));
    this.element = h(
      "details",
      { class: "editor", ontoggle: () => this.#toggle() },
      h("summary", {}, "Try other bounds"),
      this.body
    );
    this.#wait();
    heat.addEventListener("choosing", () => this.#wait());
    heat.addEventListener("chosen", () => this.element.open && this.#begin());
    this.#given = draftInAddress();
    if (this.#given) {
      heat.choose(this.#given.criterion);
      this.element.open = true;
    }
    this.#drag(heat.canvas);
  }
  end() {
    clearTimeout(this.#timer);
  }
  #toggle() {
    if (this.element.open) return this.#begin();
    this.heat.try(null);
    keepDraft(null, this.path);
  }
  /** Take no bounds until those of the chosen criterion are known: they would be bounds of the former one. */
  #wait() {
    clearTimeout(this.#timer);
    for (const one of Object.values(this.sliders)) one.enable(false);
  }
  /** Take the policy in force and the criterion that the heat map shows; a draft of the same criterion stays. */
  async #begin() {
    const { shown: shown2 } = this.heat;
    if (!shown2 && !this.heat.isRead) return;
    if (!shown2) return fill(this.effect, h("p", {}, "No stored sequences in these steps."));
    const isSame = this.criterion && key(this.criterion) === key(shown2);
    this.criterion = shown2;
    if (!isSame) {
      this.#draft = this.#givenFor(shown2) ?? { lower: shown2.lower, upper: shown2.upper };
      this.#policy = await get(`${this.path}/policy`);
    }
    for (const [side, one] of Object.entries(this.sliders)) {
      one.range(shown2.edges, this.#draft[side]);
      one.enable(true);
    }
    this.heat.try(this.#draft);
    this.#keep();
    this.#later();
  }
  /** Return the bounds that the address had when the page was opened, once, if they are of this criterion. */
  #givenFor(shown2) {
    const given = this.#given;
    this.#given = null;
    const isShown = given && key(given.criterion) === key(shown2);
    const named5 = given && `${given.criterion.statistic} (${given.criterion.pair})`;
    this.problem.textContent = given && !isShown ? `The address tries ${named5}, which no policy of these steps bounds.` : "";
    return isShown ? given.bounds : null;
  }
  /** Keep a draft that differs from the policy's bounds in the address. */
  #keep() {
    const isChanged = ["lower", "upper"].some((side) => (this.#draft[side] ?? null) !== (this.criterion[side] ?? null));
    keepDraft(isChanged ? { criterion: this.criterion, bounds: this.#draft } : null, this.path);
  }
  #reset() {
    this.criterion = null;
    this.#begin();
  }
  #set(side, value) {
    this.#draft = { ...this.#draft, [side]: value };
    this.sliders[side].show(value);
    this.heat.try(this.#draft);
    this.#keep();
    this.#later();
  }
  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), WAIT_MS4);
  }
  /** Ask what the draft would have rejected of the displayed steps; the newest answer wins. */
  async #read() {
    const turn2 = ++this.#asked;
    const [from, to] = this.course.view;
    const question = { policy: this.#drafted(), from_step: from, to_step: to, max_steps: MOST_STEPS };
    try {
      const found = await send("POST", `${this.path}/whatif`, question);
      if (turn2 === this.#asked) fill(this.effect, effect(found));
    } catch (error) {
      if (turn2 === this.#asked) fill(this.effect, h("p", { class: "strong" }, error.message));
    }
  }
  /** Return the policy in force with the draft's bounds. */
  #drafted() {
    const { policy } = this.#policy;
    const { statistic, pair: pair2, where } = this.criterion;
    const bounds2 = Object.fromEntries(Object.entries(this.#draft).filter(([, value]) => value !== null && value !== void 0));
    const changed = { statistic, pair: pair2, ...where ? { where } : {}, ...bounds2 };
    const has = policy.criteria.some((one) => key(one) === key(changed));
    const criteria = policy.criteria.map((one) => key(one) === key(changed) ? { ...without(one), ...changed } : one);
    const { calibrate: _, ...kept2 } = policy;
    return { ...kept2, name: `${policy.name.replace(/_by_hand$/, "")}_by_hand`, criteria: has ? criteria : [...criteria, changed] };
  }
  async #save() {
    const current = await get(`${this.path}/policy`);
    const drafted2 = this.#drafted();
    const shadows = [...current.shadows.filter(({ name: name2 }) => name2 !== drafted2.name), drafted2];
    await this.#put({ policy: current.policy, shadows, pinned: current.pinned, reason: "shadow tried on the page" }, current);
  }
  async #enforce() {
    const current = await get(`${this.path}/policy`);
    if (current.hash !== this.#policy.hash)
      throw new Error(`The policy is ${current.name} by ${current.author} by now: press Back to today's and try again.`);
    const { statistic, lower, upper } = this.criterion;
    const before2 = words2({ lower, upper });
    const told2 = [
      h("p", {}, `${statistic}: ${before2} → ${words2(this.#draft)}`),
      h("div", {}, [...this.effect.childNodes].map((node) => node.cloneNode(true)))
    ];
    const isDone = await asked(
      "Put these bounds in force",
      told2,
      "Put in force",
      () => this.#put({ policy: this.#drafted(), pinned: current.pinned, reason: `${statistic} ${words2(this.#draft)}, set on the page` }, current)
    );
    if (isDone) this.#reset();
  }
  async #put(change2, current) {
    await send("PUT", `${this.path}/policy`, { ...change2, replaces: current.hash });
    await this.again();
  }
  /** Move a bound by dragging it on the heat map. */
  #drag(canvas) {
    let side = null;
    let isDragged = false;
    const near = (event) => ["upper", "lower"].find((one) => {
      const value = this.#draft[one];
      return value !== null && value !== void 0 && Math.abs(canvas.heightOf?.(value) - event.offsetY) <= NEAR_PX2;
    });
    canvas.addEventListener("pointerdown", (event) => {
      side = this.element.open ? near(event) : null;
      isDragged = side !== void 0 && side !== null;
      if (!side) return;
      canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    canvas.addEventListener("pointermove", (event) => {
      canvas.style.cursor = this.element.open && near(event) ? "ns-resize" : "";
      if (side) this.#set(side, rounded(canvas.valueAt(event.offsetY)));
    });
    canvas.addEventListener("pointerup", () => side = null);
    canvas.parentElement.addEventListener("click", (event) => isDragged && event.stopPropagation(), { capture: true });
  }
};
var key = ({ statistic, pair: pair2, where }) => [statistic, pair2, where ?? ""].join();
var without = ({ lower: _lower, upper: _upper, ...kept2 }) => kept2;
var rounded = (value) => Number(value.toPrecision(3));
function words2({ lower, upper }) {
  const parts = [
    known2(lower) && `at least ${number(lower)}`,
    known2(upper) && `at most ${number(upper)}`
  ];
  return parts.filter(Boolean).join(", ") || "no bound";
}
var known2 = (value) => value !== null && value !== void 0;
function effect({ total, then, reasons, by_length: quarters, range: range2, weights }) {
  const of = plural(total.n_sequences, "sequence");
  const steps = `of ${of} in ${plural(range2.n_steps, "step")}`;
  const why = Object.entries(reasons).sort(([, a], [, b]) => b - a).map(([name2, n]) => `${name2} ${step(n)}`);
  const lengths = quarters.map(({ shortest, longest, mask_rate: rate }) => `${step(shortest)}–${step(longest)}: ${percent(rate)}`);
  return [
    h("p", {}, h("span", { class: "strong" }, weights ? softly(weights) : `Would reject ${percent(total.mask_rate)}`), ` ${steps}; was ${percent(then.mask_rate)}.`),
    weights && h("p", { class: "quiet" }, `A soft policy: ${percent(total.mask_rate)} are beyond the bounds and keep a weight.`),
    why.length > 0 && h("p", { class: "quiet" }, `Reasons: ${why.join(", ")}.`),
    lengths.length > 0 && h("p", { class: "quiet" }, `By length in tokens: ${lengths.join("; ")}.`),
    range2.n_steps_without_reports > 0 && h("p", { class: "quiet" }, `${plural(range2.n_steps_without_reports, "step")} without stored sequences.`)
  ];
}
var softly = ({ mean: mean2, effective_share: share2 }) => `Mean weight ${percent(mean2)}, effective share ${percent(share2)}`;
function slider(side, set2) {
  const name2 = side === "upper" ? "Upper bound" : "Lower bound";
  const bar2 = h("input", { type: "range", min: 0, max: STEPS, "aria-label": name2 });
  const field = h("input", { type: "number", step: "any", "aria-label": `${name2}, number`, placeholder: "none" });
  let edges = [0, 1];
  const valueAt2 = (place) => {
    const at = place / STEPS * (edges.length - 1);
    const bin = Math.min(Math.floor(at), edges.length - 2);
    return rounded(Number(edges[bin]) + (at - bin) * (Number(edges[bin + 1]) - Number(edges[bin])));
  };
  const placeOf = (value) => {
    const bin = Math.min(Math.max(edges.findLastIndex((edge) => Number(edge) <= value), 0), edges.length - 2);
    const within = (value - Number(edges[bin])) / (Number(edges[bin + 1]) - Number(edges[bin]) || 1);
    return Math.round((bin + Math.min(Math.max(within, 0), 1)) / (edges.length - 1) * STEPS);
  };
  bar2.addEventListener("input", () => set2(valueAt2(Number(bar2.value))));
  field.addEventListener("input", () => set2(field.value === "" ? null : Number(field.value)));
  const show2 = (value) => {
    if (document.activeElement !== field) field.value = known2(value) ? String(rounded(value)) : "";
    bar2.value = String(known2(value) ? placeOf(value) : side === "upper" ? STEPS : 0);
    bar2.setAttribute("aria-valuetext", known2(value) ? number(value) : "none");
  };
  return {
    element: h("div", { class: "row bound" }, h("span", { class: "quiet" }, name2), bar2, field),
    range: (given, value) => {
      edges = given;
      show2(value);
    },
    show: show2,
    enable: (isEnabled) => {
      bar2.disabled = field.disabled = !isEnabled;
    }
  };
}

// src/run.js
var REFRESH_MS4 = 1500;
var POLICY_LINES = 8;
async function mountRun(stage2, { live: live2, parameters: [project, run2] }) {
  const view = new RunView(stage2, project, run2);
  stage2.title(run2);
  await view.begin();
  const concerns = ({ data }) => data.project === project && data.run === run2;
  const stop = follow(live2, { concerns, read: () => view.follow(), fail: stage2.fail, refreshMs: REFRESH_MS4 });
  document.addEventListener("keydown", view.keys);
  return () => {
    stop();
    document.removeEventListener("keydown", view.keys);
    view.end();
  };
}
function unanswered2(error) {
  if (!(error instanceof ApiError)) throw error;
}
var RunView = class {
  constructor(stage2, project, run2) {
    Object.assign(this, { stage: stage2, project, run: run2, path: runPath(project, run2), given: read2() });
    this.course = new Course(this.path, this.given);
    this.head = h("header", {});
    this.notes = h("section", { class: "notes", "aria-label": "Notes" });
    const again = async () => this.#show(await this.#facts());
    this.why = new DiagnosisCard(this.course, { open: (step2) => this.open(step2), again });
    this.budget = new BudgetSection(this.path);
    this.policies = h("section", { class: "card panel", "aria-label": "Policies" });
    this.charts = new Charts(this.course, (step2) => this.open(step2));
    this.heat = new Heatmap(this.course, (step2) => this.open(step2));
    this.editor = new ThresholdEditor(this.heat, this.course, { path: this.path, again });
    this.heat.element.append(this.editor.element);
    this.versions = h("div", { class: "history" });
    this.panel = new StepPanel(this.path, (step2) => this.open(step2));
    this.events = new EventList(this.course, (step2) => this.open(step2));
    this.bar = new RangeBar(this.course, (step2) => this.open(step2));
    this.keys = (event) => this.#key(event);
  }
  async begin() {
    const [facts] = await Promise.all([this.#facts(), this.course.begin()]);
    fill(this.policies, lines2(POLICY_LINES));
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
      this.panel.element
    );
    this.#show(facts);
    await this.charts.begin();
    this.charts.outline(facts);
    this.bar.draw();
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
  async open(step2, { scroll = true } = {}) {
    write2({ step: step2 }, this.path);
    this.given.step = step2;
    this.course.chosen = step2;
    this.charts.redraw();
    this.bar.draw();
    await this.panel.show(step2, this.given.attempt);
    if (scroll && step2 !== null) this.panel.element.scrollIntoView({ block: "nearest" });
  }
  end() {
    this.course.end();
    this.charts.end();
    this.heat.end();
    this.editor.end();
    this.why.end();
  }
  async #facts() {
    const { project, run: run2, path: path3 } = this;
    const asked2 = {
      run: get(path3),
      judged: get(`/fleet/${encodeURIComponent(project)}/${encodeURIComponent(run2)}`),
      diagnosis: orNothing(get(`${path3}/diagnosis`)),
      firing: all("/alerts", { project, run: run2, state: "firing" }),
      resolved: newestLast("/alerts", { project, run: run2, state: "resolved" }),
      policies: newestLast(`${path3}/policy/history`),
      attempts: newestLast(`${path3}/attempts`),
      notes: newestLast(`${path3}/notes`),
      adaptation: get(`${path3}/adaptation`)
    };
    const names2 = Object.keys(asked2);
    const answers = await Promise.all(Object.values(asked2));
    const { firing, resolved, ...facts } = Object.fromEntries(names2.map((name2, i) => [name2, answers[i]]));
    return { ...facts, alerts: { items: [...firing, ...resolved] } };
  }
  #show(facts) {
    this.course.mark(facts);
    this.stage.over(hasEnded(facts.run));
    runHead(this.head, facts, this.given.attempt);
    notesList(this.notes, facts.notes, (step2) => this.open(step2));
    const again = async () => this.#show(await this.#facts());
    this.why.show(facts);
    policyHistory(this.versions, facts, { path: this.path, again });
    policiesCard(this.policies, facts, { course: this.course, path: this.path, again }).catch(unanswered2);
    this.charts.outline(facts);
  }
  #key(event) {
    const by = { "[": -1, "]": 1 }[event.key];
    if (!by || typing(event.target) || !this.course.series.step.length) return;
    const step2 = this.given.step === null ? this.course.extent[1] : this.course.beside(this.given.step, by);
    this.open(step2);
  }
};

// src/signin.js
function signIn(root2, { why, done }) {
  const field = h("input", { type: "password", name: "token", required: true, autocomplete: "off", id: "token" });
  const enter = (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    done();
  };
  fill(
    root2,
    h(
      "form",
      { class: "card empty stack", onsubmit: enter },
      h("h1", {}, "Sign in"),
      h(
        "p",
        { class: "quiet" },
        "This service requires a token. A read token shows everything; to acknowledge or silence, use an admin token."
      ),
      why && h("p", { role: "alert", class: "strong" }, why),
      h("label", { for: "token" }, "Token"),
      field,
      h("p", {}, h("button", { class: "main", type: "submit" }, "Sign in")),
      h("p", { class: "quiet" }, "No token yet? Create one with ", h("code", {}, "trmon token create me --scope admin"), ".")
    )
  );
  field.focus();
}

// src/app.js
var VIEWS = [
  { name: "fleet", path: /^\/$/, mount: mountFleet },
  { name: "alerts", path: /^\/alerts$/, mount: mountAlerts },
  { name: "compare", path: /^\/compare$/, mount: mountCompare },
  { name: "rule", path: /^\/rules\/(?<rule>[^/]+)$/, mount: mountRule },
  { name: "run", path: /^\/runs\/(?<project>[^/]+)\/(?<run>[^/]+)$/, mount: mountRun }
];
var root = document.getElementById("view");
var live = new Live();
var leave = () => {
};
var shown = 0;
var waiting2 = null;
var RETRY_MS = 3e3;
var SKELETON_MS = 120;
var PASSING = [0, 502, 503, 504];
async function show() {
  const turn2 = ++shown;
  leave();
  leave = () => {
  };
  const view = VIEWS.find(({ path: path3 }) => path3.test(location.pathname));
  mark();
  badge(false);
  render();
  if (!view) return notFound(root, location.pathname);
  root.setAttribute("aria-busy", "true");
  waiting2 = setTimeout(() => fill(root, skeleton(view.name)), SKELETON_MS);
  if (root.contains(document.activeElement)) root.focus({ preventScroll: true });
  try {
    const parameters = Object.values(location.pathname.match(view.path).groups ?? {}).map(decodeURIComponent);
    const ended = await view.mount(stage(turn2), { live, parameters });
    if (turn2 !== shown) return ended();
    leave = ended;
    reach.shown(true);
  } catch (error) {
    if (turn2 === shown) fail(error);
  }
}
function render(...children) {
  clearTimeout(waiting2);
  root.removeAttribute("aria-busy");
  if (children.length) fill(root, ...children);
}
function stage(turn2) {
  const ifShown = (act) => (...given) => turn2 === shown && act(...given);
  return {
    show: ifShown(render),
    title: ifShown((text) => document.title = `${text} · trmon`),
    fail: ifShown(fail),
    over: ifShown((isOver) => badge(isOver))
  };
}
function fail(error) {
  leave();
  leave = () => {
  };
  render();
  if (error.status === 401) return signIn(root, { why: token.get() ? error.message : "", done: signedIn });
  if (!(error instanceof ApiError)) console.error(error);
  const turn2 = shown;
  if (PASSING.includes(error.status)) {
    reach.shown(false);
    setTimeout(() => turn2 === shown && show(), RETRY_MS);
  }
  const again = h("button", { onclick: show }, "Try again");
  const noun = location.pathname.startsWith("/rules/") ? "Rule" : "Run";
  const title = error.status === 404 ? `${noun} not found.` : error.message;
  const detail = error.status === 404 ? error.message : "Is it running? Start it with trmon serve; its log says why it stopped.";
  fill(
    root,
    h(
      "section",
      { class: "card empty stack", role: "alert" },
      h("h1", {}, title),
      h("p", {}, detail),
      h("p", {}, again)
    )
  );
}
function signedIn() {
  live.restart();
  show();
}
function mark() {
  document.title = "trmon";
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}
function go(href) {
  history.pushState(null, "", href);
  window.scrollTo(0, 0);
  show();
}
document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href, location.href);
  if (url.origin !== location.origin || url.hash || !VIEWS.some(({ path: path3 }) => path3.test(url.pathname))) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
window.addEventListener("popstate", show);
live.addEventListener("state", () => {
  const isAsked = root.querySelector("#token");
  if (live.state === "signed out" && !isAsked) fail(new ApiError(401, "The token is no longer valid."));
});
shortcuts({ go });
var badge = watch(document.getElementById("live"), live);
live.start();
show();
