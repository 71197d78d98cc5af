// src/dom.js
var hs = "a, button, input, select, textarea, summary, [tabindex]";
function o(s, t = {}, ...e) {
  return ms(document.createElement(s), t, e);
}
function $(s, t = {}, ...e) {
  return ms(document.createElementNS("http://www.w3.org/2000/svg", s), t, e);
}
function us() {
  if (document.hidden) return Promise.resolve();
  return new Promise((s) => requestAnimationFrame(() => setTimeout(s)));
}
function m(s, ...t) {
  const e = document.activeElement;
  const n = [...s.querySelectorAll(hs)].indexOf(e);
  s.replaceChildren(...fs(t));
  if (n < 0) return s;
  const i = s.contains(e) ? e : s.querySelectorAll(hs)[n];
  i?.focus({ preventScroll: true });
  return s;
}
function q(s, ...t) {
  const e = document.getSelection();
  if (!e.isCollapsed && e.containsNode(s, true)) return hi(s, t);
  At.delete(s);
  const n = new Map([...s.querySelectorAll("details")].map((i) => [ds(i), i.open]));
  m(s, ...t);
  for (const i of s.querySelectorAll("details")) i.open = n.get(ds(i)) ?? i.open;
  return s;
}
var At = /* @__PURE__ */ new Map();
var ds = (s) => s.dataset.name ?? s.querySelector("summary").textContent;
function hi(s, t) {
  if (!At.size) document.addEventListener("selectionchange", ps);
  At.set(s, t);
  return s;
}
function ps() {
  if (!document.getSelection().isCollapsed) return;
  document.removeEventListener("selectionchange", ps);
  for (const [s, t] of [...At]) q(s, ...t);
}
function Nt(s) {
  const t = document.activeElement;
  s();
  if (t !== document.body && t.isConnected) t.focus({ preventScroll: true });
}
function ms(s, t, e) {
  for (const [n, i] of Object.entries(t)) {
    if (n.startsWith("on")) s.addEventListener(n.slice(2), i);
    else if (i === true) s.setAttribute(n, "");
    else if (i !== false && i !== null && i !== void 0) s.setAttribute(n, i);
  }
  s.append(...fs(e));
  return s;
}
function fs(s) {
  return s.flat(3).filter((t) => t !== null && t !== void 0 && t !== false);
}

// src/action.js
function _(s, t, e = {}) {
  const n = o("span", { role: "alert", class: "strong" });
  let i = false;
  const r = async () => {
    if (i) return;
    i = true;
    n.textContent = "";
    try {
      await t();
    } catch (a) {
      n.textContent = U(a);
    } finally {
      i = false;
    }
  };
  return [o("button", { ...e, onclick: r }, s), n];
}
var U = (s) => s.status === 403 ? "This token is read-only." : s.message;

// src/clock.js
var di = 5e3;
var gs = 0;
function ws(s) {
  const t = Date.parse(s) - Date.now();
  if (!Number.isNaN(t)) gs = Math.abs(t) > di ? t : 0;
}
var tt = () => (Date.now() + gs) / 1e3;

// src/api.js
var Ee = "trmon.token";
var ui = 200;
var pi = 1e3;
var O = class extends Error {
  constructor(t, e) {
    super(e);
    this.status = t;
  }
};
var Me = class extends EventTarget {
  #t = true;
  #e = true;
  get isGood() {
    return this.#t && this.#e;
  }
  /** Record whether a request got an answer at all. */
  answered(t) {
    this.#t = t;
    this.dispatchEvent(new Event("change"));
  }
  /** Record whether the view is shown, rather than an error in its place. */
  shown(t) {
    this.#e = t;
    this.dispatchEvent(new Event("change"));
  }
};
var G = new Me();
var yt = {
  get: () => sessionStorage.getItem(Ee),
  set: (s) => sessionStorage.setItem(Ee, s),
  clear: () => sessionStorage.removeItem(Ee)
};
function bt(s = {}) {
  const t = yt.get();
  return t ? { ...s, Authorization: `Bearer ${t}` } : s;
}
function b(s, t = {}, { signal: e } = {}) {
  const n = Object.entries(t).filter(([, r]) => r !== null && r !== void 0);
  const i = n.length ? `?${new URLSearchParams(n)}` : "";
  return Le(`/api/v1${s}${i}`, { headers: bt(), signal: e });
}
var ys = (s) => Le(`/api/v1${s}`, { headers: bt() }, (t) => t.blob());
async function et(s, t = {}) {
  const { items: e } = await b(s, { ...t, limit: ui });
  return e.reverse();
}
var kt = async (s, t = {}) => (await Te(Infinity, s, t)).items;
async function Te(s, t, e = {}) {
  const n = [];
  let i = null;
  do {
    const r = await b(t, { ...e, after: i, limit: Math.min(pi, s - n.length) });
    n.push(...r.items);
    i = r.next;
  } while (i && n.length < s);
  return { items: n, hasMore: i !== null };
}
function T(s, t, e) {
  const n = e === void 0 ? {} : { body: JSON.stringify(e) };
  return Le(`/api/v1${t}`, { method: s, headers: bt({ "Content-Type": "application/json" }), ...n });
}
async function rt(s) {
  try {
    return await s;
  } catch (t) {
    if (t.status === 404) return null;
    throw t;
  }
}
async function Le(s, t, e = (n) => n.json()) {
  try {
    const n = await fetch(s, t);
    G.answered(true);
    ws(n.headers.get("date"));
    if (n.status === 204) return null;
    if (n.ok) return await e(n);
    throw await mi(n);
  } catch (n) {
    if (n instanceof O || n.name === "AbortError") throw n;
    G.answered(false);
    throw new O(0, "The service does not respond.");
  }
}
async function mi(s) {
  const t = await s.json().catch(() => ({}));
  return new O(s.status, t.detail || t.title || `The service responded with status ${s.status}.`);
}
var C = (s, t) => `/runs/${encodeURIComponent(s)}/${encodeURIComponent(t)}`;

// src/words.js
function g(s, t = 3) {
  if (s === null || s === void 0 || Number.isNaN(s)) return "–";
  if (typeof s === "string") return s;
  const e = Math.abs(s);
  if (s === 0) return "0";
  if (e >= 1e6 || e < 1e-3) return Number(s.toPrecision(t)).toExponential().replace("e+", "e");
  if (Number.isInteger(s)) return s.toLocaleString("en");
  return e >= 1e3 ? Math.round(s).toLocaleString("en") : String(Number(s.toPrecision(t)));
}
var p = (s) => s === null || s === void 0 ? "–" : s.toLocaleString("en");
function v(s) {
  if (s === null || s === void 0 || typeof s === "string") return "–";
  if (s > 0 && s < 0.01) return "<1%";
  return `${Math.round(s * 100)}%`;
}
function B(s) {
  for (const [t, e] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60]
  ]) {
    if (s >= 2 * e) return `${Math.round(s / e)} ${t}`;
  }
  if (s >= 1) return `${Math.round(s)} s`;
  return s >= 0.1 ? `${Number(s.toPrecision(1))} s` : "under 0.1 s";
}
function x(s) {
  if (s === null) return "never";
  const t = tt() - s;
  return t < 1 ? "now" : `${B(t)} ago`;
}
var Oe = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" };
var fi = { year: "numeric", month: "short", day: "numeric" };
var L = (s) => new Date(s * 1e3).toLocaleString([], { ...fi, ...Oe });
function bs(s) {
  const t = new Date(s * 1e3).toDateString() === new Date(tt() * 1e3).toDateString();
  return t ? new Date(s * 1e3).toLocaleTimeString([], Oe) : L(s);
}
var ks = (s) => new Intl.DateTimeFormat([], Oe).formatToParts(s * 1e3).find(({ type: t }) => t === "timeZoneName").value;
var y = (s, t, e = `${t}s`) => `${p(s)} ${s === 1 ? t : e}`;
var st = (s) => P(s.replaceAll("_", " "));
var P = (s) => s.charAt(0).toUpperCase() + s.slice(1);

// src/dialogs.js
var gi = 250;
var wi = 5;
var $s = "trmon.author";
var yi = [
  ["2", "2 hours"],
  ["8", "8 hours"],
  ["24", "1 day"],
  ["168", "1 week"]
];
function qt(s) {
  const t = o("textarea", { rows: 3, maxlength: 2e3, placeholder: "Looking at the weight sync" });
  const e = `Acknowledge ${s.map(({ title: n }) => n).join(", ")}`;
  return I(e, [lt(), o("label", {}, "Note", t)], "Acknowledge", (n) => {
    const i = { author: ct(n), note: t.value };
    return Promise.all(s.map(({ identity: r }) => T("POST", `/alerts/${encodeURIComponent(r)}/ack`, i)));
  });
}
function at(s, t) {
  const e = t ? [{ label: "project", value: t }, ...s] : s;
  const n = e.map(({ label: h, value: d }) => ki(h, d));
  const i = o("div", { role: "status", class: "preview" });
  const r = bi(i, () => vs(n, 3600));
  for (const h of n) h.addEventListener("input", r);
  r();
  const a = o(
    "select",
    {},
    yi.map(([h, d]) => o("option", { value: h }, d))
  );
  const l = o("input", { maxlength: 2e3 });
  const c = [i, o("label", {}, "For", a), lt(), o("label", {}, "Note", l)];
  return I(
    "Silence alerts that match every label",
    [...n, ...c],
    "Silence",
    (h) => T("POST", "/silences", { ...vs(n, a.value * 3600), author: ct(h), note: l.value })
  );
}
function vs(s, t) {
  const e = s.map(vi).filter(({ value: r }) => r);
  const { value: n } = e.find(({ label: r, operator: a }) => r === "project" && a === "=") ?? {};
  const i = e.filter(({ label: r }) => r !== "project");
  return n && i.length ? { project: n, matchers: i, seconds: t } : { matchers: e, seconds: t };
}
function bi(s, t) {
  let e = 0;
  return async () => {
    const n = ++e;
    await new Promise((r) => setTimeout(r, gi));
    const i = t();
    if (n !== e) return;
    if (!i.matchers.length) return m(s, "Fill in at least one field.");
    try {
      const { total: r, items: a } = await T("POST", "/silences/preview", i);
      if (n !== e) return;
      const l = a.slice(0, wi).map((h) => o("li", {}, `${h.project}/${h.run}: ${h.rule.replaceAll("_", " ")}`));
      const c = r > l.length && o("li", {}, `and ${p(r - l.length)} more`);
      m(s, r ? `Mutes ${y(r, "firing alert")} now:` : "Mutes no alert that fires now.", o("ul", {}, l, c));
    } catch (r) {
      if (n === e) m(s, U(r));
    }
  };
}
function ki(s, t) {
  return o(
    "label",
    { "data-label": s },
    `${s} (shell pattern; empty: any)`,
    o("input", { value: t, maxlength: 256 })
  );
}
function vi(s) {
  const t = s.querySelector("input").value.trim();
  return { label: s.dataset.label, operator: /[*?[]/.test(t) ? "~" : "=", value: t };
}
function lt() {
  const s = localStorage.getItem($s) ?? "";
  return o("label", {}, "Who", o("input", { name: "author", value: s, maxlength: 128, placeholder: "your name" }));
}
function ct(s) {
  const t = s.elements.author.value.trim();
  localStorage.setItem($s, t);
  return t || null;
}
function I(s, t, e, n) {
  return new Promise((i) => {
    const r = o("p", { role: "alert", class: "strong" });
    let a = false;
    const l = async (u) => {
      u.preventDefault();
      if (a) return;
      a = true;
      try {
        await n(h);
        d.close("done");
      } catch (f) {
        r.textContent = U(f);
      } finally {
        a = false;
      }
    };
    const c = o(
      "div",
      { class: "row" },
      o("button", { class: "main" }, e),
      o("button", { type: "button", onclick: () => d.close() }, "Cancel")
    );
    const h = o("form", { onsubmit: l }, o("h2", {}, s), t, r, c);
    const d = o("dialog", { "aria-label": s }, h);
    d.addEventListener("close", () => (d.remove(), i(d.returnValue === "done")));
    document.body.append(d);
    d.showModal();
  });
}

// src/alertbulk.js
var je = 500;
var Ae = 100;
var Rt = class {
  #t = null;
  #e = "";
  /** `again` reads the alerts again. */
  constructor(t, e) {
    this.selection = t;
    this.again = e;
    this.count = o("p", { role: "status", class: "strong" });
    this.buttons = o("div", { class: "row" });
    this.result = o("div", { role: "alert" });
    const n = o("div", { class: "row" }, this.count, this.buttons);
    this.element = o("section", { class: "card selected", "aria-label": "Selected alerts", hidden: true }, n, this.result);
  }
  /** Render. Args: firing: all firing alerts; matching: those that match the filters. */
  draw(t, e) {
    this.chosen = t.filter((c) => this.selection.has(c));
    const n = this.chosen.filter((c) => !e.includes(c)).length;
    const i = e.every((c) => this.selection.has(c));
    const r = this.chosen.length;
    this.element.hidden = r === 0 && !this.#t;
    const a = JSON.stringify([r, n, i, e.length]);
    if (a === this.#e) return;
    this.#e = a;
    this.count.textContent = `${y(r, "alert")} selected${n ? `, ${p(n)} not shown` : ""}`;
    const l = () => this.selection.set([.../* @__PURE__ */ new Set([...this.chosen, ...e])]);
    m(
      this.buttons,
      r > 0 && o("button", { onclick: () => this.acknowledge(this.chosen) }, `Acknowledge ${y(r, "alert")}`),
      r > 0 && !i && o("button", { onclick: l }, `Select all ${p(e.length)}`),
      o("button", { onclick: () => this.#s() }, r ? "Clear" : "Close")
    );
  }
  /** Ask for a name and a note, then acknowledge alerts; those that fail stay selected. */
  async acknowledge(t) {
    if (!t.length) return;
    const e = o("textarea", { rows: 3, maxlength: 2e3, placeholder: "The node is gone; restarting" });
    const n = t.slice(0, Ae).map((h) => o("li", {}, _s(h)));
    const i = t.length > Ae && o("li", {}, `and ${p(t.length - Ae)} more`);
    const r = [o("ul", { class: "names" }, n, i), lt(), o("label", {}, "Note (optional)", e)];
    let a = /* @__PURE__ */ new Map();
    const l = `Acknowledge ${y(t.length, "alert")}`;
    const c = async (h) => a = await $i(t, { author: ct(h), note: e.value });
    if (!await I(l, r, "Acknowledge", c)) return;
    this.#t = a.size ? a : null;
    m(this.result, this.#t && _i(t, a));
    this.#e = "";
    this.selection.set(t.filter(({ identity: h }) => a.has(h)));
    await this.again();
  }
  #s() {
    this.#t = null;
    this.#e = "";
    m(this.result);
    this.selection.set([]);
  }
};
async function $i(s, t) {
  const e = /* @__PURE__ */ new Map();
  for (let n = 0; n < s.length; n += je) {
    const i = s.slice(n, n + je).map(({ identity: r }) => r);
    try {
      const { refused: r } = await T("POST", "/alerts/ack", { ...t, identities: i });
      for (const { identity: a, detail: l } of r) e.set(a, l);
    } catch (r) {
      if (s.length <= je) throw r;
      for (const a of i) e.set(a, U(r));
    }
  }
  return e;
}
function _i(s, t) {
  const e = s.filter(({ identity: n }) => t.has(n));
  return [
    o("p", {}, `${p(s.length - e.length)} of ${y(s.length, "alert")} acknowledged. Not acknowledged:`),
    o("ul", { class: "failures" }, e.map((n) => o("li", {}, `${_s(n)}: ${t.get(n.identity)}`)))
  ];
}
var _s = ({ project: s, run: t, title: e }) => `${s}/${t}: ${e}`;

// src/alertfilter.js
var xi = ["page", "warn", "info"];
var Ct = class {
  /** `changed` is called when a filter changes. */
  constructor(t) {
    const e = new URLSearchParams(location.search);
    this.changed = t;
    this.words = o("input", {
      type: "search",
      value: e.get("q") ?? "",
      placeholder: "Filter alerts",
      "aria-label": "Filter by project, run, rule, cause or owner",
      "data-filter": true
    });
    const n = xi.map((r) => o("option", { value: r, selected: r === e.get("severity") }, r));
    this.severity = o("select", { "aria-label": "severity" }, o("option", { value: "" }, "every severity"), n);
    this.open = o("input", { type: "checkbox", checked: e.has("open") });
    this.words.addEventListener("input", () => this.#t());
    for (const r of [this.severity, this.open]) r.addEventListener("change", () => this.#t());
    const i = o("label", { class: "row" }, this.open, "unacknowledged only");
    this.bar = o("div", { class: "row controls", role: "search" }, this.words, this.severity, i);
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
  chosen(t) {
    const e = this.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    return t.filter(
      (n) => (!this.severity.value || n.severity === this.severity.value) && (!this.open.checked || !n.ack && n.state === "firing") && e.every((i) => Si(n).includes(i))
    );
  }
  /** Remove every filter. */
  clear() {
    this.words.value = this.severity.value = "";
    this.open.checked = false;
    this.#t();
    this.words.focus();
  }
  #t() {
    const t = { q: this.words.value, severity: this.severity.value, open: this.open.checked ? "1" : "" };
    const e = new URLSearchParams(Object.entries(t).filter(([, n]) => n)).toString();
    history.replaceState(null, "", e ? `/alerts?${e}` : "/alerts");
    this.changed();
  }
};
function Si({ project: s, run: t, owner: e, rule: n, title: i, labels: { cause: r } }) {
  const a = [n, i, r].filter(Boolean);
  const l = a.map((c) => c.replaceAll("_", " "));
  return [`${s}/${t}`, e, ...a, ...l].filter(Boolean).join(" ").toLowerCase();
}

// src/alertgroup.js
var Pt = class {
  #t = "";
  constructor({ selection: t, turn: e, acknowledge: n }) {
    this.turn = e;
    this.acknowledge = n;
    this.element = o("tbody", {});
    this.selection = t;
  }
  /** Render a group. */
  show(t, e) {
    this.line = t;
    const { alerts: n } = t;
    if (this.box) this.selection.mark(this.box, t);
    const i = n.filter((D) => !D.ack);
    const r = n.filter((D) => D.silenced).length;
    const a = Math.min(...n.map((D) => D.since_at));
    const l = JSON.stringify([n.length, i.length, r, x(a), e]);
    if (l === this.#t) return;
    this.#t = l;
    const { severity: c, title: h, rule: d } = n[0];
    const u = y(new Set(n.map(({ project: D, run: ot }) => `${D}/${ot}`)).size, "run");
    this.box = this.selection.box(`${h} of ${u}`, () => this.line);
    const f = { class: "plain fold", "aria-expanded": String(e), onclick: () => this.turn(t.key) };
    const w = [
      i.length < n.length && `${p(n.length - i.length)} acknowledged`,
      r > 0 && `${p(r)} silenced`
    ];
    const k = o("button", { onclick: () => this.acknowledge(i) }, `Acknowledge ${p(i.length)}`);
    const M = {
      select: this.box,
      severity: o("span", { class: `kind kind-${c === "page" ? "act" : c === "warn" ? "watch" : "unknown"}` }, c),
      alert: [o("button", f, `${h}: ${u}`), o("span", { class: "quiet" }, w.filter(Boolean).join(", "))],
      run: o("span", { class: "quiet" }, u),
      since: o("span", { class: "quiet nowrap" }, `first ${x(a)}`),
      actions: o("span", { class: "row actions" }, i.length > 0 && k)
    };
    const N = Object.entries(M).map(([D, ot]) => o("td", { "data-name": D }, ot));
    m(this.element, o("tr", { "data-severity": c, "data-state": "firing", "data-rule": d }, N));
  }
};

// src/incidents.js
var R = ({ identity: s, attempt_id: t, step: e }) => `${s}@${t}:${e}`;
function vt(s, t = s) {
  const e = new Set(t.flatMap(({ members: n }) => n.map(R)));
  return s.filter((n) => !e.has(R(n)));
}

// src/alertlines.js
var Ei = 3;
var Mi = ["page", "warn", "info"];
function Ss(s) {
  const t = Map.groupBy(
    s.filter(({ members: a }) => !a.length),
    ({ rule: a, state: l }) => `${l} ${a}`
  );
  const e = [...t].filter(([, a]) => a.length >= Ei);
  const n = new Set(e.flatMap(([, a]) => a));
  const i = s.filter((a) => !n.has(a)).map((a) => ({ key: R(a), alerts: [a] }));
  const r = e.map(([a, l]) => ({ key: a, rule: l[0].rule, alerts: l.sort(xs) }));
  return [...i, ...r].sort((a, l) => xs(a.alerts[0], l.alerts[0]));
}
function Es(s, t) {
  const e = (n) => n.alerts.map((i) => ({ key: R(i), alerts: [i], isBeneath: true }));
  return s.flatMap((n) => n.rule && t.has(n.key) ? [n, ...e(n)] : [n]);
}
function xs(s, t) {
  const e = (n) => Mi.indexOf(n.severity);
  return Boolean(s.ack) - Boolean(t.ack) || e(s) - e(t) || t.since_at - s.since_at;
}

// src/alertrow.js
var It = class {
  #t = null;
  #e = "";
  /** `again` reads the alerts again; `find(silence)` shows a silence; alerts without a selection have no box. */
  constructor({ again: t, find: e, selection: n = null }) {
    this.again = t;
    this.find = e;
    this.selection = n;
    this.element = o("tbody", {});
  }
  /** Render a line; the DOM is untouched if nothing changed. */
  show(t) {
    const [e] = t.alerts;
    this.line = t;
    if (this.box) this.selection.mark(this.box, t);
    this.element.toggleAttribute("data-beneath", Boolean(t.isBeneath));
    const n = JSON.stringify(e) + x(e.since_at) + (e.ack ? x(e.ack.at) : "");
    if (n === this.#e) return;
    this.#e = n;
    this.#s(e);
  }
  #s(t) {
    this.alert = t;
    this.box = this.selection?.box(`${t.title} of ${t.project}/${t.run}`, () => this.line);
    const e = [this.box ?? "", Ti(t), this.#n(t), Li(t), Oi(t), this.#i(t)];
    const n = ["select", "severity", "alert", "run", "since", "actions"];
    const i = o(
      "tr",
      { "data-severity": t.severity, "data-state": t.state },
      e.map((r, a) => o("td", { "data-name": n[a] }, r))
    );
    q(this.element, i, this.#t && o("tr", {}, o("td", { colspan: 6 }, this.#t)));
  }
  #n({ project: t, run: e, owner: n, title: i, members: r, labels: a, summary: l, runbook: c, ack: h, silenced: d }) {
    const u = a.last_good_step;
    const f = r.filter(({ rule: M }) => M !== a.cause);
    const w = r.map(
      (M) => o("li", {}, `${M.rule.replaceAll("_", " ")} since step ${p(M.step)}${M.state === "firing" ? "" : ", over"}`)
    );
    const k = d && `Silenced until ${bs(d.ends_at)} by ${d.author}${d.note ? `: ${d.note}` : ""}`;
    return [
      o("span", { class: "strong" }, i),
      r.length > 0 && u && o("span", { class: "quiet" }, ` · last good step ${p(Number(u))}`),
      n && o("span", { class: "quiet" }, ` · ${n}`),
      k && o("div", {}, o("button", { class: "plain silenced", onclick: () => this.find(d) }, k)),
      o(
        "details",
        { "data-name": "more" },
        o("summary", {}, f.length ? y(f.length, "symptom") : "Details"),
        o("p", {}, l.replace(`${t}/${e}: `, "")),
        c && o("p", { class: "quiet" }, c),
        w.length > 0 && o("ul", { class: "quiet", "aria-label": "Alerts in this incident" }, w)
      ),
      h && o("div", { class: "quiet" }, `Acknowledged by ${h.author} ${x(h.at)}${h.note ? `: ${h.note}` : ""}`)
    ];
  }
  #i(t) {
    const e = t.state === "firing";
    const n = async () => await qt([t]) && this.again();
    const i = async () => await at(
      [
        { label: "run", value: t.run },
        { label: "rule", value: t.members.length ? t.labels.cause : t.rule },
        { label: "owner", value: t.owner ?? "" }
      ],
      t.project
    ) && this.again();
    return o(
      "span",
      { class: "row actions" },
      e && !t.ack && _("Acknowledge", n),
      e && _("Silence", i),
      _("History", () => this.#o(), { class: "plain", "aria-expanded": String(Boolean(this.#t)) })
    );
  }
  async #o() {
    this.#t = this.#t ? null : ji(await et("/alerts/events", { identity: this.alert.identity }));
    this.#s(this.alert);
  }
};
function Ti({ severity: s, state: t }) {
  const e = t !== "firing" ? "unknown" : { page: "act", warn: "watch" }[s] ?? "unknown";
  return o("span", { class: `kind kind-${e}` }, s);
}
function Li({ project: s, run: t, step: e }) {
  return o(
    "a",
    { href: `${C(s, t)}?step=${e}` },
    o("span", { class: "project" }, `${s} / `),
    o("span", { class: "strong" }, t)
  );
}
function Oi({ step: s, since_at: t, state: e, updated_at: n }) {
  return [
    o("div", { class: "nowrap" }, `step ${p(s)}`),
    o(
      "div",
      { class: "quiet nowrap", title: L(t) },
      e === "resolved" ? `until ${L(n)}` : x(t)
    )
  ];
}
function ji(s) {
  const t = s.map(
    (e) => o(
      "li",
      {},
      o("span", { class: "quiet" }, `${L(e.at)} · `),
      `${e.state} at step ${p(e.step)}: ${g(e.value)} (limit ${g(e.threshold)})`
    )
  );
  return o("ol", { class: "events" }, t);
}

// src/alertselection.js
var Dt = class {
  #t = /* @__PURE__ */ new Set();
  #e = [];
  #s = null;
  /** `changed` is called when alerts are selected or deselected. */
  constructor(t) {
    this.changed = t;
  }
  has(t) {
    return this.#t.has(R(t));
  }
  get size() {
    return this.#t.size;
  }
  /** Return a checkbox for the line that `lineOf()` returns; a row that is drawn anew gets a new one, so that the focus can follow. */
  box(t, e) {
    const n = o("input", { type: "checkbox", "aria-label": `Select ${t}` });
    n.addEventListener("click", (i) => this.choose(e(), n.checked, i.shiftKey));
    this.mark(n, e());
    return n;
  }
  /** Show in a checkbox whether the alerts of a line are selected. */
  mark(t, { alerts: e }) {
    const n = e.filter((i) => this.has(i)).length;
    t.checked = n === e.length;
    t.indeterminate = n > 0 && n < e.length;
  }
  /** Select exactly these alerts. */
  set(t) {
    this.#t = new Set(t.map(R));
    this.changed();
  }
  /** Take the lines on screen in their order; alerts that no longer fire leave. */
  follow(t, e) {
    this.#e = t;
    const n = new Set(e.map(R));
    for (const i of this.#t) if (!n.has(i)) this.#t.delete(i);
  }
  /** Select or deselect the alerts of a line; with Shift, of every line from the one that was clicked last. */
  choose(t, e, n) {
    const i = this.#e.findIndex(({ key: l }) => l === t.key);
    const r = n ? this.#e.findIndex(({ key: l }) => l === this.#s) : -1;
    const a = i < 0 || r < 0 ? [t] : this.#e.slice(Math.min(i, r), Math.max(i, r) + 1);
    for (const l of a.flatMap(({ alerts: c }) => c)) {
      if (e) this.#t.add(R(l));
      else this.#t.delete(R(l));
    }
    this.#s = t.key;
    this.changed();
  }
};

// src/following.js
var Ai = 3e4;
function ht(s, { concerns: t, read: e, fail: n, refreshMs: i, after: r = null }) {
  let a = false;
  let l = false;
  let c = r === null;
  const h = () => c = true;
  r?.then(h, h);
  let d = Date.now();
  const u = ({ detail: M }) => a ||= t(M);
  const f = () => a ||= c && s.state === "live";
  const w = async () => {
    if (!c || l || document.hidden || !(a || Date.now() - d > Ai)) return;
    l = true;
    a = false;
    d = Date.now();
    try {
      await e();
    } catch (M) {
      if ([401, 404].includes(M.status)) n(M);
    } finally {
      l = false;
    }
  };
  const k = setInterval(w, i);
  s.addEventListener("event", u);
  s.addEventListener("state", f);
  return () => {
    clearInterval(k);
    s.removeEventListener("event", u);
    s.removeEventListener("state", f);
  };
}

// src/shortcuts.js
var Ni = [
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
function Ls({ go: s }) {
  let t = "";
  const e = { gf: () => s("/"), ga: () => s("/alerts"), t: Ms, "?": Ts, "/": qi };
  document.addEventListener("keydown", (n) => {
    if (nt(n.target) || document.querySelector("dialog") || n.metaKey || n.ctrlKey || n.altKey) return;
    const i = e[t + n.key];
    t = n.key === "g" ? "g" : "";
    if (!i) return;
    n.preventDefault();
    i();
  });
  document.getElementById("theme").addEventListener("click", Ms);
  document.getElementById("keys").addEventListener("click", Ts);
}
var nt = (s) => /^(INPUT|TEXTAREA|SELECT)$/.test(s.tagName) && s.type !== "checkbox" && s.type !== "radio";
function qi() {
  document.querySelector("[data-filter]")?.focus();
}
function Ms() {
  const s = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = s ? "light" : "dark";
  localStorage.setItem("trmon.theme", s ? "light" : "dark");
  window.dispatchEvent(new Event("themechange"));
}
function Ts() {
  const s = Ni.map(([n, i]) => o("tr", {}, o("td", {}, o("code", {}, n)), o("td", {}, i)));
  const t = o("button", { onclick: () => e.close() }, "Close");
  const e = o(
    "dialog",
    { "aria-label": "Keyboard shortcuts" },
    o("h2", {}, "Keyboard"),
    o("table", {}, s),
    t
  );
  e.addEventListener("close", () => e.remove());
  document.body.append(e);
  e.showModal();
}

// src/alerts.js
var Ri = 2e3;
var dt = 50;
var Ci = 250;
async function Ns(s, { live: t }) {
  const e = new Ne(s);
  s.title("Alerts");
  await e.read();
  const n = ({ kind: r }) => ["alert", "ack"].includes(r);
  const i = ht(t, { concerns: n, read: () => e.read(), fail: s.fail, refreshMs: Ri });
  document.addEventListener("keydown", e.keys);
  return () => {
    i();
    e.end();
    document.removeEventListener("keydown", e.keys);
  };
}
var Ne = class {
  #t = 0;
  #e = /* @__PURE__ */ new Map();
  #s = /* @__PURE__ */ new Set();
  #n = null;
  #i = false;
  #o = "";
  #r = null;
  constructor(t) {
    this.stage = t;
    this.limit = dt;
    this.most = dt;
    this.title = o("h1", {});
    this.count = o("p", { role: "status", class: "quiet" });
    this.filter = new Ct(() => this.#a());
    this.selection = new Dt(() => this.draw());
    this.bulk = new Rt(this.selection, () => this.read());
    this.firing = Os("Firing", () => (this.most += dt, this.draw()));
    this.silences = o("section", { class: "alerts" });
    this.past = Os("Resolved", () => (this.limit += dt, this.read()));
    const e = "No alert matches these filters.";
    this.none = o("p", { class: "notice row" }, o("span", { class: "quiet" }, e), _("Show all alerts", () => this.filter.clear()));
    this.empty = o(
      "section",
      { class: "card empty quiet" },
      "No alert has fired yet. Built-in rules watch every run; docs/rules.md lists them and shows how to write your own."
    );
    this.keys = (n) => this.#w(n);
  }
  /** Read all firing alerts, since the oldest of hundreds may be the most severe, and the newest resolved ones that match. */
  async read() {
    const t = ++this.#t;
    const { query: e } = this.filter;
    const [n, i, r] = await Promise.all([
      kt("/alerts", { state: "firing" }),
      e ? Te(this.limit, "/alerts", { state: "resolved", ...e }) : { items: [], hasMore: false },
      kt("/silences")
    ]);
    if (t !== this.#t) return;
    const a = [...n, ...i.items];
    const l = vt(i.items, a).map((c) => ({ ...c, silenced: null }));
    this.#n = { firing: vt(n, a), resolved: l, hasMore: i.hasMore, silences: r, query: e };
    if (!this.#i) this.#c();
    this.draw();
  }
  /** Filter what is loaded at once, and once typing pauses, all resolved alerts. */
  #a() {
    this.limit = dt;
    this.draw();
    clearTimeout(this.#r);
    this.#r = setTimeout(() => this.read().catch(Ii), Ci);
  }
  end() {
    clearTimeout(this.#r);
  }
  #c() {
    this.#i = true;
    const t = o("header", { class: "row spread" }, this.title, _("New silence", () => this.#m()));
    const e = [this.firing.section, this.bulk.element, this.silences, this.past.section];
    this.stage.show(t, this.filter.bar, this.count, this.none, e, this.empty);
  }
  draw() {
    if (!this.#n) return;
    const { firing: t, resolved: e, hasMore: n, silences: i, query: r } = this.#n;
    const a = JSON.stringify(r) === JSON.stringify(this.filter.query);
    const l = t.filter((k) => !k.ack).length;
    const c = `${y(t.length, "alert")} ${t.length === 1 ? "fires" : "fire"}, ${l} unacknowledged`;
    js(this.title, t.length ? c : "No alert fires");
    const h = this.filter.chosen(t);
    const d = a ? e : this.filter.chosen(e);
    const u = !this.filter.isOn && t.length + e.length === 0;
    js(this.count, this.filter.isOn ? `${p(h.length)} of ${y(t.length, "firing alert")} shown` : "");
    this.filter.bar.hidden = !this.empty.toggleAttribute("hidden", !u);
    this.none.hidden = u || !a || h.length + d.length > 0;
    this.past.section.setAttribute("aria-busy", String(!a));
    const f = Es(Ss(h), this.#s);
    this.lines = f.slice(0, this.most);
    this.selection.follow(this.lines, t);
    this.#h(this.firing, this.lines, f.length - this.lines.length);
    this.#h(this.past, d.map((k) => ({ key: R(k), alerts: [k] })), n && a ? dt : 0);
    const w = new Set([...f, ...e.map((k) => ({ key: R(k) }))].map(({ key: k }) => k));
    for (const k of this.#e.keys()) if (!w.has(k) && !this.filter.isOn) this.#e.delete(k);
    this.bulk.draw(t, h);
    this.#l(i);
  }
  #h({ section: t, list: e, more: n }, i, r) {
    t.hidden = !i.length && !r;
    n.hidden = r <= 0;
    const a = i.map((l) => {
      const c = this.#d(l);
      c.show(l, this.#s.has(l.key));
      return c.element;
    });
    Nt(() => Pi(e, a));
  }
  /** Reuse the row of each line so that what is open stays open. */
  #d(t) {
    const e = t.alerts[0].state === "firing";
    const n = () => this.read();
    const i = (h) => this.#p(h);
    const r = this.#e.get(t.key);
    if (r && Boolean(r.selection) === e) return r;
    const { selection: a } = this;
    const l = (h) => this.bulk.acknowledge(h);
    const c = t.rule ? new Pt({ selection: a, turn: (h) => this.#u(h), acknowledge: l }) : new It({ again: n, find: i, selection: e ? a : null });
    this.#e.set(t.key, c);
    return c;
  }
  #u(t) {
    if (!this.#s.delete(t)) this.#s.add(t);
    this.draw();
  }
  #l(t) {
    this.silences.hidden = !t.length;
    const e = JSON.stringify(t) + t.map(As);
    if (e === this.#o) return;
    this.#o = e;
    const n = t.map((i) => {
      const { id: r, author: a, note: l, alerts: c } = i;
      return o(
        "li",
        { class: "row", id: `silence-${r}`, tabindex: "-1" },
        o("code", {}, Di(i)),
        o("span", { class: "quiet" }, `${As(i)}, by ${a}${l ? `: ${l}` : ""} · mutes ${y(c, "alert")} now`),
        _("End", () => this.#f(i))
      );
    });
    q(this.silences, o("h2", {}, "Silences"), o("ul", { class: "card silences" }, n));
  }
  #p({ id: t }) {
    const e = document.getElementById(`silence-${t}`);
    e?.scrollIntoView({ block: "center" });
    e?.focus({ preventScroll: true });
  }
  async #m() {
    const t = ["project", "run", "rule", "owner"].map((e) => ({ label: e, value: "" }));
    if (await at(t)) await this.read();
  }
  async #f(t) {
    await T("DELETE", `/silences/${t.id}`);
    await this.read();
  }
  #g = "";
  /** Move with j and k, select with x, acknowledge with a; g a is a way to this view. */
  #w(t) {
    if (nt(t.target) || document.querySelector("dialog") || t.metaKey || t.ctrlKey || t.altKey) return;
    const e = this.#g === "g";
    this.#g = t.key;
    if (e || !["j", "k", "x", "a"].includes(t.key)) return;
    const n = [...this.firing.list.tBodies];
    const i = n.findIndex((r) => r.contains(document.activeElement));
    if (t.key === "j" || t.key === "k") {
      const r = i < 0 ? 0 : Math.min(n.length - 1, Math.max(0, i + (t.key === "j" ? 1 : -1)));
      n[r]?.querySelector('[type="checkbox"]').focus();
      n[r]?.scrollIntoView({ block: "nearest" });
    } else if (t.key === "x" && i >= 0) {
      const r = this.lines[i];
      this.selection.choose(r, !r.alerts.every((a) => this.selection.has(a)), false);
    } else if (t.key === "a") {
      const r = this.selection.size ? this.bulk.chosen : (this.lines[i]?.alerts ?? []).filter((a) => !a.ack);
      this.bulk.acknowledge(r);
    } else return;
    t.preventDefault();
  }
};
function Os(s, t) {
  const e = ["select", "severity", "alert", "run", "since", "actions"];
  const n = ["select", "actions"];
  const i = e.map((c) => o("th", { scope: "col" }, o("span", { class: n.includes(c) ? "sr" : "" }, c)));
  const r = o("table", { class: "list", "aria-label": s }, o("thead", {}, o("tr", {}, i)));
  const a = o("p", {}, _("Show more", t));
  const l = o("section", { class: "alerts" }, o("h2", {}, s), o("div", { class: "card scroll" }, r), a);
  return { section: l, list: r, more: a };
}
function Pi(s, t) {
  const e = new Set(t);
  for (const n of [...s.tBodies]) if (!e.has(n)) n.remove();
  t.forEach((n, i) => {
    if (s.tBodies[i] !== n) s.insertBefore(n, s.tBodies[i] ?? null);
  });
}
function Ii(s) {
  if (!(s instanceof O)) throw s;
}
function js(s, t) {
  if (s.textContent !== t) s.textContent = t;
}
var Di = ({ matchers: s, project: t }) => [t && `project=${t}`, ...s.map((e) => `${e.label}${e.operator}${e.value}`)].filter(Boolean).join(", ");
function As({ starts_at: s, ends_at: t }) {
  const e = tt();
  return s > e ? `from ${L(s)} for ${B(t - s)}` : `ends in ${B(t - e)}`;
}

// src/plotoptions.js
var Bi = [[], [5, 3], [2, 2]];
var zi = 6;
var qs = 5;
var Wi = [
  [86400, "{D} {MMM}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]
];
var Ps = 4;
var Is = "11px system-ui, sans-serif";
function Ds({ n: s, banded: t, log: e, from: n, to: i, healthy: r, limits: a = [], stacked: l, width: c, height: h, course: d, hooks: u }) {
  const f = $t();
  return {
    width: c,
    height: h,
    legend: { show: false },
    padding: [6, 6, 0, 0],
    scales: { x: { time: d.byTime }, y: { distr: e ? 3 : 1, range: Ui(e, n, i) } },
    axes: [
      Rs(f, { size: 22, space: 70, values: d.byTime ? Wi : (w, k) => k.map(p) }),
      Rs(f, {
        size: 50,
        space: 30,
        values: (w, k, M, N, D) => k.map((ot) => Hi(ot, e ? ot : D)),
        ...e ? { splits: qe, filter: (w, k) => k } : {}
      })
    ],
    series: [{}, ...Array.from({ length: s }, (w, k) => Fi(f, k, { banded: t, stacked: l })).flat()],
    bands: t ? Array.from({ length: s }, (w, k) => ({ series: [3 * k + 3, 3 * k + 2], fill: f.soft })) : [],
    cursor: Gi(f),
    hooks: {
      drawClear: [(w) => r && Vi(w, r, f)],
      draw: [
        (w) => a.forEach((k) => Xi(w, k, f)),
        (w) => Yi(w, d, f),
        (w) => d.byTime && Zi(w, f)
      ],
      setSelect: [(w) => Ji(w, u.select)],
      setCursor: [(w) => u.cursor(w.cursor.idx ?? null)]
    }
  };
}
function $t() {
  const s = getComputedStyle(document.documentElement);
  const t = (e) => s.getPropertyValue(`--${e}`).trim();
  return {
    accent: t("accent"),
    soft: t("accent-soft"),
    line: t("line"),
    quiet: t("quiet"),
    second: t("second"),
    third: t("third"),
    faint: t("faint"),
    ink: t("ink"),
    act: t("act"),
    watch: t("watch"),
    good: t("good-soft"),
    card: t("card")
  };
}
function Hi(s, t) {
  if (s === null) return "";
  return g(s, Math.max(3, Math.ceil(Math.log10(Math.abs(s / t))) + 1));
}
function Ui(s, t, e) {
  return (n, i, r) => {
    if (e !== void 0) return [t, e];
    if (i === null) return s ? [1e-3, 1] : [0, 1];
    if (s) return [i / 1.3, Math.max(r * 1.3, i * 10)];
    if (r === i && i === t) return [t, t + 1];
    const a = (r - i || Math.abs(r) || 1) * 0.06;
    return [t === void 0 ? i - a : Math.min(t, i), r + a];
  };
}
function qe(s, t, e, n) {
  const [i, r] = [Math.ceil(Math.log10(e)), Math.floor(Math.log10(n))];
  if (r <= i) return [e, n];
  const a = Math.ceil((r - i) / 3);
  return Array.from({ length: Math.floor((r - i) / a) + 1 }, (l, c) => 10 ** (i + c * a));
}
function Rs(s, t) {
  const e = { stroke: s.line, width: 1 };
  return { stroke: s.quiet, font: Is, grid: e, ticks: { show: false }, gap: Ps, ...t };
}
function Fi(s, t, { banded: e, stacked: n }) {
  const i = [s.accent, s.second, s.third][t % 3];
  const r = {
    stroke: i,
    width: 1.5,
    dash: Bi[t % 3],
    points: { show: true, filter: (l, c) => Ki(l.data[c]), size: 4, fill: i, stroke: i },
    spanGaps: false,
    fill: n ? s.soft : void 0
  };
  const a = { stroke: "transparent", width: 0, points: { show: false } };
  return e ? [r, a, a] : [r];
}
function Ki(s) {
  const t = (e) => e !== null && e !== void 0;
  return s.flatMap((e, n) => t(e) && !t(s[n - 1]) && !t(s[n + 1]) ? [n] : []);
}
function Gi(s) {
  const t = { pub: (e) => e === "mousemove" || e === "mouseleave" };
  return {
    y: false,
    points: { size: 5, fill: s.accent },
    drag: { x: true, y: false, setScale: false },
    sync: { key: "run", filters: t },
    bind: { dblclick: () => () => null }
  };
}
function Ji(s, t) {
  const { left: e, width: n } = s.select;
  if (n < 4) return;
  const [i, r] = [s.posToVal(e, "x"), s.posToVal(e + n, "x")];
  s.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  t(i, r);
}
function Vi(s, [t, e], n) {
  const { left: i, top: r, width: a, height: l } = s.bbox;
  const c = (u, f) => Number.isFinite(u) && !(s.scales.y.distr === 3 && u <= 0) ? to(s.valToPos(u, "y", true), r, r + l) : f;
  const [h, d] = [c(e, r), c(t, r + l)];
  s.ctx.save();
  s.ctx.fillStyle = n.good;
  s.ctx.fillRect(i, h, a, d - h);
  s.ctx.restore();
}
function Xi(s, { at: t, kind: e }, n) {
  const { ctx: i, bbox: r } = s;
  const a = Math.round(s.valToPos(t, "y", true)) + 0.5;
  i.save();
  i.strokeStyle = n[e];
  i.lineWidth = devicePixelRatio;
  i.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  i.beginPath();
  i.moveTo(r.left, a);
  i.lineTo(r.left + r.width, a);
  i.stroke();
  i.restore();
}
function Yi(s, t, e) {
  const n = t.markers.map((r) => ({ ...r, x: s.valToPos(t.position(r.step), "x", true) }));
  for (const { x: r, kind: a } of Qi(n)) {
    if (a === "policy") Bt(s, r, { colour: e.quiet, dash: [], height: qs });
    else if (a === "note") Bt(s, r, { colour: e.accent, dash: [], height: qs });
    else Bt(s, r, { colour: e[a], dash: [3, 3] });
  }
  const { chosen: i } = t;
  if (i !== null) Bt(s, s.valToPos(t.position(i), "x", true), { colour: e.ink, dash: [] });
}
function Zi(s, t) {
  const { ctx: e, bbox: n } = s;
  e.save();
  e.font = Is.replace("11px", `${11 * devicePixelRatio}px`);
  e.fillStyle = t.quiet;
  e.textBaseline = "top";
  e.fillText(ks(s.scales.x.max), 0, n.top + n.height + Ps * devicePixelRatio);
  e.restore();
}
var Cs = ["note", "policy", "watch", "act"];
function Qi(s) {
  const t = [];
  for (const e of s) {
    const n = t.at(-1);
    if (!n || e.x - n.x > zi * devicePixelRatio) t.push({ ...e });
    else if (Cs.indexOf(e.kind) > Cs.indexOf(n.kind)) n.kind = e.kind;
  }
  return t;
}
function Bt(s, t, { colour: e, dash: n, height: i = Infinity }) {
  const { ctx: r, bbox: a } = s;
  if (t < a.left || t > a.left + a.width) return;
  const l = Math.round(t) + 0.5;
  r.save();
  r.strokeStyle = e;
  r.lineWidth = devicePixelRatio;
  r.setLineDash(n.map((c) => c * devicePixelRatio));
  r.beginPath();
  r.moveTo(l, a.top);
  r.lineTo(l, a.top + Math.min(a.height, i * devicePixelRatio));
  r.stroke();
  r.restore();
}
var to = (s, t, e) => Math.min(Math.max(s, t), e);

// src/panels.js
var zt = ["total", "mismatch", "staleness"];
var eo = ["mismatch", "total"];
var so = [
  { title: "Reward", note: "mean", lines: [S("reward_mean", "mean")], reference: "peak" },
  {
    title: "KL",
    note: "k3, nats per token",
    lines: [
      J("kl_k3", ["mismatch"], "engines"),
      J("kl_k3", ["staleness"], "staleness"),
      J("kl_k3", ["total"], "total")
    ],
    floor: 1e-6,
    also: ["kl_k1", "kl_k2", "k3_excess", "staleness_growth"]
  },
  {
    title: "Effective samples",
    note: "by raw weights",
    lines: [J("ess_token", zt, "tokens"), J("ess_seq", zt, "sequences")],
    from: 0,
    also: ["ess_seq_relative"]
  },
  {
    title: "χ²",
    note: "per token",
    lines: [J("chi2_token", zt, "mean"), J("chi2_token_p95", zt, "p95 of sequences")],
    floor: 1e-3
  },
  {
    title: "Engines agree",
    note: "Pearson, token probabilities",
    lines: [J("prob_pearson", eo, "")],
    also: ["prob_diff_max", "ppl_ratio"]
  },
  {
    title: "Version lag",
    note: "updates",
    lines: [S("version_lag_mean", "mean"), S("version_lag_max", "largest")],
    from: 0,
    also: ["engine_lag", "staleness_lag"]
  },
  {
    title: "Response length",
    note: "tokens",
    lines: [S("response_length_mean", "mean"), S("response_length_p95", "p95")],
    also: ["response_length_growth"]
  },
  {
    title: "Gradient norm",
    note: "before clipping",
    lines: [S("grad_norm", "")],
    from: 0,
    also: ["grad_norm_relative", "grad_variance_rise"]
  },
  {
    title: "Risk of collapse",
    note: "within 200 steps",
    lines: [S("collapse_risk", "")],
    from: 0,
    to: 1,
    isRisk: true
  },
  {
    title: "Gradient noise",
    note: "proxy 3, a band",
    lines: [S("proxy3_pure_noise_low", "at least"), S("proxy3_pure_noise_high", "at most")],
    from: 0,
    also: ["proxy1_signal_strength", "proxy2_total_power_high", "grad_variance"]
  },
  {
    title: "Gradient direction",
    note: "cosine with the update before",
    lines: [S("grad_cosine", "")]
  },
  {
    title: "Pull on the entropy",
    note: "covariance of log-prob and advantage",
    lines: [S("logp_advantage_cov", "")],
    also: ["entropy_relative", "entropy_rise"]
  },
  {
    title: "KL to the reference",
    note: "nats per token",
    lines: [S("ref_kl_k3", "k3"), S("ref_kl_k3_is", "k3, weighted"), S("ref_kl_k1", "k1")]
  },
  {
    title: "Weights of sequences",
    note: "0 where rejected",
    lines: [S("sequence_weight_mean", "mean"), S("sequence_weight_ess", "effective share")],
    from: 0
  },
  {
    title: "Turns rejected",
    note: "share",
    lines: [S("turn_mask_rate", "turns"), S("turn_mask_rate_tokens", "their tokens")],
    from: 0,
    to: 1
  },
  {
    title: "Router flips",
    note: "other experts in training",
    lines: [S("router_flip_rate", "")],
    from: 0,
    also: ["router_flip_relative", "max_vio"]
  },
  {
    title: "Minorizer",
    note: "gain beyond the error bound, reward",
    lines: [S("minorizer", "")],
    also: ["bound_adaptive"]
  }
];
function S(s, t) {
  return { find: (e) => e.has(s) ? s : null, label: t };
}
function J(s, t, e) {
  return { find: (n) => t.map((i) => `${i}_${s}`).find((i) => n.has(i)) ?? null, label: e };
}
var V = (s) => s.replace(/^(mismatch|staleness|total)_/, "");
function Bs(s) {
  return so.map((t) => {
    const e = t.lines.map((n) => ({ name: n.find(s), label: n.label })).filter((n) => n.name);
    return { ...t, lines: e, names: e.map((n) => n.name) };
  }).filter((t) => t.lines.length);
}

// src/signalwords.js
var zs = {
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
var j = (s) => zs[s] ?? zs[V(s)] ?? s.replaceAll("_", " ");

// src/comparechart.js
var Ws = 150;
var no = "11px system-ui, sans-serif";
var Hs = /* @__PURE__ */ new Set(["kl_k3", "grad_norm"]);
var io = "ABCDEFGH";
var Us = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
var Wt = class {
  #t = null;
  #e = [[]];
  #s = 0;
  #n = false;
  constructor(t, e) {
    Object.assign(this, { uPlot: t, name: e });
    this.where = o("span", { class: "plot tall" });
    this.values = o("span", { class: "note" });
    this.place = o("span", { class: "quiet" });
    const n = [o("h2", {}, P(j(e))), this.place, this.values, o("span", {})];
    this.element = o("figure", { class: "card panel" }, o("figcaption", {}, n), this.where);
    this.resized = new ResizeObserver(() => this.#i());
    this.resized.observe(this.where);
  }
  /** Show runs, over steps or over the time since their starts. */
  show(t, { byTime: e }) {
    const n = Hs.has(this.name);
    const i = (l) => typeof l === "number" && (!n || l > 0) ? l : null;
    const r = t.map((l) => [
      e ? l.elapsed_seconds : l.step,
      (l.signals[this.name] ?? l.step.map(() => null)).map(i)
    ]);
    this.#e = this.uPlot.join(r.filter(([l]) => l.length));
    const a = this.#s === t.length && this.#n === e;
    Object.assign(this, { runs: t });
    this.#s = t.length;
    this.#n = e;
    if (a && this.#t) this.#t.setData(this.#e);
    else this.make();
    this.#r(null);
  }
  /** Rebuild the plot, for other runs or another theme. */
  make() {
    this.#t?.destroy();
    this.#t = null;
    if (!this.#s) return;
    this.#t = new this.uPlot(this.#o(), this.#e, this.where);
  }
  end() {
    this.resized.disconnect();
    this.#t?.destroy();
  }
  #i() {
    const t = this.where.clientWidth;
    if (this.#t && t && t !== this.#t.width) this.#t.setSize({ width: t, height: Ws });
  }
  #o() {
    const t = $t();
    const e = getComputedStyle(document.documentElement);
    const n = { stroke: t.quiet, font: no, grid: { stroke: t.line, width: 1 }, ticks: { show: false }, gap: 4 };
    const i = this.#n ? B : p;
    const r = Hs.has(this.name);
    const a = (l) => ({
      stroke: e.getPropertyValue(`--run-${l + 1}`).trim(),
      width: 1.5,
      dash: Us[Math.floor(l / 2) % Us.length],
      points: { show: false },
      spanGaps: true
      // Runs have their points at different places.
    });
    return {
      width: this.where.clientWidth || 320,
      height: Ws,
      legend: { show: false },
      padding: [6, 6, 0, 0],
      scales: { x: { time: false }, y: { distr: r ? 3 : 1 } },
      axes: [
        { ...n, size: 22, space: 70, values: (l, c) => c.map(i) },
        {
          ...n,
          size: 50,
          space: 30,
          values: (l, c) => c.map((h) => h === null ? "" : g(h)),
          ...r ? { splits: qe, filter: (l, c) => c } : {}
        }
      ],
      series: [{}, ...Array.from({ length: this.#s }, (l, c) => a(c))],
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "compare" }, points: { size: 5 } },
      hooks: { setCursor: [(l) => this.#r(l.cursor.idx ?? null)] }
    };
  }
  /** Show the values at the cursor, or the newest ones. */
  #r(t) {
    const e = this.#e.slice(1);
    const n = (r) => t === null ? r.findLast((a) => Fs(a)) : oo(r, t);
    m(
      this.values,
      e.map(
        (r, a) => o("span", { class: `legend run-${a + 1}` }, `${io[a]} ${g(n(r))}`)
      )
    );
    const i = t === null ? null : this.#e[0][t];
    this.place.textContent = i === null ? "newest" : this.#n ? B(i) : `step ${p(i)}`;
  }
};
var Fs = (s) => s !== null && s !== void 0;
function oo(s, t) {
  for (let e = t; e >= 0; e--) if (Fs(s[e])) return s[e];
  return null;
}

// src/plot.js
var Ks = null;
function Ht() {
  Ks ??= ro("/static/vendor/uplot-1.6.32.js").then(() => window.uPlot);
  return Ks;
}
function ro(s) {
  return new Promise((t, e) => {
    const n = Object.assign(document.createElement("script"), { src: s });
    n.onload = t;
    n.onerror = () => e(new Error(`cannot load ${s}`));
    document.head.append(n);
  });
}

// src/compare.js
var ao = 5e3;
var Ce = "ABCDEFGH";
async function Gs(s, { live: t }) {
  const e = new Re(s, new URLSearchParams(location.search));
  s.title("Compare");
  await e.read();
  const n = ({ data: r }) => e.shows(r);
  const i = ht(t, { concerns: n, read: () => e.read(), fail: s.fail, refreshMs: ao });
  return () => {
    i();
    e.end();
  };
}
var Ut = (s) => `/compare?runs=${s.map(({ project: t, run: e }) => `${encodeURIComponent(t)}/${encodeURIComponent(e)}`).join(",")}`;
var Re = class {
  #t = [];
  #e = null;
  #s = "";
  constructor(t, e) {
    this.stage = t;
    this.runs = e.get("runs") ?? "";
    this.byTime = e.get("by") === "time";
    this.words = o("section", { class: "card panel stack", "aria-label": "Where they part", "aria-live": "polite" });
    this.charts = o("section", { class: "charts", "aria-label": "Charts" });
    this.differences = o("section", { class: "card panel scroll", "aria-label": "Differences" });
    this.axes = o("span", { class: "row joined", role: "group", "aria-label": "Horizontal axis" });
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.theme = () => this.#t.forEach((n) => n.make());
    this.system.addEventListener("change", this.theme);
    window.addEventListener("themechange", this.theme);
  }
  async read() {
    const t = { runs: this.runs, by: this.byTime ? "time" : "step" };
    const [e, n] = await Promise.all([b("/compare", t), Ht()]);
    const i = this.#e === null;
    this.#e = e;
    if (i) this.#n();
    this.#i(n);
  }
  shows({ project: t, run: e }) {
    return this.#e?.runs.some(({ fleet: n }) => n.project === t && n.run === e);
  }
  end() {
    this.system.removeEventListener("change", this.theme);
    window.removeEventListener("themechange", this.theme);
    this.#t.forEach((t) => t.end());
  }
  #n() {
    const t = o("header", {}, o("div", { class: "row" }, o("h1", {}, "Compare"), this.axes));
    this.stage.show(t, this.words, this.charts, this.differences);
  }
  #i(t) {
    const { runs: e, proposed: n, config: i } = this.#e;
    m(
      this.axes,
      [false, true].map(
        (r) => o(
          "button",
          { "aria-pressed": String(r === this.byTime), onclick: () => this.#r(r) },
          r ? "Time" : "Steps"
        )
      )
    );
    m(
      this.words,
      e.slice(1).map((r, a) => o("p", { class: "headline" }, lo(r, a + 1, e.length))),
      n && o("p", { class: "quiet" }, "B was proposed: the sound run of the project whose configuration differs least."),
      o("ul", { class: "compared" }, e.map(co))
    );
    this.#o(t, e);
    m(this.differences, o("h2", {}, "Differences"), ho(this.#e), !i.length && o("p", { class: "quiet" }, "The configurations do not differ."));
  }
  #o(t, e) {
    const n = [...new Set(e.flatMap((i) => Object.keys(i.signals)))];
    if (n.join() !== this.#s) {
      this.#s = n.join();
      this.#t.forEach((i) => i.end());
      this.#t = n.map((i) => new Wt(t, i));
      m(
        this.charts,
        this.#t.map((i) => i.element)
      );
      this.#t.forEach((i) => i.make());
    }
    this.#t.forEach((i) => i.show(e, { byTime: this.byTime }));
  }
  async #r(t) {
    this.byTime = t;
    const e = new URLSearchParams(location.search);
    if (t) e.set("by", "time");
    else e.delete("by");
    history.replaceState(null, "", `${location.pathname}?${decodeURIComponent(e.toString())}`);
    await this.read();
  }
};
var lo = (s, t, e) => e > 2 ? `A and ${Ce[t]}: ${s.sentence}` : s.sentence;
function co({ fleet: s }, t) {
  const { verdict: e } = s;
  return o(
    "li",
    { class: `row run-${t + 1}` },
    o("span", { class: "swatch", "aria-hidden": "true" }),
    o("span", { class: "strong" }, Ce[t]),
    o("a", { href: `/runs/${encodeURIComponent(s.project)}/${encodeURIComponent(s.run)}` }, `${s.project}/${s.run}`),
    o("span", { class: `kind kind-${e.kind}` }, st(e.kind)),
    o("span", { class: "quiet" }, e.why)
  );
}
function ho({ runs: s, config: t, same_policy: e }) {
  const n = [...new Set(s.flatMap((c) => Object.keys(c.signals)))];
  const i = [
    ["newest step", s.map((c) => p(c.fleet.step))],
    ["policy", s.map(({ policy: c }) => c.name + (e ? "" : ` ${c.hash.slice(0, 8)}`))],
    ...n.map((c) => [
      `${j(c)}, newest`,
      s.map((h) => g(h.signals[c]?.findLast((d) => d !== null)))
    ]),
    ...t.map(({ name: c, values: h, given: d }) => [c, h.map((u, f) => d[f] ? JSON.stringify(u) : "–")])
  ];
  const r = s.map((c, h) => o("th", { scope: "col" }, Ce[h]));
  const a = [o("th", { scope: "col" }, o("span", { class: "sr" }, "difference")), r];
  const l = i.map(
    ([c, h]) => o("tr", {}, o("th", { scope: "row" }, P(c)), h.map((d) => o("td", {}, d)))
  );
  return o("table", { class: "differences" }, o("thead", {}, o("tr", {}, a)), o("tbody", {}, l));
}

// src/fleetanswer.js
function Ft(s) {
  const t = (a) => s.filter(a).length;
  const e = t((a) => a.verdict.need === "now");
  const n = t(
    (a) => a.verdict.need === "none" && ["act", "watch", "crashed", "stalled"].includes(a.verdict.kind)
  );
  const i = (a) => t((l) => l.verdict.kind === a);
  const r = [
    e ? `${y(e, "run")} ${e === 1 ? "needs" : "need"} you` : "No run needs you",
    X(
      t((a) => a.verdict.need === "soon"),
      "to watch"
    ),
    X(n, "acknowledged"),
    X(
      t((a) => a.verdict.need === "none" && a.verdict.kind === "ended_ill"),
      "ended ill"
    ),
    X(i("healthy"), "healthy"),
    X(i("no_drift_found"), "no drift found"),
    X(i("training_healthy"), "training healthy"),
    X(i("unknown"), "unknown"),
    X(i("finished"), "finished")
  ];
  return r.filter(Boolean).join(", ");
}
function Js(s) {
  const t = s.filter((e) => e.verdict.need === "now").length;
  return t ? `(${t}) Fleet` : "Fleet";
}
var X = (s, t) => s ? `${p(s)} ${t}` : null;
var uo = (s) => `import trmon_client as trmon
monitor = trmon.init(project="math", run="qwen3-8b-grpo", url="${s}")   # line 1
...
decision = monitor.log_batch(step=step, rollout_logprobs=mu, old_logprobs=old, logprobs=pi, mask=mask)   # line 2`;
function Vs(s) {
  return o(
    "section",
    { class: "card empty stack" },
    o("h1", {}, "No runs yet"),
    o("p", {}, "Add two lines to the trainer; the run appears after its first step."),
    o("pre", {}, uo(s)),
    o(
      "p",
      { class: "quiet" },
      "Install it with pip install trmon-client. To see a run that goes wrong first: ",
      o("code", {}, "make demo ARGS=--keep"),
      "."
    )
  );
}
function Xs(s) {
  const [t, e, n, i] = s ? ["No archived run", "No run is archived.", "/", "Show the runs"] : ["Every run is archived", "A new run appears after its first step.", "/?archived=1", "Show archived runs"];
  return o(
    "section",
    { class: "card empty stack" },
    o("h1", {}, t),
    o("p", {}, e, " ", o("a", { class: "link", href: n }, i), ".")
  );
}

// src/cut.js
var po = 9;
var mo = 8;
function Pe(s) {
  const t = [...s];
  if (t.length <= mo) return o("span", { class: "start" }, s);
  const e = Math.min(po, Math.floor(t.length / 2));
  return [
    o("span", { class: "start" }, t.slice(0, -e).join("")),
    o("span", { class: "end" }, t.slice(-e).join(""))
  ];
}

// src/canvas.js
var Ys = 132;
var fo = 3;
var go = 8;
var Ie = 3;
var Kt = class {
  #t = null;
  #e = [[]];
  #s = o("span", { class: "tip", hidden: true });
  constructor(t, { uPlot: e, course: n, open: i, label: r, said: a, lines: l }) {
    Object.assign(this, { where: t, uPlot: e, course: n, open: i, said: a, lines: l });
    t.tabIndex = 0;
    t.setAttribute("role", "group");
    this.label = r;
    this.describe("");
    t.addEventListener("keydown", (c) => this.#a(c));
    t.addEventListener("wheel", (c) => this.#c(c), { passive: false });
    this.resized = new ResizeObserver(() => this.#o());
    this.resized.observe(t);
  }
  /** Say in words what the chart shows, for those who do not see it. */
  describe(t) {
    this.where.setAttribute("aria-label", `${this.label}, chart${t ? `: ${t}` : ""}`);
  }
  /** Rebuild the plot, for other lines or another theme. */
  make(t) {
    this.form = t;
    this.banded = t.banded;
    this.#t?.destroy();
    const { course: e } = this;
    const n = {
      select: (r, a) => e.show(e.stepAt(r), e.stepAt(a)),
      cursor: (r) => this.#i(r)
    };
    const i = { width: this.where.clientWidth || 320, height: Ys };
    this.#t = new this.uPlot(Ds({ ...t, ...i, course: e, hooks: n }), this.#n(), this.where);
    this.#r(this.#t.over);
    this.#t.over.append(this.#s);
  }
  data(t) {
    this.#e = t;
    this.#t.setData(this.#n(), false);
    this.range();
  }
  range() {
    const [t, e] = this.course.view.map((n) => this.course.position(n));
    this.#t?.setScale("x", { min: t, max: e });
  }
  redraw() {
    this.#t?.redraw(false, false);
  }
  end() {
    this.resized.disconnect();
    this.#t?.destroy();
  }
  /** Return the columns with their steps as places on the horizontal axis. */
  #n() {
    const [t, ...e] = this.#e;
    return [this.course.byTime ? t.map((n) => this.course.position(n)) : t, ...e];
  }
  /** Tell the values at the cursor; under the mouse, a tip names the lines and the events near it. */
  #i(t) {
    this.said(t);
    const { left: e, event: n } = this.#t.cursor;
    this.#s.hidden = t === null || n?.type !== "mousemove";
    if (this.#s.hidden) return;
    const [i, r] = [e, e + go].map((a) => this.course.stepAt(this.#t.posToVal(a, "x")));
    this.#s.textContent = [...this.lines(t), ...wo(this.course.markersNear(i, r - i))].join("\n");
    this.#s.classList.toggle("leftward", e > this.where.clientWidth / 2);
    this.#s.style.left = `${e}px`;
  }
  #o() {
    const t = this.where.clientWidth;
    if (this.#t && t && t !== this.#t.width) this.#t.setSize({ width: t, height: Ys });
  }
  #r(t) {
    let e = null;
    t.addEventListener("mousedown", (n) => e = n.clientX);
    t.addEventListener("click", (n) => {
      const i = this.#t.cursor.idx;
      if (i !== null && Math.abs(n.clientX - e) <= fo) this.open(this.#e[0][i]);
    });
    t.addEventListener("dblclick", () => this.course.show());
  }
  #a(t) {
    const { course: e } = this;
    const n = {
      ArrowLeft: () => e.pan(-0.1),
      ArrowRight: () => e.pan(0.1),
      "+": () => e.zoom(0.5),
      "-": () => e.zoom(2),
      0: () => e.show()
    }[t.key];
    if (!n || t.ctrlKey || t.metaKey) return;
    t.preventDefault();
    n();
  }
  /** Horizontal scrolling pans and Ctrl+scroll zooms; vertical scrolling stays with the page. */
  #c(t) {
    if (t.ctrlKey) {
      t.preventDefault();
      const e = this.course.stepAt(this.#t.posToVal(t.offsetX, "x"));
      this.course.zoom(t.deltaY > 0 ? 1.25 : 0.8, e);
    } else if (t.shiftKey || Math.abs(t.deltaX) > Math.abs(t.deltaY)) {
      t.preventDefault();
      this.course.pan((t.deltaX || t.deltaY) / this.where.clientWidth);
    }
  }
};
function wo(s) {
  const t = s.length > Ie ? [`and ${s.length - Ie} more`] : [];
  return [...s.slice(0, Ie).map(({ step: e, what: n }) => `${p(e)}: ${n}`), ...t];
}

// src/download.js
function _t(s, t) {
  const e = URL.createObjectURL(s);
  const n = Object.assign(document.createElement("a"), { href: e, download: t });
  n.click();
  setTimeout(() => URL.revokeObjectURL(e), 1e4);
}

// src/chartexport.js
var yo = 26;
var bo = 10;
function Zs(s, { rows: t, canvas: e }) {
  const n = () => `${location.pathname.split("/").slice(2).join("-")}-${s}`.replace(/[^\w.-]+/g, "-").toLowerCase();
  const i = o(
    "details",
    { class: "export" },
    o("summary", { "aria-label": `Save the chart ${s}`, title: "Save" }, "⤓"),
    o(
      "div",
      { class: "card menu" },
      o("button", { onclick: () => r(ko(t(), `${n()}.csv`)) }, "CSV"),
      o("button", { onclick: () => r($o(e(), { title: s, name: `${n()}.png` })) }, "PNG")
    )
  );
  const r = () => i.open = false;
  i.addEventListener("keydown", (a) => {
    if (a.key !== "Escape") return;
    i.open = false;
    i.querySelector("summary").focus();
  });
  i.addEventListener("focusout", (a) => {
    if (a.relatedTarget && !i.contains(a.relatedTarget)) i.open = false;
  });
  return i;
}
function ko(s, t) {
  const e = s.map((n) => n.map(vo).join(",")).join("\r\n");
  _t(new Blob([`${e}\r
`], { type: "text/csv;charset=utf-8" }), t);
}
function vo(s) {
  if (s === null || s === void 0) return "";
  if (typeof s === "number") return String(s);
  const t = /^[=+\-@\t\r]/.test(s) && Number.isNaN(Number(s)) ? `'${s}` : s;
  return /[",\r\n]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t;
}
function $o(s, { title: t, name: e }) {
  const n = getComputedStyle(document.documentElement);
  const i = (d) => n.getPropertyValue(`--${d}`).trim();
  const r = devicePixelRatio;
  const [a, l] = [bo * r, yo * r];
  const c = Object.assign(document.createElement("canvas"), {
    width: s.width + 2 * a,
    height: s.height + l + a
  });
  const h = c.getContext("2d");
  h.fillStyle = i("card");
  h.fillRect(0, 0, c.width, c.height);
  h.fillStyle = i("ink");
  h.font = `600 ${14 * r}px system-ui, sans-serif`;
  h.fillText(t, a, l - 8 * r);
  h.drawImage(s, a, l);
  c.toBlob((d) => _t(d, e), "image/png");
}

// src/figure.js
var ut = class {
  now = o("span", { class: "strong" });
  against = o("span", { class: "quiet" });
  legend = o("span", {});
  constructor({ uPlot: t, course: e, open: n, title: i, note: r, label: a = i }) {
    const l = o("span", { class: "plot" });
    const c = o("span", { class: "note" }, r && `${r} `, this.legend);
    const h = Zs(i, { rows: () => this.rows(), canvas: () => l.querySelector("canvas") });
    const d = [o("span", { class: "row tight" }, o("h2", {}, i), h), this.now, c, this.against];
    this.course = e;
    this.element = o("figure", { class: "card panel" }, o("figcaption", {}, d), l);
    const u = { said: (f) => this.say(f), lines: (f) => this.lines(f) };
    this.canvas = new Kt(l, { uPlot: t, course: e, open: n, label: a, ...u });
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
var _o = [
  [/^0$/, () => [0, 0]],
  [/^<=? ([\d.e-]+)$/, ([, s]) => [-Infinity, Number(s)]],
  [/^>=? ([\d.e-]+)$/, ([, s]) => [Number(s), Infinity]],
  [/^([\d.e-]+) to ([\d.e-]+)$/, ([, s, t]) => [Number(s), Number(t)]],
  [/^\|x\| < ([\d.e-]+)$/, ([, s]) => [-Number(s), Number(s)]]
];
function Qs(s) {
  for (const [t, e] of _o) {
    const n = t.exec(s ?? "");
    if (n) return e(n);
  }
  return null;
}

// src/chart.js
var xo = 20;
var pt = class extends ut {
  constructor({ uPlot: t, course: e, panel: n, open: i }) {
    super({ uPlot: t, course: e, open: i, title: n.title, note: n.note });
    this.panel = n;
    this.healthy = Qs(e.catalogue.get(n.names[0])?.healthy);
  }
  /** Return whether the chart draws a signal that is evidence. */
  shows(t) {
    const e = /* @__PURE__ */ new Set([...this.panel.names.map(V), ...this.panel.also ?? []]);
    return [...t].some((n) => e.has(V(n)) || e.has(n));
  }
  make() {
    const { panel: t } = this;
    this.canvas.make({
      n: t.lines.length,
      banded: !this.course.series.exact,
      log: t.floor !== void 0,
      from: t.from,
      to: t.to,
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
    const { series: t } = this.course;
    if (this.canvas.banded !== !t.exact) return this.make();
    const e = this.panel.names.flatMap((n) => {
      const { mean: i, min: r, max: a } = t.signals[n];
      const l = this.#s(i);
      return (t.exact ? [i] : [i, r, a]).map((c) => this.#n(c, l));
    });
    this.canvas.data([t.step, ...e]);
    this.#t(t);
    this.say(null);
  }
  /** Show a legend if there is more than one line. */
  #t({ signals: t }) {
    const e = this.panel.lines.map((n, i) => ({ ...n, i })).filter(({ name: n }) => this.#s(t[n].mean));
    m(this.legend, e.length > 1 && e.map(({ i: n, label: i }) => o("span", { class: `legend line-${n}` }, i)));
  }
  /** Show the values at the cursor, or the newest value next to its reference. */
  say(t) {
    const { series: e } = this.course;
    const n = this.panel.names.map((r) => e.signals[r].mean);
    if (t !== null) {
      this.now.textContent = n.map((r) => g(r[t])).join(" · ");
      this.against.textContent = `step ${p(e.step[t])}`;
      return;
    }
    const i = e.step.findLastIndex((r, a) => n[0][a] !== null && r <= this.course.view[1]);
    this.now.textContent = g(n[0][i]);
    this.against.textContent = this.course.isAtEnd || i < 0 ? this.reference() : `step ${p(e.step[i])}`;
    this.canvas.describe(this.#e(n));
  }
  /** Return each line's newest value and its range, e.g. "reward newest 0.41, from 0.35 to 0.78". */
  #e(t) {
    const e = this.panel.lines.map(({ label: i }, r) => {
      const a = t[r].filter((c) => typeof c === "number");
      if (!a.length) return null;
      const l = this.panel.lines.length > 1 && i ? `${i} ` : "";
      return `${l}newest ${g(a.at(-1))}, from ${g(Math.min(...a))} to ${g(Math.max(...a))}`;
    });
    const n = this.course.series.step;
    return n.length ? [...e.filter(Boolean), `steps ${p(n[0])} to ${p(n.at(-1))}`].join("; ") : "";
  }
  lines(t) {
    const { series: e, catalogue: n } = this.course;
    const i = Eo(n.get(this.panel.names[0])?.unit);
    const r = this.panel.lines.map(({ name: a, label: l }) => {
      const c = l && this.panel.lines.length > 1 ? l : this.panel.title.toLowerCase();
      return `${c} ${g(e.signals[a].mean[t])}${i}`;
    });
    return [`step ${p(e.step[t])}, ${L(e.closed_at[t])}`, ...r];
  }
  rows() {
    const { series: t, catalogue: e } = this.course;
    const n = this.panel.names.flatMap((a) => {
      const l = e.get(a)?.unit;
      const c = t.exact ? ["mean"] : ["mean", "min", "max"];
      return c.map((h) => ({
        head: `${a}${t.exact ? "" : ` ${h}`}${l ? ` (${l})` : ""}`,
        values: t.signals[a][h]
      }));
    });
    const i = (a) => new Date(1e3 * a).toISOString();
    const r = t.step.map((a, l) => [a, i(t.closed_at[l]), ...n.map(({ values: c }) => c[l])]);
    return [["step", "closed at (UTC)", ...n.map(({ head: a }) => a)], ...r];
  }
  /** Return the reference of the newest value, from the whole run. */
  reference() {
    const t = this.course.catalogue.get(this.panel.names[0])?.healthy;
    if (t) return `healthy ${t.replace("<=", "≤").replace(">=", "≥")}`;
    const e = this.course.whole.signals[this.panel.names[0]]?.mean ?? [];
    const n = e.filter((r) => typeof r === "number");
    if (!n.length) return "";
    if (this.panel.reference === "peak") return `peak ${g(Math.max(...n))}`;
    const i = n.slice(0, xo).sort((r, a) => r - a);
    return `initially ${g(i[Math.floor(i.length / 2)])}`;
  }
  /** Whether there is data to draw: a logarithmic scale cannot show a series of zeros. */
  #s(t) {
    return t.some((e) => e !== null && (e > 0 || this.panel.floor === void 0));
  }
  /** Infinities cannot be drawn; values below the floor are drawn on it. */
  #n(t, e) {
    const { floor: n = -Infinity } = this.panel;
    return t.map((i) => e && typeof i === "number" ? Math.max(i, n) : null);
  }
};
var So = /* @__PURE__ */ new Set(["ratio", "fraction", "chi2", "reward", void 0]);
var Eo = (s) => So.has(s) ? "" : ` ${s}`;

// src/risk.js
var tn = ["warn", "page"];
var Mo = 6;
var To = ["collapse_risk", "collapse_risk_high"];
var Lo = "The reward has collapsed, or the run has finished: there is nothing left to predict.";
var en = (s) => To.includes(s?.cause);
function sn({ diagnosis: s }) {
  const t = s?.collapse_risk;
  if (!tn.includes(t?.level)) return null;
  const e = `${v(t.probability)} risk of collapse within ${t.horizon_steps} steps`;
  return o("p", { class: `risk risk-${t.level}` }, e, No(t.drivers));
}
function nn({ collapse_risk: s }) {
  if (!tn.includes(s?.level)) return null;
  const t = s.driven_by.length ? `risk of collapse, driven by ${s.driven_by.join(" and ")}` : "risk of collapse";
  return o("span", { class: `risk risk-${s.level}`, title: t }, `${v(s.probability)} risk`);
}
var Gt = class extends pt {
  #t = null;
  #e = o("div", { class: "drivers" });
  constructor(t) {
    super(t);
    this.element.classList.add("beside");
    this.element.append(this.#e);
  }
  /** Show the drivers of the newest step, and the thresholds of the model that made the estimate. */
  learn({ diagnosis: t }) {
    const e = t?.collapse_risk ?? null;
    if (JSON.stringify(e) === JSON.stringify(this.#t)) return;
    const n = e?.warn_at !== this.#t?.warn_at || e?.page_at !== this.#t?.page_at;
    this.#t = e;
    m(this.#e, e && Oo(e));
    if (n) this.make();
  }
  get limits() {
    if (!this.#t) return [];
    return [
      { at: this.#t.warn_at, kind: "watch" },
      { at: this.#t.page_at, kind: "act" }
    ];
  }
  reference() {
    return this.#t ? `warns at ${v(this.#t.warn_at)}, pages at ${v(this.#t.page_at)}` : "";
  }
};
function Oo(s) {
  const t = [...s.drivers].sort((n, i) => Math.abs(i.log_odds) - Math.abs(n.log_odds)).slice(0, Mo);
  const e = Math.max(...t.map(({ log_odds: n }) => Math.abs(n)));
  return [
    s.level === "past" && o("p", { class: "quiet" }, Lo),
    o("p", { class: "quiet" }, "What drives it, in log-odds"),
    o(
      "ol",
      {},
      t.sort((n, i) => i.log_odds - n.log_odds).map((n) => jo(n, e))
    ),
    Ao(s)
  ];
}
function jo({ input: s, log_odds: t }, e) {
  const n = o("span", { class: "bar", "aria-hidden": "true", "data-sign": t < 0 ? "against" : "for" });
  n.style.width = `${Math.round(100 * Math.abs(t) / (e || 1))}%`;
  return o(
    "li",
    { title: s },
    o("span", {}, j(s)),
    o("span", { class: "track" }, n),
    o("span", { class: "number" }, `${t < 0 ? "−" : "+"}${Math.abs(t).toFixed(2)}`)
  );
}
function Ao({ missing: s, outside: t }) {
  const e = [
    s.length && `Not sent: ${s.map(j).join(", ")}.`,
    t.length && `Beyond what the model was fitted to: ${t.map(j).join(", ")}.`
  ].filter(Boolean);
  return e.length ? o("p", { class: "quiet uncertain", title: e.join("\n") }, e.join(" ")) : null;
}
function No(s) {
  const t = s.slice(0, 2).filter(({ log_odds: e }) => e > 0);
  return t.length ? `, driven by ${t.map(({ input: e }) => j(e)).join(" and ")}` : "";
}

// src/runstate.js
var Jt = ({ state: s }) => s === "finished" || s === "crashed";

// src/sparkline.js
var De = 120;
var Vt = 26;
function on(s, t, e = []) {
  const n = [...s.filter((h) => h !== null), ...e];
  const i = Math.min(...n);
  const r = Math.max(...n) - i;
  const a = (h) => s.length < 2 ? De / 2 : h / (s.length - 1) * (De - 2) + 1;
  const l = (h) => r > 0 ? Vt - 2 - (h - i) / r * (Vt - 4) : Vt / 2;
  let c = "";
  s.forEach((h, d) => {
    if (h === null) return;
    c += `${d && s[d - 1] !== null ? "L" : "M"}${a(d).toFixed(1)} ${l(h).toFixed(1)}`;
  });
  return $(
    "svg",
    { class: "spark", viewBox: `0 0 ${De} ${Vt}`, role: "img", "aria-label": t },
    $("path", { d: c })
  );
}

// src/fleetrow.js
var qo = 5e-3;
var Ro = ["none", "soon", "now"];
var Co = [
  ...["finished", "healthy", "no_drift_found", "training_healthy", "unknown"],
  ...["ended_ill", "watch", "stalled", "crashed", "act"]
];
var Xt = (s) => s?.values.findLast((t) => t !== null) ?? null;
var Y = [
  {
    name: "verdict",
    key: (s) => Ro.indexOf(s.verdict.need) * 10 + Co.indexOf(s.verdict.kind),
    isDown: true
  },
  { name: "run", key: (s) => `${s.project}/${s.run}`, isDown: false },
  { name: "step", key: (s) => s.step, isDown: true },
  { name: "reward", key: (s) => Xt(s.reward), isDown: true },
  { name: "KL (k3)", key: (s) => Xt(s.kl), isDown: true },
  { name: "masked", key: (s) => typeof s.mask_rate === "number" ? s.mask_rate : null, isDown: true },
  { name: "alerts", key: (s) => s.alerts.length, isDown: true },
  { name: "owner", key: (s) => s.owner, isDown: false },
  { name: "last report", key: (s) => s.last_report_at, isDown: true }
];
var Yt = class {
  element = o("tr", { role: "row" });
  #t = "";
  #e = null;
  constructor(t) {
    this.selection = t;
    this.box = o("input", { type: "checkbox" });
    this.box.addEventListener("click", (e) => t.choose(this.#e, this.box.checked, e.shiftKey));
  }
  /** Render a run; the DOM is untouched if nothing changed. */
  show(t) {
    const { run: e } = t;
    this.#e = t;
    this.box.checked = this.selection.has(e);
    this.element.toggleAttribute("data-selected", this.box.checked);
    const n = JSON.stringify(e) + x(e.last_report_at);
    if (n === this.#t) return;
    this.#t = n;
    this.box.setAttribute("aria-label", `Select ${e.project}/${e.run}`);
    this.element.dataset.kind = e.verdict.kind;
    this.element.dataset.need = e.verdict.need;
    m(
      this.element,
      o("td", { role: "cell", "data-name": "select" }, this.box),
      Po(e).map((i, r) => o("td", { role: "cell", "data-name": Y[r].name }, i))
    );
  }
};
function Po(s) {
  return [
    Io(s),
    Do(s),
    o("span", { class: "number" }, p(s.step)),
    an(s.reward, "reward", []),
    an(s.kl, "KL", [0, qo]),
    o("span", { class: "number" }, v(s.mask_rate)),
    Bo(s),
    s.owner ? o("span", { class: "cut", title: s.owner }, Pe(s.owner)) : o("span", { class: "quiet" }, "–"),
    o("span", { class: "quiet" }, x(s.last_report_at))
  ];
}
function Be(s) {
  return s.judged_step !== null && s.judged_step < s.step - (Jt(s) ? 0 : 1);
}
var rn = (s) => Be(s) && `(to step ${p(s.judged_step)})`;
function Io(s) {
  const { verdict: t } = s;
  const e = t.need !== "none" && t.todo;
  const n = s.state === "finished" ? "For the next run" : "Do";
  return o(
    "div",
    { class: "oneline", title: [t.why, e && `${n}: ${e}`].filter(Boolean).join("\n") },
    o("span", { class: `kind kind-${t.kind}` }, st(t.kind)),
    rn(s) && [" ", o("span", { class: "quiet" }, rn(s))],
    " ",
    nn(s),
    o("span", { class: "why" }, t.why, e && [" ", o("span", { class: "todo" }, o("b", {}, `${n}: `), e)])
  );
}
function Do(s) {
  const t = s.verdict.since_step === null ? "" : `?step=${s.verdict.since_step}`;
  const e = s.tags.map((n) => o("span", { class: "tag" }, n));
  return o(
    "div",
    { class: "oneline", title: [`${s.project} / ${s.run}`, ...s.tags].join("\n") },
    o("span", { class: "project" }, s.project),
    o("span", { class: "quiet", "aria-hidden": "true" }, "/"),
    o("a", { class: "run cut", href: C(s.project, s.run) + t }, Pe(s.run)),
    e.length > 0 && o("span", { class: "tags" }, e)
  );
}
function an(s, t, e) {
  if (Xt(s) === null) return o("span", { class: "quiet" }, "–");
  const n = g(Xt(s));
  const i = `${t} over steps ${s.first_step} to ${s.last_step}, now ${n}`;
  return o("span", { class: "course" }, on(s.values, i, e), o("span", { class: "number" }, n));
}
function Bo({ alerts: s, incident: t }) {
  if (!s.length && t?.state !== "firing") return o("span", { class: "quiet" }, "0");
  const e = [t?.state === "firing" && t.acked_by, ...s.map((r) => r.acked_by)];
  const n = [...new Set(e.filter(Boolean))];
  const i = s.map((r) => `${r.rule} (${r.severity}) since step ${r.step}`).join("\n");
  return o(
    "span",
    { title: [i, ...n].filter(Boolean).join("\n"), class: "oneline" },
    String(s.length),
    n.length > 0 && o("span", { class: "quiet why" }, ` · ${n.join(", ")}`)
  );
}

// src/fleetcontrols.js
function cn(s) {
  return new We(s);
}
var We = class {
  #t = "";
  constructor(t) {
    const e = new URLSearchParams(location.search);
    this.changed = t;
    this.column = Y.find(({ name: n }) => n === e.get("sort")) ?? Y[0];
    this.isDown = e.has("order") ? e.get("order") === "desc" : this.column.isDown;
    this.text = this.#r(e.get("q") ?? "");
    this.lists = { project: ze("project", e), owner: ze("owner", e), tag: ze("tag", e) };
    for (const n of Object.values(this.lists)) n.addEventListener("change", () => this.#i(n));
    this.group = zo(e.get("group") ?? "");
    this.group.addEventListener("change", () => this.#o());
    this.bar = o("div", { class: "row controls", role: "search" }, this.text, Object.values(this.lists), this.group);
  }
  archived() {
    return new URLSearchParams(location.search).has("archived");
  }
  /** Offer the existing projects, owners and tags; a list with a single entry is hidden. */
  offer(t) {
    const e = {
      project: Zt(t, (n) => [n.project]),
      owner: Zt(t, (n) => [n.owner]),
      tag: Zt(t, (n) => n.tags)
    };
    if (JSON.stringify(e) === this.#t) return;
    this.#t = JSON.stringify(e);
    for (const [n, i] of Object.entries(this.lists)) {
      const r = i.dataset.wanted;
      const a = Zt([r, ...e[n]], (c) => [c]);
      const l = a.map((c) => o("option", { value: c, selected: c === r }, c));
      i.replaceChildren(o("option", { value: "" }, `every ${n}`), ...l);
      i.hidden = e[n].length < 2 && !r;
    }
  }
  /** Return the runs to show, in order. */
  chosen(t) {
    const { project: e, owner: n, tag: i } = this.lists;
    const r = this.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const a = (l) => (!e.value || l.project === e.value) && (!n.value || l.owner === n.value) && (!i.value || l.tags.includes(i.value)) && r.every((c) => Wo(l).includes(c));
    return t.filter(a).sort(this.#n());
  }
  /** Whether the most urgent runs come first. */
  isByVerdict() {
    return this.column === Y[0] && this.isDown;
  }
  /** Remove every filter. */
  clear() {
    this.text.value = "";
    for (const t of Object.values(this.lists)) t.value = t.dataset.wanted = "";
    this.#o();
    this.text.focus();
  }
  said(t, e) {
    const n = this.isByVerdict() ? "most urgent first" : `sorted by ${this.column.name}`;
    return t === e ? `${y(e, "run")} · ${n}` : `${p(t)} of ${y(e, "run")} · ${n}`;
  }
  /** Return the header of a column; a click sorts by it, the next one reverses the order. */
  head(t) {
    const e = o("button", { class: "plain", onclick: () => this.#e(t, i) }, t.name);
    const n = this.#s(t.name);
    const i = o("th", { role: "columnheader", scope: "col", "aria-sort": n, "data-name": t.name }, e);
    return i;
  }
  #e(t, e) {
    this.isDown = this.column === t ? !this.isDown : t.isDown;
    this.column = t;
    for (const n of e.parentElement.children) n.setAttribute("aria-sort", this.#s(n.dataset.name));
    this.#o();
  }
  #s(t) {
    if (t !== this.column.name) return "none";
    return this.isDown ? "descending" : "ascending";
  }
  #n() {
    const { key: t } = this.column;
    const e = this.isDown ? -1 : 1;
    const n = (i) => -(i.last_report_at ?? 0);
    return (i, r) => ln(t(i), t(r), e) || ln(n(i), n(r), 1);
  }
  #i(t) {
    t.dataset.wanted = t.value;
    this.#o();
  }
  #o() {
    const t = {
      q: this.text.value,
      project: this.lists.project.value,
      owner: this.lists.owner.value,
      tag: this.lists.tag.value
    };
    const e = this.archived() ? "1" : "";
    const n = this.isDown === this.column.isDown ? "" : this.isDown ? "desc" : "asc";
    const i = this.column === Y[0] ? "" : this.column.name;
    const r = Object.entries({ ...t, group: this.group.value, sort: i, order: n, archived: e }).filter(([, l]) => l);
    const a = new URLSearchParams(r).toString();
    history.replaceState(null, "", a ? `/?${a}` : "/");
    this.changed();
  }
  #r(t) {
    const e = o("input", {
      type: "search",
      value: t,
      placeholder: "Filter runs",
      "aria-label": "Filter runs",
      "data-filter": true
    });
    e.addEventListener("input", () => this.#o());
    return e;
  }
};
function ln(s, t, e) {
  if (s === null || t === null) return (s === null) - (t === null);
  return e * (s < t ? -1 : s > t ? 1 : 0);
}
function zo(s) {
  const t = [["", "no groups"], ...["project", "owner", "tag"].map((n) => [n, `by ${n}`])];
  const e = t.map(([n, i]) => o("option", { value: n, selected: n === s }, i));
  return o("select", { "aria-label": "group" }, e);
}
var Zt = (s, t) => [...new Set(s.flatMap(t).filter(Boolean))].sort();
var ze = (s, t) => o("select", { "aria-label": s, "data-wanted": t.get(s) ?? "" });
var Wo = (s) => [s.project, s.run, s.owner, ...s.tags, s.verdict.kind, s.verdict.why].join(" ").toLowerCase();

// src/fleetselection.js
var E = (s) => `${s.project}/${s.run}`;
var Qt = class {
  #t = /* @__PURE__ */ new Set();
  #e = [];
  #s = null;
  /** `changed` is called when runs are selected or deselected by a person. */
  constructor(t) {
    this.changed = t;
    this.every = o("input", { type: "checkbox", "aria-label": "Select every run that matches the filters" });
    this.every.addEventListener("change", () => this.#n(this.every.checked));
  }
  has(t) {
    return this.#t.has(E(t));
  }
  get size() {
    return this.#t.size;
  }
  keys() {
    return [...this.#t];
  }
  /** Select exactly these runs. */
  set(t) {
    this.#t = new Set(t);
    this.changed();
  }
  /** Take the lines in their order and the runs that match the filters; runs that no longer exist leave. */
  follow(t, e, n) {
    this.#e = t;
    this.matching = e;
    for (const r of this.#t) if (!n.has(r)) this.#t.delete(r);
    const i = e.filter((r) => this.has(r)).length;
    this.every.checked = i > 0 && i === e.length;
    this.every.indeterminate = i > 0 && i < e.length;
  }
  /** Select or deselect the run of a line; with Shift, every line from the one that was clicked last to this one. */
  choose(t, e, n) {
    const i = this.#e.findIndex(({ key: l }) => l === t.key);
    const r = n ? this.#e.findIndex(({ key: l }) => l === this.#s) : -1;
    const a = i < 0 || r < 0 ? [t] : this.#e.slice(Math.min(i, r), Math.max(i, r) + 1);
    for (const { run: l } of a) if (l) this.#i(l, e);
    this.#s = t.key;
    this.changed();
  }
  #n(t) {
    for (const e of this.matching) this.#i(e, t);
    this.changed();
  }
  #i(t, e) {
    if (e) this.#t.add(E(t));
    else this.#t.delete(E(t));
  }
};

// src/fleetbulk.js
var Ho = 4;
var Uo = 8;
var He = 100;
var Fo = "[A-Za-z0-9][A-Za-z0-9._\\-]*";
var ee = class {
  #t = null;
  #e = null;
  /** `found()` returns the fleet's runs by key; `changed(changes)` takes the new fields of runs by key. */
  constructor(t, { found: e, changed: n }) {
    this.selection = t;
    this.found = e;
    this.changed = n;
    this.count = o("p", { role: "status", class: "strong" });
    this.buttons = o("div", { class: "row" });
    this.result = o("div", { role: "alert" });
    this.element = o(
      "section",
      { class: "card selected", "aria-label": "Selected runs", hidden: true },
      o("div", { class: "row" }, this.count, this.buttons),
      this.result
    );
  }
  draw() {
    const t = this.#s();
    const e = JSON.stringify([t.map((i) => [E(i), i.archived, i.tags]), this.#n(), this.#t]);
    this.element.hidden = t.length === 0 && !this.#e;
    if (e === this.drawn) return;
    this.drawn = e;
    const n = `${y(t.length, "run")} selected`;
    this.count.textContent = this.#t ?? (this.#n() ? `${n}, ${p(this.#n())} not shown` : n);
    m(this.buttons, this.#i(t));
  }
  #s() {
    return this.selection.keys().map((t) => this.found().get(t));
  }
  /** Return how many selected runs the filters hide. */
  #n() {
    if (!this.selection.size) return 0;
    const t = new Set(this.selection.matching?.map(E));
    return this.selection.keys().filter((e) => !t.has(e)).length;
  }
  #i(t) {
    const e = this.#t !== null;
    const n = (a, l) => o("button", { disabled: e, onclick: () => l(t) }, a);
    const i = this.selection.matching ?? [];
    const r = i.every((a) => this.selection.has(a));
    return [
      t.length > 0 && !r && n(`Select all ${p(i.length)}`, () => this.selection.set(Ko(this.selection, i))),
      t.length >= 2 && t.length <= Uo && o("a", { class: "button", href: Ut(t) }, "Compare"),
      t.some((a) => !a.archived) && n("Archive", (a) => this.#r(a, true)),
      t.some((a) => a.archived) && n("Unarchive", (a) => this.#r(a, false)),
      t.length > 0 && [
        n("Owner …", (a) => this.#a(a)),
        n("Add tag …", (a) => this.#c(a)),
        t.some((a) => a.tags.length) && n("Remove tag …", (a) => this.#h(a)),
        n("Note …", (a) => this.#d(a)),
        n("Delete …", (a) => this.#u(a))
      ],
      n(t.length ? "Clear" : "Close", () => this.#o())
    ];
  }
  #o() {
    this.#m(null);
    this.selection.set([]);
  }
  #r(t, e) {
    const n = e ? ["Archiving", "archived"] : ["Unarchiving", "unarchived"];
    return this.#p(t, n, (i) => te(i, { archived: e }));
  }
  async #a(t) {
    const e = [...new Set([...this.found().values()].map(({ owner: l }) => l).filter(Boolean))].sort();
    const n = o("datalist", { id: "owners" }, e.map((l) => o("option", { value: l })));
    const i = o("input", { required: true, maxlength: 128, list: "owners" });
    const r = await this.#l("Set the owner", t, [o("label", {}, "Owner", i), n], "Set owner");
    const a = i.value.trim();
    if (r) await this.#p(t, ["Changing", "changed"], (l) => te(l, { owner: a }));
  }
  async #c(t) {
    const e = "Letters, digits, '.', '_' and '-', a letter or digit first";
    const n = o("input", { required: true, maxlength: 128, pattern: Fo, title: e });
    const i = await this.#l("Add a tag", t, [o("label", {}, "Tag", n)], "Add tag");
    if (i) await this.#p(t, ["Tagging", "tagged"], (r) => te(r, { add_tags: [n.value] }));
  }
  async #h(t) {
    const e = [...new Set(t.flatMap((a) => a.tags))].sort();
    const n = o("select", {}, e.map((a) => o("option", { value: a }, a)));
    const i = await this.#l("Remove a tag", t, [o("label", {}, "Tag", n)], "Remove tag");
    const r = t.filter((a) => a.tags.includes(n.value));
    if (i) await this.#p(r, ["Changing", "changed"], (a) => te(a, { remove_tags: [n.value] }));
  }
  async #d(t) {
    const e = o("textarea", { rows: 3, required: true, maxlength: 2e3 });
    let n = null;
    const i = await this.#l("Write a note", t, [o("label", {}, "Note", e), lt()], "Add note", (a) => {
      n = { text: e.value, author: ct(a) };
    });
    const r = (a) => T("POST", `${C(a.project, a.run)}/notes`, n);
    if (i) await this.#p(t, ["Writing to", "noted"], (a) => r(a).then(() => a));
  }
  async #u(t) {
    const e = String(t.length);
    const n = o("input", { required: true, autocomplete: "off", inputmode: "numeric" });
    const i = [
      o("p", {}, "All their data is deleted: steps, alerts and notes. This cannot be undone."),
      t.length > 1 && o("label", {}, `Type the number of runs, ${e}, to confirm`, n)
    ];
    const r = await this.#l("Delete", t, i, `Delete ${y(t.length, "run")}`, () => {
      if (t.length > 1 && n.value.trim() !== e) throw new Error(`Type ${e} to delete the ${e} runs.`);
    });
    const a = (l) => T("DELETE", C(l.project, l.run));
    if (r) await this.#p(t, ["Deleting", "deleted"], a);
  }
  /** Ask in a dialog that names the runs; resolves to whether it was confirmed. */
  #l(t, e, n, i, r = () => {
  }) {
    const a = e.slice(0, He).map((c) => o("li", {}, E(c)));
    const l = e.length > He && o("li", {}, `and ${p(e.length - He)} more`);
    return I(`${t}: ${y(e.length, "run")}`, [o("ul", { class: "names" }, a, l), n], i, r);
  }
  /** Change runs, a few at a time; those that fail stay selected, and each is named with its reason. */
  async #p(t, [e, n], i) {
    if (this.#t !== null) return;
    const r = [...t];
    const a = /* @__PURE__ */ new Map();
    const l = /* @__PURE__ */ new Map();
    this.#m(null);
    const c = async () => {
      for (let d = r.shift(); d; d = r.shift()) {
        this.#t = `${e} ${p(t.length - r.length)} of ${y(t.length, "run")} …`;
        this.draw();
        try {
          a.set(E(d), await i(d));
        } catch (u) {
          l.set(U(u), [...l.get(U(u)) ?? [], E(d)]);
        }
      }
    };
    await Promise.all(Array.from({ length: Ho }, c));
    this.#t = null;
    const h = [...l.values()].flat();
    this.#m(h.length ? Go(a.size, t.length, n, l) : null);
    if (h.length) this.selection.set(h);
    await this.changed(a);
  }
  #m(t) {
    this.#e = t;
    this.drawn = "";
    m(this.result, t);
    this.draw();
  }
};
var te = (s, t) => T("PATCH", C(s.project, s.run), t);
var Ko = (s, t) => [...s.keys(), ...t.map(E)];
function Go(s, t, e, n) {
  const i = [...n].map(([r, a]) => o("li", {}, `${a.join(", ")}: ${r}`));
  return [
    o("p", {}, `${p(s)} of ${y(t, "run")} ${e}. Not ${e}:`),
    o("ul", { class: "failures" }, i)
  ];
}

// src/fleetcourses.js
var Jo = 80;
var Vo = 60;
var se = class {
  #t = /* @__PURE__ */ new Map();
  #e = [];
  #s = null;
  /** `arrived` is called once runs have got their sparklines; `failed` gets an error. */
  constructor({ arrived: t, failed: e }) {
    Object.assign(this, { arrived: t, failed: e });
  }
  end() {
    clearTimeout(this.#s);
  }
  /** Return runs with the sparklines that are known of them; those of an earlier step end in the newest value. */
  joined(t) {
    for (const [e, n] of t) if (!Ue(n)) this.#t.set(e, n);
    return new Map([...t].map(([e, n]) => [e, this.#n(e, n)]));
  }
  /** Read the sparklines of runs in view that are not known, or of an earlier step. */
  follow(t) {
    this.#e = t.filter((e) => Ue(e) || Xo(e)).slice(0, Vo);
    if (this.#e.length) this.#s ??= setTimeout(() => this.#i(), Jo);
  }
  #n(t, e) {
    const n = this.#t.get(t);
    if (!n || !Ue(e)) return e;
    return { ...e, reward: hn(n.reward, e.reward), kl: hn(n.kl, e.kl) };
  }
  async #i() {
    try {
      const t = this.#e.length ? await b("/fleet/named", { runs: this.#e.map(E).join() }) : [];
      for (const e of t) this.#t.set(E(e), e);
      this.#s = null;
      if (t.length) this.arrived(t);
    } catch (t) {
      this.#s = null;
      this.failed(t);
    }
  }
};
var Xo = ({ judged_step: s, reward: t, kl: e }) => s > ((t ?? e)?.last_step ?? s);
var hn = (s, t) => s && t && { ...s, values: [...s.values.slice(0, -1), ...t.values] };
var Ue = ({ reward: s, kl: t }) => [s, t].some((e) => e && e.values.length < 2 && e.first_step < e.last_step);

// src/fleethead.js
var ne = class {
  #t = "";
  constructor(t) {
    this.element = o("tr", { role: "row", class: "head" });
    this.turn = t;
  }
  /** Render a head; the DOM is untouched if nothing changed. */
  show({ key: t, head: e, text: n, members: i, isOpen: r, kind: a }) {
    const l = JSON.stringify([e, n, i.length, r]);
    if (l === this.#t) return;
    this.#t = l;
    this.element.dataset.kind = a;
    this.element.dataset.need = a === "stalled" ? "now" : "none";
    const c = a === "stalled" ? n : `${y(i.length, "run")}: ${n}`;
    const h = o(
      "button",
      { class: "plain oneline", "aria-expanded": String(r), title: c, onclick: () => this.turn(t) },
      o("span", { class: `kind kind-${a}` }, e),
      " ",
      o("span", { class: "why" }, c)
    );
    m(this.element, o("td", { role: "cell", "aria-colspan": "10" }, h));
  }
};

// src/fleetlines.js
var Yo = 120;
var Zo = 3;
var dn = { project: (s) => [s.project], owner: (s) => [s.owner], tag: (s) => s.tags };
function pn(s, { group: t, isByVerdict: e, turned: n }) {
  if (!dn[t]) return e ? un(s, "", n) : s.map((i) => ie(i, ""));
  return [...tr(s, dn[t])].flatMap(([i, r]) => {
    const a = `group ${i ?? ""}`;
    const l = !n.has(a);
    const c = { key: a, head: i ?? `no ${t}`, text: Ft(r), members: r, isOpen: l, kind: "group" };
    if (!l) return [c];
    return [c, ...e ? un(r, a, n) : r.map((h) => ie(h, a))];
  });
}
var ie = (s, t) => ({ key: `${t} ${E(s)}`, run: s });
function un(s, t, e) {
  const n = Qo(s);
  const i = /* @__PURE__ */ new Set();
  return s.flatMap((r) => {
    const a = n.get(r);
    if (!a) return [ie(r, t)];
    if (i.has(a)) return [];
    i.add(a);
    const l = `stalled ${t} ${a.map(E).sort()[0]}`;
    const c = e.has(l);
    const h = Math.min(...a.map((f) => f.last_report_at));
    const d = `${y(a.length, "run")} stopped reporting together, ${x(h)}`;
    const u = { key: l, head: "Stalled", text: d, members: a, isOpen: c, kind: "stalled" };
    return c ? [u, ...a.map((f) => ie(f, l))] : [u];
  });
}
function Qo(s) {
  const t = s.filter((n) => n.verdict.kind === "stalled" && n.verdict.need === "now" && n.last_report_at);
  t.sort((n, i) => n.last_report_at - i.last_report_at);
  const e = /* @__PURE__ */ new Map();
  for (let n = 0; n < t.length; ) {
    const i = t.findIndex((a) => a.last_report_at > t[n].last_report_at + Yo);
    const r = t.slice(n, i < 0 ? t.length : i);
    if (r.length >= Zo) {
      const a = new Set(r);
      const l = s.filter((c) => a.has(c));
      for (const c of r) e.set(c, l);
    }
    n += r.length;
  }
  return e;
}
function tr(s, t) {
  const e = /* @__PURE__ */ new Map();
  for (const n of s) {
    const i = t(n);
    for (const r of i.length ? i : [null]) {
      if (!e.has(r)) e.set(r, []);
      e.get(r).push(n);
    }
  }
  return e;
}

// src/virtuallist.js
var mn = 8;
var oe = class {
  #t = /* @__PURE__ */ new Map();
  #e = [];
  #s = 0;
  /** `made(line)` returns a view of a line: its `element`, and `show(line)`, which renders it; `seen(lines)` is called
   *  with the lines that are in the document, each time they may have changed. */
  constructor(t, e, n) {
    Object.assign(this, { body: t, made: e, seen: n });
    this.moved = () => this.#s ||= requestAnimationFrame(() => this.#i());
    window.addEventListener("scroll", this.moved, { passive: true });
    window.addEventListener("resize", this.moved);
  }
  /** Stop following the window. */
  end() {
    cancelAnimationFrame(this.#s);
    window.removeEventListener("scroll", this.moved);
    window.removeEventListener("resize", this.moved);
  }
  /** Show lines, each with a `key` of its own. */
  show(t) {
    this.#e = t;
    const e = new Set(t.map(({ key: n }) => n));
    for (const n of this.#t.keys()) if (!e.has(n)) this.#t.delete(n);
    this.#i();
  }
  /** Return the index of the line that holds an element; -1 for none. */
  indexOf(t) {
    const e = t?.closest?.("tr");
    return e && this.body.contains(e) ? Number(e.getAttribute("aria-rowindex")) - 2 : -1;
  }
  /** Bring a line into view and focus its link or button. */
  focus(t) {
    const e = this.#e[t];
    if (!e) return;
    const n = this.#n();
    const i = this.body.getBoundingClientRect().top + t * n;
    const r = (this.body.previousElementSibling?.getBoundingClientRect().bottom ?? 0) + n / 2;
    if (i < r) window.scrollBy(0, i - r);
    else if (i + n > window.innerHeight) window.scrollBy(0, i + 1.5 * n - window.innerHeight);
    this.#i();
    this.#t.get(e.key)?.element.querySelector("a.run, button")?.focus({ preventScroll: true });
  }
  #n() {
    return parseFloat(getComputedStyle(this.body).getPropertyValue("--line-height"));
  }
  #i() {
    this.#s = 0;
    const t = this.#n();
    const e = this.body.getBoundingClientRect().top;
    const n = Math.max(0, Math.floor(-e / t) - mn);
    const i = Math.ceil((window.innerHeight - e) / t) + mn;
    const r = this.indexOf(document.activeElement);
    const a = this.body.contains(document.activeElement) ? [...this.#t].find(([, d]) => d.element.contains(document.activeElement))?.[0] : null;
    const l = this.#e.map((d, u) => ({ line: d, index: u })).filter(({ line: d, index: u }) => u >= n && u < i || r >= 0 && d.key === a);
    this.body.style.height = `${this.#e.length * t}px`;
    this.body.parentElement?.setAttribute("aria-rowcount", this.#e.length + 1);
    const c = l.map(({ line: d, index: u }) => this.#o(d, u, t));
    Nt(() => this.#r(c));
    const h = new Set(l.map(({ line: d }) => d.key));
    for (const d of this.#t.keys()) if (!h.has(d)) this.#t.delete(d);
    this.seen(l.map(({ line: d }) => d));
  }
  #o(t, e, n) {
    if (!this.#t.has(t.key)) this.#t.set(t.key, this.made(t));
    const i = this.#t.get(t.key);
    i.show(t);
    i.element.style.top = `${e * n}px`;
    i.element.setAttribute("aria-rowindex", e + 2);
    return i.element;
  }
  /** Put the elements in order, moving as few as possible. */
  #r(t) {
    const e = new Set(t);
    for (const n of [...this.body.children]) if (!e.has(n)) n.remove();
    t.forEach((n, i) => {
      if (this.body.children[i] !== n) this.body.insertBefore(n, this.body.children[i] ?? null);
    });
  }
};

// src/fleet.js
var er = 25;
var sr = 500;
var fn = 8;
var nr = 2e3;
var ir = 3e4;
async function gn(s, { live: t }) {
  const e = new Fe(s);
  try {
    await e.read();
  } catch (a) {
    e.end();
    throw a;
  }
  const n = ({ detail: a }) => e.heard(`${a.data.project}/${a.data.run}`);
  const i = () => t.state === "live" && e.due();
  t.addEventListener("event", n);
  t.addEventListener("state", i);
  const r = setInterval(() => e.refresh(), nr);
  document.addEventListener("keydown", e.keys);
  return () => {
    e.end();
    clearInterval(r);
    t.removeEventListener("event", n);
    t.removeEventListener("state", i);
    document.removeEventListener("keydown", e.keys);
  };
}
var Fe = class {
  runs = /* @__PURE__ */ new Map();
  #t = /* @__PURE__ */ new Set();
  #e = 0;
  #s = 0;
  #n = false;
  #i = false;
  #o = /* @__PURE__ */ new Set();
  constructor(t) {
    this.stage = t;
    this.title = o("h1", {});
    this.under = o("p", { class: "quiet" });
    this.body = o("tbody", { role: "rowgroup" });
    this.selection = new Qt(() => this.draw());
    this.bulk = new ee(this.selection, { found: () => this.runs, changed: (n) => this.#u(n) });
    this.courses = new se({ arrived: (n) => this.#c(n), failed: (n) => this.#a(n) });
    const e = (n) => n.run ? new Yt(this.selection) : new ne((i) => this.#m(i));
    this.list = new oe(this.body, e, (n) => this.courses.follow(n.flatMap(({ run: i }) => i ?? [])));
    this.controls = cn(() => this.draw());
    this.keys = (n) => this.#f(n);
  }
  end() {
    this.#s++;
    this.list.end();
    this.courses.end();
  }
  /** Read everything at the next refresh: events may have been missed. */
  due() {
    this.#e = 0;
  }
  /** Read every page; the first is rendered before the second is requested. A later read takes the place of this one. */
  async read() {
    const t = ++this.#s;
    this.#n = true;
    try {
      await this.#r(t);
    } finally {
      if (t === this.#s) this.#n = false;
    }
  }
  async #r(t) {
    const e = this.runs.size === 0;
    this.#e = Date.now();
    this.#t.clear();
    const n = /* @__PURE__ */ new Map();
    let i = null;
    do {
      const r = e && !i ? { limit: er } : { limit: sr, brief: true };
      const a = await b("/fleet", { after: i, ...r, archived: this.controls.archived() || null });
      if (t !== this.#s) return;
      for (const l of a.items) n.set(E(l), l);
      i = a.next;
      if (i && this.runs.size === 0) {
        await this.#l(new Map(n), t);
        this.under.textContent = "loading more runs …";
      }
    } while (i);
    await this.#l(n, t);
  }
  heard(t) {
    this.#t.add(t);
  }
  /** Read what changed since, and the runs that the service had no time to compute. */
  async refresh() {
    if (this.#n) return;
    const t = [...this.runs].filter(([, n]) => n.step !== null && !n.reward).map(([n]) => n);
    const e = /* @__PURE__ */ new Set([...this.#t, ...t]);
    for (const n of this.#h()) if (e.size < fn) e.add(n);
    try {
      if (e.size > fn || Date.now() - this.#e > ir) return await this.read();
      if (e.size) await this.#d(e);
    } catch (n) {
      this.#a(n);
    }
  }
  #a(t) {
    if (t.status === 401) this.stage.fail(t);
  }
  /** Draw runs whose sparklines have arrived. */
  #c(t) {
    const e = t.filter((n) => this.runs.has(E(n)));
    this.runs = new Map([...this.runs, ...e.map((n) => [E(n), n])]);
    this.draw();
  }
  /** Return the runs that are further on than their verdicts; those first that no event will come of any more. */
  #h() {
    const t = [...this.runs].filter(([, e]) => Be(e));
    return t.sort(([, e], [, n]) => e.last_report_at - n.last_report_at).map(([e]) => e);
  }
  /** Read runs one by one; a run that is not found any more, or was archived or taken back, leaves the list. */
  async #d(t) {
    const e = ++this.#s;
    this.#t.clear();
    const n = await Promise.all([...t].map(async (r) => [r, await rt(b(`/fleet/${or(r)}`))]));
    if (e !== this.#s) return;
    const i = new Map(this.runs);
    for (const [r, a] of n) {
      if (a && a.archived === this.controls.archived()) i.set(r, a);
      else i.delete(r);
    }
    await this.#l(i, e);
  }
  /** Show at once what a person changed, { key: new fields, or null for a deleted run }, then read it. */
  async #u(t) {
    const e = new Map(this.runs);
    for (const [n, i] of t) {
      const r = i && { ...e.get(n), owner: i.owner, tags: i.tags, archived: i.archived };
      if (r && r.archived === this.controls.archived()) e.set(n, r);
      else e.delete(n);
    }
    await this.#l(e, ++this.#s);
    await this.read();
  }
  async #l(t, e) {
    this.runs = this.courses.joined(t);
    if (t.size === 0) {
      this.#i = false;
      const n = this.controls.archived() || (await b("/fleet", { archived: true, limit: 1 })).items.length;
      if (e !== this.#s) return;
      return this.stage.show(n ? Xs(this.controls.archived()) : Vs(location.origin));
    }
    if (!this.#i) this.#p();
    this.draw();
  }
  #p() {
    this.#i = true;
    const t = o("th", { role: "columnheader", scope: "col", "data-name": "select" }, this.selection.every);
    const e = [t, ...Y.map((r) => this.controls.head(r))];
    const n = o("thead", { role: "rowgroup" }, o("tr", { role: "row", "aria-rowindex": "1" }, e));
    const i = o("table", { class: "fleet", role: "table", "aria-label": "Runs" }, n, this.body);
    this.none = o(
      "p",
      { class: "notice row", hidden: true },
      o("span", { class: "quiet" }, "No run matches these filters."),
      o("button", { onclick: () => this.controls.clear() }, "Show all runs")
    );
    this.stage.show(
      o("header", {}, this.title, this.under),
      this.controls.bar,
      o("div", { class: "card" }, i, this.none),
      this.bulk.element
    );
  }
  /** Put the lines in order; unchanged lines are reused. */
  draw() {
    const t = [...this.runs.values()];
    this.title.textContent = Ft(t);
    this.stage.title(Js(t));
    this.controls.offer(t);
    const e = this.controls.chosen(t);
    this.under.textContent = this.controls.said(e.length, t.length);
    this.none.hidden = e.length > 0;
    const n = this.controls.isByVerdict();
    const i = pn(e, { group: this.controls.group.value, isByVerdict: n, turned: this.#o });
    this.selection.follow(i, e, this.runs);
    this.list.show(i);
    this.bulk.draw();
  }
  #m(t) {
    if (!this.#o.delete(t)) this.#o.add(t);
    this.draw();
  }
  #f(t) {
    const e = { j: 1, k: -1 }[t.key];
    if (nt(t.target) || document.querySelector("dialog") || t.metaKey || t.ctrlKey || t.altKey) return;
    if (t.key === "x") document.activeElement.closest("tbody tr")?.querySelector("[type=checkbox]")?.click();
    if (!e) return;
    const n = Number(this.body.parentElement?.getAttribute("aria-rowcount")) - 2;
    const i = this.list.indexOf(document.activeElement);
    this.list.focus(Math.min(Math.max(i + e, 0), n));
  }
};
var or = (s) => s.split("/").map(encodeURIComponent).join("/");

// src/live.js
var rr = 4e4;
var wn = [500, 1e3, 2e3, 5e3, 1e4];
var re = class extends EventTarget {
  state = "connecting";
  heardAt = null;
  #t = null;
  #e = 0;
  #s = null;
  #n = () => {
  };
  /** Stream events until the page closes; dispatches "event" with { kind, data }, and "state". Only a visible tab holds
   *  a connection: a browser opens at most six per host over HTTP/1.1, and one more tab would never load. */
  async start() {
    document.addEventListener("visibilitychange", () => document.hidden ? this.#s?.abort() : this.restart());
    for (; ; ) {
      await ar();
      await this.#o().catch((t) => this.#h(t));
      await this.#i();
    }
  }
  /** Reconnect at once, e.g. with another token. */
  restart() {
    this.#e = 0;
    this.#n();
    this.#s?.abort();
  }
  /** Back off before the next attempt; without a valid token, wait for a new one. */
  #i() {
    const t = wn[Math.min(this.#e++, wn.length - 1)];
    return new Promise((e) => {
      this.#n = e;
      if (this.state !== "signed out") setTimeout(e, t);
    });
  }
  async #o() {
    this.#s = new AbortController();
    const t = this.#t === null ? {} : { "Last-Event-ID": this.#t };
    const e = await fetch("/api/v1/events", { headers: bt(t), signal: this.#s.signal });
    if (!e.ok) throw Object.assign(new Error("refused"), { status: e.status });
    this.#a();
    const n = setInterval(() => this.#c() && this.#s.abort(), 5e3);
    try {
      for await (const i of lr(e.body)) this.#r(i);
    } finally {
      clearInterval(n);
    }
    this.#h();
  }
  #r(t) {
    this.#a();
    const e = Object.fromEntries(t.split("\n").map((i) => cr(i)));
    if (e.id) this.#t = e.id;
    if (!e.data) return;
    const n = { kind: e.event, data: JSON.parse(e.data) };
    this.dispatchEvent(new CustomEvent("event", { detail: n }));
  }
  #a() {
    this.heardAt = Date.now();
    this.#e = 0;
    this.#d("live");
  }
  #c() {
    return Date.now() - this.heardAt > rr;
  }
  #h(t) {
    this.#d(t?.status === 401 ? "signed out" : "reconnecting");
  }
  #d(t) {
    if (t === this.state) return;
    this.state = t;
    this.dispatchEvent(new Event("state"));
  }
};
function ar() {
  return new Promise((s) => {
    const t = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", t);
      s();
    };
    document.addEventListener("visibilitychange", t);
    t();
  });
}
async function* lr(s) {
  const t = s.pipeThrough(new TextDecoderStream()).getReader();
  let e = "";
  for (; ; ) {
    const { value: n, done: i } = await t.read();
    if (i) return;
    const r = (e + n).split("\n\n");
    e = r.pop();
    yield* r;
  }
}
function cr(s) {
  const t = s.indexOf(":");
  return [s.slice(0, t), s.slice(t + 1).trimStart()];
}

// src/livebadge.js
var hr = { connecting: "connecting", reconnecting: "reconnecting", "signed out": "signed out" };
var dr = ({ heardAt: s }) => Date.now() - s < 1e3 ? "now" : `${B((Date.now() - s) / 1e3)} ago`;
function yn(s, t) {
  let e = false;
  const n = () => {
    const i = t.state === "live" && G.isGood;
    s.dataset.state = i || t.state !== "live" ? t.state : "reconnecting";
    if (i) s.textContent = e ? "up to date" : `live · ${dr(t)}`;
    else s.textContent = t.state === "live" ? "no answer" : hr[t.state];
  };
  t.addEventListener("state", n);
  t.addEventListener("event", n);
  G.addEventListener("change", n);
  setInterval(n, 1e3);
  n();
  return (i) => {
    e = i;
    n();
  };
}

// src/notfound.js
function bn(s, t) {
  document.title = "Not found · trmon";
  m(
    s,
    o(
      "section",
      { class: "card empty stack", role: "alert" },
      o("h1", {}, "Nothing is at this address."),
      o("p", {}, "There is no page ", o("code", {}, t), ". Runs are at ", o("code", {}, "/runs/PROJECT/RUN"), "."),
      o("p", {}, o("a", { href: "/" }, "All runs"), " · ", o("a", { href: "/alerts" }, "Alerts"))
    )
  );
}

// src/rule.js
async function $n(s, { parameters: [t] }) {
  const e = await b(`/rules/${encodeURIComponent(t)}`);
  s.title(e.name);
  s.show(
    o("header", {}, o("h1", {}, e.name.replaceAll("_", " "))),
    o(
      "section",
      { class: "card stack rule" },
      o("p", {}, e.meaning || e.summary),
      o("h2", {}, "What to do"),
      o("p", { class: "strong" }, e.runbook || "The rule names nothing to do."),
      o("h2", {}, "When it fires"),
      kn(e.fires_when.map(({ words: n, depth: i }) => o("li", { class: `deep-${Math.min(i, 3)}` }, vn(n)))),
      kn(e.terms.map((n) => o("li", {}, vn(n))))
    )
  );
  return () => {
  };
}
var kn = (s) => o("ul", {}, s);
var vn = (s) => s.split("`").map((t, e) => e % 2 ? o("code", {}, t) : t);

// src/budgetsection.js
var ae = class {
  #t = o("div", {});
  #e = o(
    "details",
    { class: "card panel", ontoggle: () => this.follow() },
    o("summary", {}, "Budget: mismatch, lag, advice by pipeline"),
    this.#t
  );
  element = o("section", { "aria-label": "Budget" }, this.#e);
  #s = null;
  constructor(t) {
    this.path = t;
  }
  /** Read the budget anew while it is open; a request that fails is repeated with the next update. */
  async follow() {
    if (!this.#e.open) return;
    try {
      const [{ budgetOf: t }, e] = await Promise.all([import("/static/budget.js"), rt(b(`${this.path}/budget`))]);
      const n = JSON.stringify(e);
      if (this.#s === n) return;
      this.#s = n;
      q(this.#t, e ? t(e) : o("p", { class: "quiet" }, "No batch has closed yet."));
    } catch (t) {
      if (!(t instanceof O)) throw t;
      if (this.#s === null) m(this.#t, o("p", { class: "quiet" }, t.message));
    }
  }
};

// src/reasons.js
var ur = 3;
var le = class extends ut {
  #t = { steps: [], mask_rate: [], reasons: {} };
  #e = 0;
  constructor({ uPlot: t, course: e, open: n }) {
    super({ uPlot: t, course: e, open: n, title: "Masked, by reason", label: "Masked" });
  }
  shows(t) {
    return t.has("mask_rate");
  }
  make() {
    this.canvas.make({ n: Math.max(this.#s().length, 1), banded: false, from: 0 });
    this.#n();
  }
  /** Read the displayed steps; if responses overtake each other, the newest request wins. */
  async data() {
    const t = ++this.#e;
    const [e, n] = this.course.view;
    const i = await b(`${this.course.path}/reasons`, {
      from: e,
      to: n,
      attempt_id: this.course.attempt,
      points: 200
    }).catch(() => null);
    if (!i || t !== this.#e) return;
    const r = this.#s().join();
    this.#t = i;
    if (this.#s().join() === r) this.#n();
    else this.make();
  }
  #s() {
    const t = (e) => this.#t.reasons[e].reduce((n, i) => n + i, 0);
    return Object.keys(this.#t.reasons).sort((e, n) => t(n) - t(e)).slice(0, ur);
  }
  #n() {
    const t = this.#s();
    const e = t.length ? t.map((n) => this.#t.reasons[n]) : [this.#t.mask_rate];
    this.canvas.data([this.#t.steps, ...e]);
    m(
      this.legend,
      t.map((n, i) => o("span", { class: `legend line-${i}` }, n))
    );
    this.say(null);
  }
  lines(t) {
    const { steps: e, mask_rate: n, reasons: i } = this.#t;
    const r = this.#s().map((a) => `${a} ${v(i[a][t])}`);
    return [`step ${p(e[t])}`, `masked ${v(n[t])}`, ...r];
  }
  rows() {
    const { steps: t, mask_rate: e, reasons: n } = this.#t;
    const i = Object.keys(n);
    const r = t.map((a, l) => [a, e[l], ...i.map((c) => n[c][l])]);
    return [["step", "masked (fraction)", ...i.map((a) => `${a} (fraction)`)], ...r];
  }
  say(t) {
    const { steps: e, mask_rate: n } = this.#t;
    const i = t === null ? n.length - 1 : t;
    this.now.textContent = v(n[i]);
    this.against.textContent = t === null ? `initially ${v(n[0])}` : `step ${p(e[i])}`;
  }
};

// src/skeleton.js
var _n = 9;
var pr = 12;
var A = (s) => o("span", { class: `bone ${s}` });
var St = (s, t) => Array.from({ length: s }, t);
var xt = (...s) => o("header", {}, A("title"), s);
var xn = () => o("div", { class: "row controls" }, A("field"), A("field narrow"));
var Sn = (s) => o("div", { class: "card panel stack" }, St(s, () => A("line")));
var En = (s) => o("div", { class: "card" }, St(pr, () => o("div", { class: `bones ${s}` }, A("line"))));
var mr = {
  fleet: () => [xt(A("title narrow"), A("line half")), xn(), En("run-line")],
  alerts: () => [xt(A("field narrow")), xn(), A("subtitle"), En("alert-line")],
  run: () => [
    xt(A("field narrow"), A("line half"), A("line third")),
    o("div", { class: "card diagnosis" }, o("div", { class: "stack" }, St(5, () => A("line")))),
    o("div", { class: "rangebar" }, A("field")),
    o("div", { class: "charts" }, ce(_n))
  ],
  compare: () => [xt(), Sn(4), o("div", { class: "charts" }, ce(_n))],
  rule: () => [xt(), Sn(6)]
};
function Mn(s) {
  const t = o("p", { class: "sr", role: "status" }, "Loading …");
  return [t, o("div", { class: "skeleton", "aria-hidden": "true" }, mr[s]())];
}
function ce(s) {
  return St(s, () => o("figure", { class: "card panel", "aria-hidden": "true" }, A("caption"), A("plot")));
}
var he = (s) => St(s, () => o("span", { class: "bone line", "aria-hidden": "true" }));

// src/charts.js
var de = class {
  element = o("section", { class: "charts", "aria-label": "Charts" });
  #t = [];
  #e = null;
  #s = null;
  constructor(t, e) {
    this.course = t;
    this.open = e;
    t.addEventListener("view", () => this.#o((n) => n.range()));
    t.addEventListener("series", () => this.#n());
    t.addEventListener("markers", () => this.redraw());
    t.addEventListener("axis", () => this.#o((n) => n.make()));
    this.theme = () => this.#o((n) => n.make());
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", this.theme);
    window.addEventListener("themechange", this.theme);
  }
  /** Take the room of the charts that will be drawn. */
  takeRoom() {
    const t = this.course.panels.length;
    if (t) m(this.element, ce(t + 1));
  }
  /** Draw the charts once the library is loaded. */
  async begin() {
    this.uPlot = await Ht();
    this.#n();
  }
  redraw() {
    this.#o((t) => t.redraw());
  }
  /** Outline the charts that show evidence of the finding, and tell that of the risk what drives it. */
  outline(t) {
    const { diagnosis: e, judged: n } = this.#s = t;
    const i = new Set((e?.observed ?? []).flatMap((a) => a.evidence.map((l) => l.signal)));
    const r = ["act", "watch"].includes(n.verdict.kind) ? n.verdict.kind : "";
    this.#o((a) => a.element.dataset.evidence = a.shows(i) ? r : "");
    this.#o((a) => a.learn?.(t));
  }
  end() {
    this.system.removeEventListener("change", this.theme);
    window.removeEventListener("themechange", this.theme);
    this.#o((t) => t.end());
  }
  #n() {
    if (!this.uPlot) return;
    if (this.#e !== this.course.panels && this.course.panels.length) this.#i();
    this.#o((t) => t.data());
  }
  #i() {
    const { uPlot: t, course: e, open: n } = this;
    this.#e = e.panels;
    this.#o((i) => i.end());
    this.#t = e.panels.map((i) => new (i.isRisk ? Gt : pt)({ uPlot: t, course: e, panel: i, open: n }));
    this.#t.splice(5, 0, new le({ uPlot: t, course: e, open: n }));
    m(
      this.element,
      this.#t.map((i) => i.element)
    );
    this.#o((i) => i.make());
    if (this.#s) this.outline(this.#s);
  }
  #o(t) {
    this.#t.forEach(t);
  }
};

// src/permalink.js
var fr = ["step", "from", "to", "attempt"];
function ue() {
  const s = new URLSearchParams(location.search);
  const t = fr.map((e) => [e, /^\d+$/.test(s.get(e) ?? "") ? Number(s.get(e)) : null]);
  return { ...Object.fromEntries(t), tab: s.get("tab"), by: s.get("by") };
}
function W(s, t = location.pathname) {
  if (t !== location.pathname) return;
  const e = new URLSearchParams(location.search);
  for (const [i, r] of Object.entries(s)) {
    if (r === null) e.delete(i);
    else e.set(i, r);
  }
  const n = e.toString().replaceAll("%2C", ",");
  history.replaceState(null, "", location.pathname + (n ? `?${n}` : ""));
}

// src/course.js
var me = 320;
var gr = 120;
var wr = 10;
var pe = { exact: true, step: [], count: [], closed_at: [], signals: {} };
var fe = class extends EventTarget {
  series = pe;
  whole = pe;
  // The series over all steps.
  chosen = null;
  markers = [];
  extent = [0, 1];
  view = [0, 1];
  byTime = false;
  #t = null;
  #e = null;
  #s = true;
  names = /* @__PURE__ */ new Set();
  constructor(t, e) {
    super();
    this.path = t;
    this.attempt = e.attempt;
    this.given = e;
    this.byTime = e.by === "time";
  }
  /** Draw charts over the time at which steps closed, or over steps. */
  drawBy(t) {
    this.byTime = t;
    W({ by: t ? "time" : null }, this.path);
    this.dispatchEvent(new Event("axis"));
  }
  /** Return where a step lies on the horizontal axis: itself, or when it closed in seconds since the epoch. */
  position(t) {
    return this.byTime ? Tn(this.series.step, this.series.closed_at, t) : t;
  }
  /** Return the step at a place on the horizontal axis. */
  stepAt(t) {
    return this.byTime ? Tn(this.series.closed_at, this.series.step, t) : t;
  }
  /** Read which signals there are, in general and of this run. */
  async learn() {
    const [t] = await Promise.all([b("/signals").then(yr), this.#n()]);
    this.catalogue = t;
  }
  /** Read the series, once the signals are known. */
  async begin() {
    await this.#o();
    if (this.given.from !== null && this.given.to !== null) this.show(this.given.from, this.given.to);
  }
  /** Read the newest steps; a view of all steps grows with the run. */
  async follow() {
    await this.#n();
    return this.#i();
  }
  /** Whether the newest step is displayed. */
  get isAtEnd() {
    return this.view[1] >= this.extent[1];
  }
  /** Return the typical distance in steps between two reports. */
  get stride() {
    const { step: t, count: e } = this.series;
    const n = e.slice(1).reduce((i, r) => i + r, 0);
    return n ? Math.max((t.at(-1) - t[0]) / n, 1) : 1;
  }
  /** Display other steps: with cached data at once, in full resolution once it is read. No range means all steps. */
  show(t = this.extent[0], e = this.extent[1]) {
    const [n, i] = this.extent;
    const r = Math.min(Math.max(e - t, wr), Math.max(i - n, 1));
    const a = Math.min(Math.max(t, n), i - r);
    this.view = [Math.round(a), Math.round(a + r)];
    this.#s = this.view[0] <= n && this.view[1] >= i;
    this.dispatchEvent(new Event("view"));
    clearTimeout(this.#t);
    this.#t = setTimeout(() => this.#c(), gr);
  }
  /** Pan by a fraction of the displayed range. */
  pan(t) {
    const e = (this.view[1] - this.view[0]) * t;
    this.show(this.view[0] + e, this.view[1] + e);
  }
  /** Zoom the displayed range by `factor`, around the middle or around a step. */
  zoom(t, e = (this.view[0] + this.view[1]) / 2) {
    this.show(e - (e - this.view[0]) * t, e + (this.view[1] - e) * t);
  }
  /** Return the displayed step next to a step. */
  beside(t, e) {
    const n = this.series.step;
    const i = n.findIndex((r) => r >= t);
    return n[Math.min(Math.max((i < 0 ? n.length : i) + e, 0), n.length - 1)];
  }
  /** Return the markers within some steps of a step. */
  markersNear(t, e) {
    return this.markers.filter((n) => Math.abs(n.step - t) <= e);
  }
  /** Record the steps at which alerts began, policies changed and notes were written. */
  mark({ run: t, alerts: e, policies: n, notes: i }) {
    this.extent = [this.extent[0], Math.max(this.extent[1], this.#s ? 0 : t.last_step)];
    const r = e.items.filter((a) => a.severity !== "info");
    this.markers = [
      ...r.map((a) => ({ step: a.step, kind: a.severity === "page" ? "act" : "watch", what: a.title })),
      ...n.slice(1).map((a) => ({ step: this.stepOf(a), kind: "policy", what: `policy ${a.name}` })).filter(({ step: a }) => a !== null),
      ...i.filter((a) => a.step !== null).map((a) => ({ step: a.step, kind: "note", what: `note: ${a.text}` }))
    ].sort((a, l) => a.step - l.step);
    this.dispatchEvent(new Event("markers"));
  }
  end() {
    clearTimeout(this.#t);
    this.#e?.abort();
  }
  /** Record which signals exist; some appear at a later step. */
  async #n() {
    const t = /* @__PURE__ */ new Set([...this.names, ...await b(`${this.path}/signals/names`)]);
    if (this.panels && t.size === this.names.size) return;
    this.names = t;
    this.panels = Bs(t);
  }
  /** Read the displayed range; a newer request replaces one that is in flight. */
  async #i() {
    try {
      await (this.#s ? this.#o() : this.#r());
    } catch (t) {
      if (t.name !== "AbortError") throw t;
    }
  }
  async #o() {
    this.series = await this.#a({});
    this.whole = this.series;
    const { step: t, count: e } = this.series;
    if (t.length) this.extent = [Math.max(t[0] - e[0] + 1, 0), Math.max(t.at(-1), t[0] + 1)];
    if (this.#s) this.view = [...this.extent];
    this.dispatchEvent(new Event("series"));
  }
  async #r() {
    const t = this.view[1] - this.view[0];
    const e = { from: Math.max(0, this.view[0] - t), to: this.view[1] + t };
    this.series = await this.#a({ ...e, points: 3 * me });
    this.dispatchEvent(new Event("series"));
  }
  #a(t) {
    const e = this.panels.flatMap((i) => i.names).join(",");
    if (!e) return { ...pe };
    this.#e?.abort();
    this.#e = new AbortController();
    const n = { statistics: "mean,min,max", digits: 5, points: me, attempt_id: this.attempt };
    return b(`${this.path}/signals`, { names: e, ...n, ...t }, { signal: this.#e.signal });
  }
  async #c() {
    W(this.#s ? { from: null, to: null } : { from: this.view[0], to: this.view[1] }, this.path);
    await this.#i().catch((t) => {
      if (!(t instanceof O)) throw t;
    });
  }
  /** Return the first step that used a version of the policy; null until the series has been read. */
  stepOf(t) {
    if (t.from_step) return t.from_step;
    const e = [this.whole, this.series];
    if (e.every((r) => r === pe)) return null;
    const { step: n, closed_at: i } = e.find((r) => r.closed_at.at(-1) >= t.created_at) ?? {};
    return i ? n[i.findIndex((r) => r >= t.created_at)] : this.extent[1];
  }
};
var yr = (s) => new Map(s.map((t) => [t.name, t]));
function Tn(s, t, e) {
  if (s.length < 2) return t[0] ?? e;
  let [n, i] = [0, s.length - 1];
  while (i - n > 1) {
    const a = n + i >> 1;
    if (s[a] <= e) n = a;
    else i = a;
  }
  const r = s[i] - s[n];
  return r > 0 ? t[n] + (e - s[n]) / r * (t[i] - t[n]) : t[n];
}

// src/copybutton.js
var br = 2e3;
function ge(s, t, e = {}) {
  return o("button", { ...e, onclick: (n) => kr(n.currentTarget, { label: s, text: t() }) }, s);
}
async function kr(s, { label: t, text: e }) {
  try {
    await navigator.clipboard.writeText(e);
    s.textContent = "Copied";
    setTimeout(() => s.textContent = t, br);
  } catch {
    prompt("Copy this", e);
  }
}

// src/evidence.js
function Ln(s, { catalogue: t, open: e }) {
  const n = /* @__PURE__ */ new Set();
  const i = s.flatMap((l) => l.evidence).filter(({ signal: l }) => !n.has(l) && n.add(l));
  const r = i.map(
    (l) => o(
      "tr",
      {},
      o(
        "td",
        { title: t.get(l.signal)?.description ?? "" },
        j(l.signal),
        o("br"),
        o("code", { class: "quiet" }, vr(l.signal))
      ),
      o("td", { class: "number strong" }, g(l.value)),
      o("td", { class: "number quiet" }, l.rules_out ? "usual" : $r(l)),
      o(
        "td",
        { class: "number" },
        o("button", { class: "link", onclick: () => e(l.since_step) }, p(l.since_step))
      )
    )
  );
  const a = o(
    "tr",
    {},
    ["Evidence", "value", "limit", "since step"].map((l, c) => o("th", { class: c ? "number" : "" }, l))
  );
  return o("table", { class: "evidence" }, o("thead", {}, a), o("tbody", {}, r));
}
var vr = (s) => s.split(/(?<=_)/).flatMap((t) => [t, o("wbr")]);
function $r({ bound: s, threshold: t, away_from: e }) {
  if (e !== null) return e === 0 ? `±${g(t)}` : `${g(e)} ± ${g(t)}`;
  return `${s === "above" ? "≤" : "≥"} ${g(t)}`;
}

// src/remedy.js
var On = { verl: "verl", trl: "TRL" };
var jn = "trmon.trainer";
var Ke = ({ has_ended: s }) => s ? "For the next run: " : "Do this: ";
function An(s) {
  const { remedy: t, quadrant: e } = s;
  const n = o("p", { class: "quiet" }, `Correction: ${e.advice}`);
  return [
    o("p", {}, o("span", { class: "strong" }, Ke(s)), t.fix),
    _r(t),
    o("details", {}, o("summary", { class: "quiet" }, "If it persists"), o("p", {}, t.persists), n)
  ];
}
function _r(s) {
  const t = (u) => Object.entries(s[u]);
  const e = (u) => Object.entries(s[`${u}_in_words`]);
  const n = Object.keys(On).filter((u) => t(u).length + e(u).length);
  if (!n.length) return null;
  const i = o("pre", { class: "config" });
  const r = o("div", { class: "small" });
  const a = n.map((u) => o("button", { role: "tab", onclick: () => c(u) }, On[u]));
  const l = (u) => {
    a.forEach((f, w) => f.setAttribute("aria-selected", String(n[w] === u)));
    i.hidden = d.hidden = !t(u).length;
    m(i, t(u).map(([f, w]) => `${f}=${w}`).join("\n"));
    m(r, e(u).length > 0 && xr(e(u)));
  };
  const c = (u) => {
    localStorage.setItem(jn, u);
    W({ tab: u });
    l(u);
  };
  const h = o("div", { class: "row", role: "tablist", "aria-label": "Trainer" }, a);
  const d = ge("Copy", () => i.textContent, { "aria-label": "Copy the configuration" });
  l([ue().tab, localStorage.getItem(jn)].find((u) => n.includes(u)) ?? n[0]);
  return o("div", { class: "snippet" }, o("div", { class: "row between" }, h, d), i, r);
}
function xr(s) {
  const t = s.map(([e, n]) => o("li", {}, o("code", {}, e), `: ${n}`));
  return [o("p", { class: "quiet" }, "To set by hand; the run's configuration does not tell the value:"), o("ul", {}, t)];
}

// src/story.js
var Sr = "reward_collapse";
var Nn = "R";
var Er = 2;
function qn({ diagnosis: s, alerts: t }) {
  const e = s?.since_step ?? null;
  if (e === null || en(s.incident)) return null;
  const n = s.observed.find((a) => a.finding === Nn)?.since_step;
  const i = t.items.find((a) => a.rule === Sr && a.step >= e);
  const r = s.primary === Nn;
  return {
    began: e,
    lastGood: s.last_good_step ?? null,
    rewardFell: r ? null : n ?? i?.step ?? null,
    cause: s.observed.find((a) => a.finding === s.primary) ?? null,
    meaning: s.meaning
  };
}
function Rn(s, { open: t, when: e }) {
  const n = (r, a) => o("button", { class: "link strong", onclick: () => t(r) }, `${a} ${p(r)}`);
  const i = s.lastGood !== null && ["; ", n(s.lastGood, "last good step")];
  return [
    o("p", {}, n(s.began, "Broke at step"), e, Tr(s), i, "."),
    s.meaning && o("p", {}, s.meaning, " ", Lr(s.cause))
  ];
}
function Ge(s) {
  return s === null ? null : [", ", s === void 0 ? Mr() : Pn(s)];
}
async function Cn({ path: s, names: [t], attempt: e }, n) {
  if (!t) return null;
  const i = { names: t, statistics: "last", from: n, to: n, attempt_id: e };
  const r = await b(`${s}/signals`, i).catch(() => null);
  return r?.closed_at[0] ?? null;
}
var Mr = () => o("span", { class: "bone inline", "aria-hidden": "true" }, o("span", {}, Pn(tt())));
var Pn = (s) => [o("time", { datetime: new Date(1e3 * s).toISOString() }, L(s)), `, ${x(s)}`];
function Tr({ began: s, rewardFell: t }) {
  if (t === null) return null;
  const e = t - s;
  if (e <= 0) return ", as the reward fell";
  return `, ${p(e)} ${e === 1 ? "step" : "steps"} before the reward fell (step ${p(t)})`;
}
function Lr(s) {
  const t = (s?.evidence ?? []).filter((i) => !i.rules_out).slice(0, Er);
  if (!t.length) return "";
  const e = t.map((i) => `${j(i.signal)} ${g(i.value)} (${Or(i)})`);
  const n = e.join(", ");
  return `${n.charAt(0).toUpperCase()}${n.slice(1)}.`;
}
function Or({ bound: s, threshold: t, away_from: e }) {
  if (e !== null) return `usual: ${g(e)} ± ${g(t)}`;
  return `${s === "above" ? "at most" : "at least"} ${g(t)}`;
}

// src/timeline.js
var Je = "reward_mean";
var ft = 18;
var mt = 62;
var Ve = 22;
var Dn = 16;
var jr = 6.3;
var we = class {
  element = o("div", { class: "timeline" });
  #t = null;
  #e = 0;
  #s = null;
  constructor(t, e) {
    Object.assign(this, { course: t, open: e });
    this.resized = new ResizeObserver(() => this.#o());
    this.resized.observe(this.element);
  }
  /** Show a story, or nothing with null; the series is read again only when the run's last step is another.
   *
   *  As many points as the charts have, so that both tell the same newest value. */
  async show(t, e) {
    this.element.hidden = t === null;
    if (!t) return;
    const n = this.#n(t);
    const i = JSON.stringify([t.began, t.rewardFell, n, e]);
    if (i === this.#s || !n.length) return;
    this.element.style.minHeight = `${In(n)}px`;
    const r = ++this.#e;
    const a = { names: n.join(), statistics: "mean", digits: 4, points: me, attempt_id: this.course.attempt };
    const l = await b(`${this.course.path}/signals`, a).catch(() => null);
    if (!l || r !== this.#e) return;
    this.#s = i;
    this.#t = { story: t, series: l, names: n };
    this.#o();
  }
  end() {
    this.resized.disconnect();
  }
  /** Return the reward, and the first evidence of the cause that the run has as a series. */
  #n({ cause: t }) {
    const e = (i) => this.course.names.has(i);
    const n = (t?.evidence ?? []).filter((i) => !i.rules_out).map(({ signal: i }) => e(i) ? i : this.#i(i)).find((i) => i && i !== Je);
    return [e(Je) && Je, n].filter(Boolean);
  }
  #i(t) {
    const e = this.course.panels.find(
      (n) => n.names.some((i) => V(i) === V(t)) || n.also?.includes(t)
    );
    return e?.names[0];
  }
  #o() {
    const t = this.element.clientWidth;
    if (!this.#t || !t) return;
    const { story: e, series: n, names: i } = this.#t;
    const r = In(i);
    const a = Math.max(n.step[0] - n.count[0] + 1, 0);
    const l = Math.max(n.step.at(-1), a + 1);
    const c = (f) => (Math.min(Math.max(f, a), l) - a) / (l - a) * (t - 2) + 1;
    const h = i.map((f, w) => Rr(n, f, { x: c, width: t, top: ft + w * (Ve + mt) + Ve }));
    const d = r - Dn;
    const u = $(
      "svg",
      { width: t, height: r, viewBox: `0 0 ${t} ${r}`, role: "img", "aria-label": Pr(e, n, i) },
      $("rect", { class: "ill", x: c(e.began), y: ft, width: t - c(e.began), height: d - ft }),
      h,
      Ar(e).map((f, w, k) => qr(f, { x: c, width: t, bottom: d, row: Nr(k, w, { x: c, width: t }) ? 1 : 0 })),
      $("text", { x: 0, y: r - 3 }, `step ${p(a)}`),
      $("text", { x: t, y: r - 3, "text-anchor": "end" }, p(l))
    );
    u.addEventListener(
      "click",
      (f) => this.open(Math.round(a + f.offsetX / t * (l - a)))
    );
    m(this.element, u);
  }
};
var In = (s) => ft + s.length * (Ve + mt) + Dn;
function Ar({ began: s, rewardFell: t }) {
  const e = t !== null && t > s && { at: t, text: "reward fell", kind: "fell" };
  return [{ at: s, text: "broke", kind: "broke" }, e].filter(Boolean);
}
var Bn = ({ at: s, text: t }) => `${t} ${p(s)}`;
function Xe(s, { x: t, width: e }) {
  const [n, i] = [t(s.at), Bn(s).length * jr];
  return n + 4 + i < e ? [n + 4, n + 4 + i] : [n - 4 - i, n - 4];
}
function Nr(s, t, e) {
  if (!t) return false;
  const [[n, i], [r, a]] = [Xe(s[t - 1], e), Xe(s[t], e)];
  return r < i + 4 && a > n - 4;
}
function qr(s, { x: t, width: e, bottom: n, row: i }) {
  const r = Bn(s);
  const a = t(s.at);
  const [l] = Xe(s, { x: t, width: e });
  const c = l > a ? { x: l } : { x: a - 4, "text-anchor": "end" };
  return $(
    "g",
    { class: `mark ${s.kind}` },
    $("line", { x1: a, x2: a, y1: i ? ft : 2, y2: n }),
    $("text", { ...c, y: i ? ft + 11 : 12 }, r)
  );
}
function Rr(s, t, { x: e, width: n, top: i }) {
  const r = s.signals[t].mean.map((N) => typeof N === "number" ? N : null);
  const a = r.filter((N) => N !== null);
  const [l, c] = a.length ? [Math.min(...a), Math.max(...a)] : [0, 1];
  const h = l > 0 && c / l > 100;
  const d = h ? Math.log10 : (N) => N;
  const [u, f] = [d(l), d(c)];
  const w = (N) => i + mt - 2 - (f === u ? 0.5 : (d(N) - u) / (f - u)) * (mt - 4);
  const k = `${P(j(t))} ${g(a.at(-1))}`;
  const M = f === u ? "" : `${g(l)} to ${g(c)}${h ? ", logarithmic" : ""}`;
  return [
    $("text", { class: "name", x: 0, y: i - 7 }, k),
    $("text", { x: n, y: i - 7, "text-anchor": "end" }, M),
    $("line", { class: "base", x1: 0, x2: n, y1: i + mt, y2: i + mt }),
    $("path", { class: "course", d: Cr(s.step, r, { x: e, y: w }) })
  ];
}
function Cr(s, t, { x: e, y: n }) {
  let i = "M";
  return t.map((r, a) => {
    const l = r === null ? "" : `${i}${e(s[a]).toFixed(1)} ${n(r).toFixed(1)}`;
    i = r === null ? "M" : "L";
    return l;
  }).join("");
}
function Pr({ began: s, rewardFell: t, lastGood: e }, n, i) {
  const r = (c) => g(n.signals[c].mean.findLast((h) => h !== null));
  const a = [
    e !== null && `last good step ${p(e)}`,
    `broke at step ${p(s)}`,
    t !== null && `reward fell at step ${p(t)}`
  ];
  const l = i.map((c) => `${j(c)} now ${r(c)}`);
  return [...a.filter(Boolean), ...l].join(", ");
}

// src/diagnosis.js
var Ir = "2";
var ye = class {
  element = o("section", { "aria-label": "Diagnosis" });
  announcement = o("p", { class: "sr", role: "status" });
  #t = null;
  #e = null;
  #s = { step: null, at: null };
  #n = null;
  /** `open` opens a step; `again` reads the facts anew after an action. */
  constructor(t, { open: e, again: n }) {
    Object.assign(this, { course: t, open: e, again: n });
    this.timeline = new we(t, e);
  }
  /** Show the facts, unless they are unchanged; the time at which the run broke is shown once it is read. */
  async show(t) {
    const e = qn(t);
    this.timeline.show(e, t.run.last_step);
    const n = !e || this.#s.step === e.began;
    const i = n ? this.#s : { step: e.began, at: void 0 };
    this.#s = i;
    this.#i(t, e);
    if (n) return;
    i.at = await Cn(this.course, e.began);
    if (i === this.#s) m(this.#n, Ge(i.at));
  }
  end() {
    this.timeline.end();
  }
  #i(t, e) {
    const n = JSON.stringify([t.judged.verdict, t.diagnosis, t.alerts]);
    if (this.#e === n) return;
    this.#e = n;
    this.#o(t.judged.verdict);
    this.#r(t, e);
  }
  /** Tell screen readers that the verdict has changed, not each number in it. */
  #o({ kind: t, why: e }) {
    if (this.#t !== null && this.#t !== t) this.announcement.textContent = `${st(t)}: ${e}`;
    this.#t = t;
  }
  #r(t, e) {
    const { catalogue: n } = this.course;
    const i = t.diagnosis?.observed ?? [];
    this.#n = o("span", {}, Ge(this.#s.at));
    const r = [
      Br(t.judged.verdict),
      zr(t),
      sn(t),
      e && Rn(e, { open: this.open, when: this.#n }),
      e && !e.cause && o("p", { class: "quiet" }, "The newest steps no longer show it."),
      Wr(t),
      Hr(t),
      Fr(t, this.again)
    ];
    const a = i.length > 0 && [
      o("summary", {}, `Evidence: ${y(new Set(i.flatMap(Dr)).size, "signal")}`),
      Ln(i, { catalogue: n, open: this.open })
    ];
    const l = [e && this.timeline.element, a && o("details", { "data-name": "evidence" }, a)];
    q(
      this.element,
      o(
        "div",
        { class: "card diagnosis", "data-kind": t.judged.verdict.kind },
        o("div", { class: "stack" }, r),
        l.some(Boolean) && o("div", { class: "stack" }, l)
      )
    );
  }
};
var Dr = (s) => s.evidence.map((t) => t.signal);
var Br = ({ kind: s, why: t }) => o("p", { class: "headline" }, o("span", { class: `kind kind-${s}` }, `${st(s)}: `), o("span", {}, t));
function zr({ diagnosis: s }) {
  const t = s?.circumstances ?? [];
  return t.map((e) => o("p", {}, o("span", { class: "strong" }, `${e.summary}. `), e.fix));
}
function Wr({ diagnosis: s, judged: t }) {
  const e = s?.observed ?? [];
  const n = e.filter((l) => l.finding !== s.primary);
  const i = t.incident?.state === "firing" ? t.alerts : [];
  const r = [
    ...n.map((l) => `${P(l.title)} since step ${p(l.since_step)}`),
    ...i.map((l) => `Alert ${l.rule.replaceAll("_", " ")} since step ${p(l.step)}`)
  ];
  if (!r.length) return null;
  const a = r.map((l) => o("li", {}, l));
  return o("details", { "data-name": "also" }, o("summary", { class: "quiet" }, `Also seen (${r.length})`), o("ul", {}, a));
}
function Hr({ diagnosis: s }) {
  if (!s) return null;
  if (s.remedy) return An(s);
  const t = (s.since_step ?? null) !== null && s.incident?.fix;
  return [t && o("p", {}, o("span", { class: "strong" }, Ke(s)), t), Ur(s)];
}
function Ur({ unknown: s, shortfall: t }) {
  const e = new Map(s.flatMap((i) => i.missing.map((r) => [r.provide, i.title])));
  if (!e.size && !t.length) return null;
  const n = [...e].map(
    ([i, r]) => o("li", {}, `${P(i)}. `, o("span", { class: "quiet" }, `Needed for: ${r}.`))
  );
  return o(
    "details",
    { open: e.size < 4, "data-name": "missing" },
    o("summary", {}, `Not measured: missing inputs (${y(e.size, "item")})`),
    o("ul", {}, n)
  );
}
function Fr({ alerts: s, run: t }, e) {
  const n = vt(s.items.filter((h) => h.state === "firing"));
  const i = n.filter((h) => !h.ack);
  const r = [...new Set(n.filter((h) => h.ack).map((h) => h.ack.author))];
  const a = async () => await at(
    [
      { label: "run", value: t.run },
      { label: "rule", value: "" }
    ],
    t.project
  ) && e();
  const l = async () => await qt(i) && e();
  const c = [
    i.length > 0 && _(`Acknowledge ${y(i.length, "alert")}`, l),
    n.length > 0 && _("Silence", a, { title: `for ${Ir} hours or longer` }),
    ge("Copy link", () => location.href),
    n.length > 0 && o("span", { class: "quiet" }, Kr(r, t))
  ];
  return o("div", { class: "row actions" }, c);
}
function Kr(s, { owner: t }) {
  if (s.length) return `acknowledged by ${s.join(", ")}`;
  return `nobody has acknowledged it${t ? `; owner: ${t}` : ""}`;
}

// src/marklegend.js
var zn = { act: "page alert", watch: "warning", policy: "policy change", note: "note" };
function Wn(s) {
  const t = Object.keys(zn).filter((n) => s.some((i) => i.kind === n));
  if (!t.length) return null;
  const e = t.map((n) => o("li", { class: `mark-${n}` }, zn[n]));
  return o("div", { class: "marks quiet" }, "Marks on the charts:", o("ul", { "aria-label": "Marks on the charts" }, e));
}

// src/eventlist.js
var Gr = 100;
var be = class {
  element = o("section", { class: "eventlist", "aria-label": "Events" });
  #t = null;
  constructor(t, e) {
    Object.assign(this, { course: t, open: e });
    t.addEventListener("markers", () => this.#e());
  }
  #e() {
    const { markers: t } = this.course;
    const e = JSON.stringify(t);
    if (e === this.#t) return;
    this.#t = e;
    const n = t.slice(-Gr).map(
      ({ step: a, what: l, kind: c }) => o(
        "li",
        {},
        o("button", { class: "link", onclick: () => this.open(a) }, `step ${p(a)}`),
        o("span", { class: `kind-${c}` }, l)
      )
    );
    const i = o("summary", { class: "quiet" }, y(t.length, "event"));
    const r = n.length > 0 && o("details", { "data-name": "events" }, i, o("ol", {}, n));
    q(this.element, r, Wn(t));
  }
};

// src/heatdrawing.js
var F = 190;
var z = 58;
var Et = 20;
var Ye = 4;
function Hn(s, t, { view: e, width: n }) {
  const i = $t();
  const r = devicePixelRatio;
  Object.assign(s, { width: n * r, height: F * r });
  Object.assign(s.style, { width: `${n}px`, height: `${F}px` });
  const a = s.getContext("2d");
  a.scale(r, r);
  const [l, c] = e;
  const h = (u) => z + (u - l) / Math.max(c - l, 1) * (n - z);
  const d = { ctx: a, ink: i, found: t, x: h, y: Xr(t.edges), width: n, from: l, to: c };
  s.stepAt = (u) => l + (u - z) / (n - z) * (c - l);
  Yr(d);
  Zr(d);
  Vr(d);
  ta(d);
  s.valueAt = (u) => Jr(t.edges, u);
  s.heightOf = d.y;
}
function Jr(s, t) {
  const e = s.length - 1;
  const n = Math.min(Math.max((1 - t / (F - Et)) * e, 0), e);
  const i = Math.min(Math.floor(n), e - 1);
  return Number(s[i]) + (n - i) * (Number(s[i + 1]) - Number(s[i]));
}
function Vr({ ctx: s, ink: t, found: e, y: n, width: i }) {
  for (const r of Object.values(e.draft ?? {})) {
    if (r === null || r === void 0) continue;
    s.save();
    s.strokeStyle = t.accent;
    s.lineWidth = 2;
    s.setLineDash([6, 4]);
    s.beginPath();
    s.moveTo(z, n(r));
    s.lineTo(i, n(r));
    s.stroke();
    s.restore();
  }
}
function Xr(s) {
  const t = s.length - 1;
  return (e) => {
    const n = s.findLastIndex((a) => a <= e);
    const i = Math.min(Math.max(n, 0), t - 1);
    const r = (e - s[i]) / (s[i + 1] - s[i]);
    return (F - Et) * (1 - (i + Math.min(Math.max(r, 0), 1)) / t);
  };
}
function Yr({ ctx: s, ink: t, found: e, x: n, width: i }) {
  const { steps: r, counts: a } = e;
  const l = (F - Et) / (e.edges.length - 1);
  s.fillStyle = t.accent;
  r.forEach((c, h) => {
    const d = Math.max(n(h ? (r[h - 1] + c) / 2 : c), z);
    const u = Math.min(n(h + 1 < r.length ? (c + r[h + 1]) / 2 : c + 1), i);
    const f = a[h].reduce((w, k) => w + k, 0);
    if (u <= d || !f) return;
    a[h].forEach((w, k) => {
      if (!w) return;
      s.globalAlpha = 0.12 + 0.88 * Math.sqrt(w / f);
      s.fillRect(d, F - Et - (k + 1) * l, u - d + 0.4, l - 0.5);
    });
  });
  s.globalAlpha = 1;
}
function Zr({ ctx: s, ink: t, found: e, x: n, y: i }) {
  s.strokeStyle = t.ink;
  s.lineWidth = 1.5;
  for (const r of [e.lower, e.upper]) {
    s.beginPath();
    r.forEach((a, l) => {
      if (a === null) return;
      const [c, h] = [n(e.steps[l]), n(e.steps[l + 1] ?? e.steps[l] + 1)];
      s.lineTo(Math.max(c, z), i(a));
      s.lineTo(Math.max(h, z), i(a));
    });
    s.stroke();
  }
}
function Qr(s) {
  const t = 10 ** Math.floor(Math.log10(Math.max(s, 1)));
  return t * [5, 2, 1].find((e) => e * t <= Math.max(s, 1));
}
function ta({ ctx: s, ink: t, found: e, x: n, y: i, width: r, from: a, to: l }) {
  const { edges: c } = e;
  s.clearRect(0, 0, z - 1, F);
  s.fillStyle = t.quiet;
  s.font = "11px system-ui, sans-serif";
  s.textAlign = "right";
  for (let d = 0; d <= Ye; d++) {
    const u = c[Math.round(d / Ye * (c.length - 1))];
    s.fillText(g(Number(u)), z - 6, Math.min(Math.max(i(u) + 4, 10), F - Et));
  }
  s.textAlign = "center";
  const h = Qr((l - a) / Ye);
  for (let d = Math.ceil(a / h) * h; d <= l; d += h) {
    s.fillText(p(d), Math.min(Math.max(n(d), z + 4), r - 14), F - 5);
  }
}

// src/heatmap.js
var ea = 350;
var sa = 1e4;
var na = 120;
var ke = class extends EventTarget {
  #t = null;
  #e = 0;
  #s = null;
  #n = 0;
  #i = null;
  #o = false;
  /** Dispatches "choosing" when another criterion is asked for and "chosen" when it has been read. */
  constructor(t, e) {
    super();
    this.course = t;
    this.choice = o("select", { "aria-label": "Criterion", hidden: true, onchange: () => this.#c() });
    this.now = o("span", { class: "strong" });
    this.against = o("span", { class: "quiet" });
    this.note = o("span", { class: "note" });
    this.canvas = o("canvas", { role: "img", "aria-label": "Sequences against the threshold, not read yet" });
    this.where = o("div", { class: "heat" }, this.canvas);
    const n = o(
      "figcaption",
      {},
      o("h2", {}, "Sequences against the threshold"),
      this.now,
      o("span", { class: "note" }, this.choice, " ", this.note),
      this.against
    );
    this.element = o("figure", { class: "card panel" }, n, this.where);
    this.canvas.addEventListener("click", (i) => this.#l(i, e));
    this.resized = new ResizeObserver(() => this.#u());
    this.resized.observe(this.where);
    t.addEventListener("view", () => this.#a());
    this.theme = () => this.#u();
    window.addEventListener("themechange", this.theme);
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", this.theme);
  }
  /** Read the new steps of a growing run, rate-limited. */
  follow() {
    if (Date.now() - this.#n > sa) this.read();
  }
  /** Read the displayed steps; if responses overtake each other, the newest request wins. */
  async read() {
    const t = ++this.#e;
    this.#n = Date.now();
    const [e, n] = this.course.view;
    const i = { from: e, to: n, points: na, attempt_id: this.course.attempt, ...this.#i };
    const r = await this.#r(i);
    if (!r || t !== this.#e) return;
    this.#t = { ...r, draft: this.#t?.draft };
    this.#o = false;
    this.#h();
    this.#u();
    this.dispatchEvent(new Event("chosen"));
  }
  /** Return the distribution, or null without an answer; a criterion that these steps do not have gives way to another. */
  async #r(t) {
    try {
      return await b(`${this.course.path}/distribution`, t);
    } catch (e) {
      if (e.status !== 400 || !this.#i) return null;
      this.#i = null;
      return this.#r({ ...t, statistic: null, pair: null, where: null });
    }
  }
  /** Show another criterion with the next read, given as { statistic, pair, where }. */
  choose(t) {
    this.#i = t;
  }
  /** Whether the steps of the chosen criterion have been read. */
  get isRead() {
    return this.#t !== null && !this.#o;
  }
  /** The criterion that is drawn, with its newest bounds and the edges of the bins; null without stored sequences or until they are read. */
  get shown() {
    if (!this.isRead || !this.#t.chosen) return null;
    const { chosen: t, edges: e, lower: n, upper: i } = this.#t;
    return { ...t, edges: e, lower: n.at(-1), upper: i.at(-1) };
  }
  /** Draw bounds that are being tried. */
  try(t) {
    if (!this.#t) return;
    this.#t.draft = t;
    this.#u();
  }
  end() {
    clearTimeout(this.#s);
    this.resized.disconnect();
    window.removeEventListener("themechange", this.theme);
    this.system.removeEventListener("change", this.theme);
  }
  #a() {
    this.#u();
    clearTimeout(this.#s);
    this.#s = setTimeout(() => this.read(), ea);
  }
  #c() {
    const { statistic: t, pair: e, where: n } = this.#t.criteria[this.choice.value];
    this.choose({ statistic: t, pair: e, where: n });
    this.#o = true;
    this.dispatchEvent(new Event("choosing"));
    this.read();
  }
  #h() {
    const { criteria: t, chosen: e, steps: n, counts: i } = this.#t;
    if (!e) return m(this.note, "no stored sequences in these steps");
    const r = ({ statistic: h, pair: d, where: u }) => [h, d, u].join();
    m(
      this.choice,
      t.map((h, d) => o("option", { value: d, selected: r(h) === r(e) }, h.statistic))
    );
    this.choice.hidden = t.length < 2;
    m(this.note, `${t.length < 2 ? `${e.statistic} ` : ""}${ia(this.#t)}`);
    const [a, l] = [this.#d(0), this.#d(n.length - 1)];
    m(this.now, `${v(l)} beyond`);
    m(this.against, `initially ${v(a)}`);
    const c = i.reduce((h, d) => h + d.reduce((u, f) => u + f, 0), 0);
    this.canvas.setAttribute(
      "aria-label",
      `${c} sequences of ${n.length} steps: ${v(a)} of the first step's lie beyond the bound, ${v(l)} of the last step's`
    );
  }
  /** Return the share of a step's sequences in bins beyond its bounds. */
  #d(t) {
    const { edges: e, counts: n, lower: i, upper: r, n_unknown: a } = this.#t;
    const l = n[t];
    const c = l.reduce((d, u) => d + u, 0) + a[t];
    const h = l.filter(
      (d, u) => r[t] !== null && e[u] >= r[t] || i[t] !== null && e[u + 1] <= i[t]
    );
    return c ? (h.reduce((d, u) => d + u, 0) + a[t]) / c : null;
  }
  #u() {
    if (this.#t?.chosen && this.where.clientWidth)
      Hn(this.canvas, this.#t, { view: this.course.view, width: this.where.clientWidth });
  }
  #l(t, e) {
    const { steps: n } = this.#t ?? { steps: [] };
    if (!n.length) return;
    const i = this.canvas.stepAt(t.offsetX);
    e(n.reduce((r, a) => Math.abs(a - i) < Math.abs(r - i) ? a : r));
  }
};
function ia({ lower: s, upper: t }) {
  const [e, n] = [s.at(-1), t.at(-1)];
  if (e === null) return `at most ${g(n)}`;
  return n === null ? `at least ${g(e)}` : `${g(e)} to ${g(n)}`;
}

// src/notes.js
var Un = 5;
function Fn(s, t, e) {
  const n = t.toReversed().map((r) => oa(r, e));
  const i = n.slice(Un);
  m(
    s,
    n.length > 0 && o("ul", {}, n.slice(0, Un)),
    i.length > 0 && o("details", {}, o("summary", { class: "quiet" }, y(i.length, "older note")), o("ul", {}, i))
  );
}
function oa(s, t) {
  const e = s.step !== null && o("button", { class: "link", onclick: () => t(s.step) }, `step ${p(s.step)}`);
  const n = o("span", { class: "quiet", title: L(s.at) }, `${s.author}, ${x(s.at)}`);
  return o("li", {}, e, o("span", { class: "text" }, s.text), n);
}

// src/proposals.js
var ra = {
  recommended: "from the target share of rejected sequences",
  bound_budget: "from the error bound and the reward gained so far"
};
function Kn(s) {
  return Object.entries(ra).map(([t, e]) => ({ ...s[t], source: e, isAutomatic: s.mode === "apply" && t === "recommended" })).filter(({ policy: t }) => t);
}
function Mt({ n_sequences: s, mask_rate_before: t, mask_rate_after: e, moves: n, basis: i }) {
  const r = n.filter(({ limit: l }) => l).map((l) => `${l.statistic} without limits: ${g(l.wanted)}; kept by the ${l.limit}`);
  const a = Object.entries(i).map(([l, c]) => `${l.replaceAll("_", " ")} ${g(c)}`);
  return [
    `Would reject ${v(e)} instead of ${v(t)} of the newest ${y(s, "sequence")}.`,
    ...[r, a].filter((l) => l.length).map((l) => `${P(l.join(", "))}.`)
  ];
}
function ve(s, t, { current: e, path: n }) {
  const i = [o("ul", {}, t.map((r) => o("li", {}, r))), Mt(s).map((r) => o("p", {}, r))];
  return I(
    `Put ${s.policy.name} in force`,
    i,
    "Put in force",
    () => T("PUT", `${n}/policy`, {
      policy: s.policy,
      pinned: e.pinned,
      reason: `proposed bounds, put in force on the page: ${s.reason}`.slice(0, 1e3),
      replaces: e.hash
    })
  );
}

// src/policyhistory.js
function Jn(s, { policies: t, adaptation: e }, { path: n, again: i }) {
  const r = Kn(e);
  const a = JSON.stringify([r, t.map(({ hash: f, created_at: w }) => [f, w])]);
  if (s.dataset.said === a) return;
  s.dataset.said = a;
  const l = t.map((f, w) => la(f, t[w - 1], { isCurrent: w === t.length - 1, path: n, again: i }));
  const c = r.map((f) => aa(f, { current: t.at(-1), path: n, again: i }));
  const h = [y(t.length, "version"), r.length > 0 && y(r.length, "proposal")];
  const d = o("summary", {}, `History: ${h.filter(Boolean).join(", ")}`);
  const u = o("ol", { class: "versions" }, c, l.reverse());
  q(s, o("details", { "data-name": "policyhistory" }, d, u));
}
function aa(s, { current: t, path: e, again: n }) {
  const i = Qe(s.policy, t);
  const r = async () => await ve(s, i, { current: t, path: e }) && n();
  return o(
    "li",
    { class: "proposal" },
    o("p", {}, o("span", { class: "strong" }, s.policy.name), " · adaptation", o("span", { class: "pill" }, "proposed")),
    o("p", { class: "quiet small" }, `Computed ${s.source}.`),
    o("ul", { class: "small" }, i.map((a) => o("li", {}, a))),
    Mt(s).map((a) => o("p", { class: "small" }, a)),
    s.isAutomatic ? o("p", { class: "quiet small" }, "The worker puts it in force by itself.") : o("p", {}, _("Put in force", r))
  );
}
function la(s, t, { isCurrent: e, path: n, again: i }) {
  const { name: r, author: a, reason: l, created_at: c, hash: h, pinned: d } = s;
  const u = () => I(
    `Roll back to ${r}`,
    [o("p", {}, `It becomes the newest version; ${Ze(s, t).join("; ") || "it was the first"}.`)],
    "Roll back",
    () => T("POST", `${n}/policy/rollback`, { hash: h })
  ).then((f) => f && i());
  return o(
    "li",
    {},
    o("p", {}, o("span", { class: "strong" }, r), ` · ${a}${d ? " · pinned" : ""}`, e && o("span", { class: "pill" }, "in force")),
    o("p", { class: "quiet small" }, L(c), l && `: ${l}`),
    t && o("ul", { class: "small" }, Ze(s, t).map((f) => o("li", {}, f))),
    !e && o("p", {}, _("Roll back to this", u))
  );
}
var Qe = (s, t) => Ze({ ...t, name: s.name, policy: s }, t);
function Ze(s, t) {
  if (!t) return [];
  const [e, n] = [t, s].map(({ policy: c }) => new Map(c.criteria.map((h) => [ca(h), h])));
  const i = [.../* @__PURE__ */ new Set([...e.keys(), ...n.keys()])];
  const r = i.flatMap((c) => ha(c, e.get(c), n.get(c)));
  const a = (c) => JSON.stringify(t.policy[c] ?? []) === JSON.stringify(s.policy[c] ?? []);
  const l = [t, s].map(({ shadows: c }) => c.map(({ name: h }) => h).join(", ") || "none");
  return [
    ...t.name === s.name ? [] : [`${t.name} → ${s.name}`],
    ...r,
    ...a("tokens") ? [] : ["token rules changed"],
    ...a("turns") ? [] : ["turn criteria changed"],
    ...l[0] === l[1] ? [] : [`shadows: ${l[0]} → ${l[1]}`]
  ];
}
var ca = ({ statistic: s, pair: t, where: e }) => `${s}, ${t} pair${e ? `, ${e}` : ""}`;
function ha(s, t, e) {
  if (!t) return [`${s}: added`];
  if (!e) return [`${s}: removed`];
  return ["lower", "upper"].filter((n) => (t[n] ?? null) !== (e[n] ?? null)).map((n) => `${n} bound of ${s}: ${Gn(t[n])} → ${Gn(e[n])}`);
}
var Gn = (s) => s === null || s === void 0 ? "none" : g(s);

// src/policies.js
var ts = 20;
var Vn = "mask_rate:";
var da = "Its bounds are ceilings until the run's own mismatch has been measured.";
var ua = ["uncalibrated", "starts_ill"];
async function Xn(s, { policies: t, adaptation: e }, { course: n, path: i, again: r }) {
  const a = t.at(-1);
  const l = ["mask_rate", ...a.shadows.map((M) => Vn + M.name)];
  const { rates: c, n: h } = await ma(l, { course: n, path: i });
  const d = ua.includes(a.calibration) ? "decides, uncalibrated" : "decides";
  const u = l.map(
    (M, N) => ga(N ? M.slice(Vn.length) : a.name, N ? "shadow" : d, c[N])
  );
  const f = o("span", { class: "note" }, `mean of the last ${y(h, "step")}`);
  const w = o("figcaption", {}, o("h2", {}, "What each policy masks"), f);
  const k = [pa(s, e, { current: a, path: i, again: r }), fa(t, n)];
  m(s, w, o("div", { class: "bars" }, u), k);
}
function pa(s, t, e) {
  const n = JSON.stringify([t, e.current.hash]);
  if (s.advised?.said !== n) s.advised = { said: n, element: wa(t, e) };
  return s.advised.element;
}
async function ma(s, { course: t, path: e }) {
  const n = Math.max(0, Math.floor(t.extent[1] - (ts - 1) * t.stride));
  const i = { names: s.join(","), from: n, statistics: "mean", digits: 5, attempt_id: t.attempt };
  const { signals: r, step: a } = await b(`${e}/signals`, i);
  const l = s.map((c) => ya(r[c].mean.slice(-ts)));
  return { rates: l, n: Math.min(a.length, ts) };
}
function fa(s, t) {
  const { name: e, author: n, reason: i, calibration: r } = s.at(-1);
  const a = s.length > 1 ? `step ${p(t.stepOf(s.at(-1)))}` : "the start";
  const l = o("p", { class: "quiet small" }, `${e} since ${a}, by ${n}${i ? `: ${i}` : ""}`);
  return r === "uncalibrated" ? [l, o("p", { class: "quiet small" }, da)] : l;
}
function ga(s, t, e) {
  const n = o("span", { class: "filled" });
  n.style.width = `${100 * (e ?? 0)}%`;
  return o(
    "div",
    { class: "bar" },
    o("span", { class: "name" }, s, o("span", { class: "quiet" }, ` · ${t}`)),
    o("span", { class: "track" }, n),
    o("span", { class: "number" }, v(e))
  );
}
function wa({ mode: s, recommended: t }, { current: e, path: n, again: i }) {
  if (s === "off" || !t || s === "apply" && t.policy) return null;
  if (!t.policy) return o("p", { class: "small" }, `Bounds unchanged: ${t.reason}`);
  const r = Qe(t.policy, e);
  const a = async () => await ve(t, r, { current: e, path: n }) && i();
  const [l] = Mt(t);
  const c = t.moves.map((h) => `${h.statistic} ${h.side} ${g(h.before)} → ${g(h.after)}`);
  return o(
    "div",
    { class: "stack small" },
    o("p", {}, `Adaptation proposes ${c.join(", ")}. ${l}`),
    o("p", {}, _("Apply these bounds", a))
  );
}
function ya(s) {
  const t = s.filter((e) => typeof e === "number");
  return t.length ? t.reduce((e, n) => e + n, 0) / t.length : null;
}

// src/rangebar.js
var ba = [1e3, 200];
var $e = class {
  constructor(t, e) {
    Object.assign(this, { course: t, open: e });
    this.words = o("span", { class: "quiet" });
    this.field = o("input", { type: "number", min: 0, "aria-label": "Step", placeholder: "step" });
    this.all = o("button", { onclick: () => t.show() }, "All steps");
    this.newest = ba.map(
      (c) => o("button", { onclick: () => this.#t(c), "data-steps": c }, `Last ${p(c)}`)
    );
    const n = o("button", { "aria-label": "Closer", onclick: () => t.zoom(0.5) }, "+");
    const i = o("button", { "aria-label": "Wider", onclick: () => t.zoom(2) }, "−");
    this.axes = [false, true].map(
      (c) => o("button", { onclick: () => t.drawBy(c) }, c ? "Time" : "Steps")
    );
    const r = o("span", { class: "row joined", role: "group", "aria-label": "Horizontal axis" }, this.axes);
    const a = o(
      "form",
      { class: "row", onsubmit: (c) => this.#e(c) },
      this.field,
      o("button", {}, "Open step")
    );
    const l = [this.all, this.newest, n, i, r, this.words, a];
    this.element = o("div", { class: "row rangebar", role: "toolbar", "aria-label": "Steps" }, l);
    t.addEventListener("view", () => this.draw());
    t.addEventListener("series", () => this.draw());
    t.addEventListener("axis", () => this.draw());
  }
  draw() {
    const { view: t, extent: e, chosen: n } = this.course;
    this.words.textContent = `steps ${p(t[0])} to ${p(t[1])}`;
    this.all.setAttribute("aria-pressed", String(t[0] <= e[0] && t[1] >= e[1]));
    this.axes.forEach((i, r) => i.setAttribute("aria-pressed", String(this.course.byTime === Boolean(r))));
    for (const i of this.newest) i.hidden = e[1] - e[0] <= Number(i.dataset.steps);
    if (document.activeElement !== this.field) this.field.value = n ?? "";
  }
  #t(t) {
    const e = this.course.extent[1];
    this.course.show(e - t, e);
  }
  #e(t) {
    t.preventDefault();
    this.open(this.field.value === "" ? null : Number(this.field.value));
  }
};

// src/runhead.js
function Yn(s, { run: t, judged: e, attempts: n }, i) {
  const r = n.find(({ id: h }) => h === i) ?? n.at(-1);
  const a = [n.length > 1 && `attempt ${r.ordinal}`, t.mode, t.state].filter(Boolean);
  const l = e.expected_step_seconds;
  const c = [
    t.project,
    t.last_step === null ? "no step yet" : `step ${p(t.last_step)}`,
    l && `${B(l)} a step`,
    r && y(r.world_size, "rank"),
    t.owner && `owner ${t.owner}`,
    t.last_report_at && `last report ${x(t.last_report_at)}`,
    t.tags.length > 0 && `tags ${t.tags.join(", ")}`
  ];
  q(
    s,
    o(
      "div",
      { class: "row" },
      o("h1", {}, t.run),
      a.map((h) => o("span", { class: "pill" }, h)),
      n.length > 1 && ka(n, r),
      o("a", { class: "button", href: Ut([t]), title: "with a sound run of this project" }, "Compare"),
      _("Share report", () => _a(t), { title: "one HTML file: verdict, course, episodes; no configuration" })
    ),
    o("p", { class: "quiet", title: `first report ${L(t.created_at)}` }, c.filter(Boolean).join(" · ")),
    va(t),
    t.warnings.map(({ text: h }) => o("p", { class: "misuse" }, h)),
    $a(t.config)
  );
}
function ka(s, t) {
  const e = s.map(
    (i) => o("option", { value: i.id, selected: i.id === t.id }, `attempt ${i.ordinal}, ${L(i.started_at)}`)
  );
  const n = (i) => location.assign(`${location.pathname}?attempt=${i.target.value}`);
  return o("select", { "aria-label": "Attempt", onchange: n }, e);
}
function va({ end: s, end_phrase: t }) {
  if (!t) return null;
  const e = s?.traceback;
  return [
    o("p", { class: "ending" }, s ? `${t}, ${x(s.at)}` : t),
    e && o("details", {}, o("summary", { class: "quiet" }, "innermost frames"), o("pre", { class: "config" }, e))
  ];
}
function $a(s) {
  const t = Object.entries(s);
  if (!t.length) return null;
  const e = t.map(([n, i]) => `${n} = ${JSON.stringify(i)}`).join("\n");
  return o(
    "details",
    {},
    o("summary", { class: "quiet" }, `configuration, ${y(t.length, "entry", "entries")}`),
    o("pre", { class: "config" }, e)
  );
}
async function _a({ project: s, run: t }) {
  _t(await ys(`${C(s, t)}/report.html`), `${s}-${t}.html`);
}

// src/scatter.js
var Tt = 420;
var K = 260;
var it = 52;
var Lt = 36;
function Zn({ columns: s, decisions: t }, e) {
  const n = t.find((r) => r.role === "active")?.accepted;
  if (!e || !n) return null;
  const i = e.values.map((r, a) => ({ value: r, length: s.n_tokens[a], accepted: n[a] })).filter(({ value: r }) => typeof r === "number");
  return i.length ? o("div", {}, xa(i, e), Ma()) : null;
}
function xa(s, t) {
  const e = [t.lower, t.upper].filter((w) => w !== null);
  const n = s.map(({ value: w }) => w);
  const i = s.map(({ length: w }) => w);
  const r = Ta([...n, ...e]);
  const a = es(i, [it + 8, Tt - 10]);
  const l = s.map((w) => Sa(w, { x: a, y: r }));
  const c = (w) => `${w === t.upper ? "at most" : "at least"} ${g(w)}`;
  const h = e.map((w) => Ea(r.at(w), c(w)));
  const d = s.filter((w) => !w.accepted).length;
  const u = `${t.statistic} against length of ${s.length} sequences, ${d} of them rejected`;
  const f = { viewBox: `0 0 ${Tt} ${K}`, role: "img", "aria-label": u, class: "scatter" };
  return $("svg", f, h, l, La(a, r), Oa(t));
}
var Sa = ({ length: s, value: t, accepted: e }, { x: n, y: i }) => $("circle", { cx: n.at(s), cy: i.at(t), r: 3, class: e ? "in" : "out" });
var Ea = (s, t) => [
  $("line", { x1: it, x2: Tt, y1: s, y2: s, class: "bound" }),
  $("text", { x: it + 6, y: s - 5, class: "limit" }, t)
];
function Ma() {
  const s = ["in", "out"].map((t) => o("span", { class: `dot ${t}` }));
  return o("p", { class: "quiet small" }, s[0], "accepted ", s[1], "rejected");
}
function es(s, [t, e]) {
  const [n, i] = [Math.min(...s), Math.max(...s)];
  const r = (a) => i > n ? t + (a - n) / (i - n) * (e - t) : (t + e) / 2;
  return { least: n, most: i, at: r };
}
function Ta(s) {
  const t = s.filter((r) => r > 0);
  const e = Math.min(...t);
  const n = Math.min(...s) >= 0 && t.length > 0 && Math.max(...s) > 30 * e;
  if (!n) return es(s, [K - Lt - 4, 10]);
  const i = es(t.map(Math.log), [K - Lt - 4, 10]);
  return { least: e, most: Math.exp(i.most), at: (r) => i.at(Math.log(Math.max(r, e))) };
}
function La(s, t) {
  const e = (n, i) => $("text", i, n);
  return [
    e(g(t.most), { x: it - 6, y: t.at(t.most) + 4, "text-anchor": "end" }),
    e(g(t.least), { x: it - 6, y: t.at(t.least) + 4, "text-anchor": "end" }),
    e(p(s.least), { x: s.at(s.least), y: K - 20, "text-anchor": "middle" }),
    s.most > s.least ? e(p(s.most), { x: s.at(s.most), y: K - 20, "text-anchor": "end" }) : null,
    $("path", { d: `M${it} 6V${K - Lt}H${Tt}`, class: "axis" })
  ].filter(Boolean);
}
var Oa = (s) => [
  $("text", { x: (it + Tt) / 2, y: K - 4, "text-anchor": "middle" }, "tokens"),
  $(
    "text",
    { x: 12, y: (K - Lt) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(K - Lt) / 2})` },
    s.statistic
  )
];

// src/sequencetable.js
function Qn(s, t, e) {
  return new ss(s, t, e).element;
}
var ss = class {
  constructor(t, e, n) {
    this.columns = ja(t, e, n);
    this.order = t.columns.n_tokens.map((i, r) => r);
    this.body = o("tbody", {});
    this.heads = this.columns.map((i, r) => this.#t(i, r));
    this.element = o("table", {}, o("thead", {}, o("tr", {}, this.heads)), this.body);
    this.#e(
      Math.max(
        this.columns.findIndex((i) => i.isFirst),
        0
      )
    );
  }
  #t({ name: t }, e) {
    const n = o("button", { class: "plain", onclick: () => this.#e(e) }, t);
    return o("th", { scope: "col", "aria-sort": "none" }, n);
  }
  /** Sort descending; the same column again reverses the order. */
  #e(t) {
    const e = this.heads[t];
    const n = e.getAttribute("aria-sort") !== "descending";
    for (const r of this.heads) r.setAttribute("aria-sort", "none");
    e.setAttribute("aria-sort", n ? "descending" : "ascending");
    const { value: i } = this.columns[t];
    this.order.sort((r, a) => (n ? -1 : 1) * Pa(i(r), i(a)) || r - a);
    m(
      this.body,
      this.order.map((r) => this.#s(r))
    );
  }
  #s(t) {
    const e = this.columns.map(
      ({ cell: n, value: i, isNumber: r }) => o("td", { class: r ? "number" : "" }, n ? n(t) : g(i(t)))
    );
    return o("tr", {}, e);
  }
};
function ja({ columns: s, decisions: t, first: e, turn_counts: n }, i, r) {
  const a = (h, d) => d && { name: h, isNumber: true, value: (u) => d[u] };
  const l = (h, d) => ({ name: h, isNumber: true, value: d, cell: (u) => p(d(u)) });
  const c = [
    l("place", (h) => e + h),
    l("tokens", (h) => s.n_tokens[h]),
    n && qa(n, e, r),
    a("reward", s.reward),
    a("advantage", s.advantage),
    i && { ...a(i.statistic, i.values), isFirst: true },
    s.argmax_abs_d && Ra(s),
    ...t.map(Aa)
  ];
  return c.filter(Boolean);
}
var Aa = (s) => ({
  name: s.policy,
  value: (t) => s.reasons[t] ?? "",
  cell: (t) => o("span", { class: s.accepted[t] ? "quiet" : "" }, Na(s, t))
});
var Na = (s, t) => s.accepted[t] ? "accepted" : `✕ ${s.reasons[t] ?? "rejected"}`;
var qa = ({ n_turns: s, n_rejected: t }, e, n) => ({
  name: "turns",
  isNumber: true,
  value: (i) => s[i],
  cell: (i) => {
    const r = `Turns of sequence ${p(e + i)}`;
    const a = t?.[i] ? `, ✕ ${p(t[i])}` : "";
    const l = () => n(e + i);
    return o("button", { class: "plain", "aria-label": r, onclick: l }, `${p(s[i])}${a}`);
  }
});
var Ra = ({ argmax_abs_d: s, n_tokens: t }) => ({
  name: "worst token",
  value: (e) => s[e],
  cell: (e) => Ca(s[e], t[e])
});
function Ca(s, t) {
  if (s < 0) return o("span", { class: "quiet" }, "–");
  const e = o("span", { class: "mark" });
  e.style.left = `${t > 1 ? 100 * s / (t - 1) : 0}%`;
  const n = o("span", { class: "track" }, e);
  return o(
    "span",
    { class: "position", title: `token ${s} of ${t}` },
    n,
    o("span", { class: "number" }, p(s))
  );
}
function Pa(s, t) {
  const [e, n] = [s, t].map((i) => i === null ? -Infinity : i === "inf" ? Infinity : i);
  return e < n ? -1 : e > n ? 1 : 0;
}

// src/turntable.js
function ti(s, { place: t, pair: e, onClose: n }) {
  const i = `Turns of sequence ${p(t)}`;
  const r = Ia(s, e);
  const a = s.columns.n_tokens.map(
    (c, h) => o(
      "tr",
      {},
      r.map(({ cell: d, isNumber: u }) => o("td", { class: u ? "number" : "" }, d(h)))
    )
  );
  const l = r.map(({ name: c }) => o("th", { scope: "col" }, c));
  return o(
    "section",
    { class: "turns", "aria-label": i },
    o("h3", {}, i),
    o("button", { class: "plain", "aria-label": "Close the turns", onclick: n }, "✕"),
    o("table", {}, o("thead", {}, o("tr", {}, l)), o("tbody", {}, a))
  );
}
function Ia({ columns: s, accepted: t, reasons: e, criteria: n }, i) {
  const r = (h, d) => ({ name: h, isNumber: true, cell: (u) => p(d[u]) });
  const a = (h, d) => ({ name: h, isNumber: true, cell: (u) => g(d(u)) });
  const l = (h) => s[`${i}_${h}`];
  const c = n.length ? n.map(({ statistic: h, values: d }) => a(h, (u) => d[u])) : [
    l("max_abs_d") && a("max |d|", (h) => l("max_abs_d")[h]),
    l("sum_k3") && a("mean k3", (h) => l("sum_k3")[h] / s.n_tokens[h])
  ];
  return [
    { name: "turn", isNumber: true, cell: (h) => p(h) },
    r("tokens", s.n_tokens),
    ...c,
    t && { name: "decision", cell: (h) => Da(t[h], e[h]) }
  ].filter(Boolean);
}
function Da(s, t) {
  if (t === "empty") return o("span", { class: "quiet" }, "empty");
  return o("span", { class: s ? "quiet" : "" }, s ? "accepted" : `✕ ${t}`);
}

// src/steppanel.js
var Ba = "n_tokens,argmax_abs_d,reward,advantage,version_min";
var ns = 500;
var za = 8;
var Wa = { true: "", false: ", incomplete", null: ", completeness unknown" };
var _e = class {
  element = o("section", { class: "card panel step", "aria-label": "Step", hidden: true });
  #t = 0;
  constructor(t, e) {
    Object.assign(this, { path: t, open: e });
  }
  /** Show a step, or close the panel with null. */
  async show(t, e) {
    const n = ++this.#t;
    this.element.hidden = t === null;
    if (t === null) return;
    if (!this.element.childElementCount) m(this.element, this.#i(`Step ${p(t)}`, ""), he(za));
    const i = `${this.path}/batches/${t}`;
    try {
      const r = { attempt_id: e };
      const a = await b(i, r);
      const [l, c] = await Promise.all([
        b(`${i}/decisions`, r),
        // If the sequences were pruned or damaged, show what is known about the batch itself.
        b(`${i}/sequences`, { ...r, names: Ba, limit: ns }).catch((h) => h)
      ]);
      if (n === this.#t) this.#e(a, l, c);
    } catch (r) {
      if (n === this.#t)
        m(this.element, this.#i(`Step ${p(t)}`, ""), o("p", { class: "quiet" }, r.message));
    }
  }
  #e(t, e, n) {
    const i = t.update === null ? "rollout" : `update ${t.update}`;
    const r = Wa[String(t.complete)];
    const a = `${i}, ${y(t.n_sequences, "sequence")}, ${y(t.n_tokens, "token")}, ${y(t.n_ranks, "rank")}${r}`;
    const l = e.map(
      (c) => o(
        "span",
        { class: "pill" },
        `${c.policy}${c.role === "active" ? " decides" : ""} · masks ${v(c.mask_rate)}`
      )
    );
    m(
      this.element,
      this.#i(`Step ${p(t.step)}`, a),
      o("div", { class: "row" }, l),
      Ha(t.quarantined),
      ...n instanceof Error ? [o("p", { class: "quiet" }, n.message)] : this.#s(t, n)
    );
  }
  /** Render the sequences as a table and as a plot, and below them the turns that are asked for. */
  #s(t, e) {
    const n = e.n_sequences > ns && o("p", { class: "quiet" }, `the first ${ns} of them`);
    const i = o("div", { class: "scroll sequences" });
    const r = Ua(e);
    const a = o("div", { "aria-live": "polite" });
    const l = (c) => this.#n(a, t, c);
    m(i, Qn(e, r, l));
    return [n, o("div", { class: "stepbody" }, i, Zn(e, r)), a];
  }
  async #n(t, e, n) {
    const i = { attempt_id: e.attempt_id, update: e.update };
    const r = { names: "n_tokens", first: n, limit: 1, turns: true };
    try {
      const { turns: a } = await b(`${this.path}/batches/${e.step}/sequences`, { ...i, ...r });
      const l = () => m(t);
      m(t, ti(a[0], { place: n, pair: e.primary_pair, onClose: l }));
    } catch (a) {
      m(t, o("p", { class: "quiet" }, a.message));
    }
  }
  #i(t, e) {
    const n = o("button", { class: "plain", "aria-label": "Close the step", onclick: () => this.open(null) }, "✕");
    return o("figcaption", {}, o("h2", {}, t), n, o("span", { class: "note" }, e));
  }
};
function Ha(s) {
  const t = s.map(({ part: e, place: n, reason: i }) => o("li", {}, `${e}, ${n}: ${i}`));
  return t.length > 0 && o("ul", { class: "setaside", "aria-label": "Quarantined" }, t);
}
function Ua({ criteria: s, decisions: t }) {
  const e = t.find((i) => i.role === "active")?.reasons ?? [];
  const n = (i) => e.filter((r) => r === i.statistic).length;
  return [...s].sort((i, r) => n(r) - n(i))[0] ?? null;
}

// src/draftaddress.js
var ei = ["lower", "upper"];
function si() {
  const s = new URLSearchParams(location.search);
  const [t, e, n = null] = (s.get("try") ?? "").split(",");
  const i = Object.fromEntries(ei.map((a) => [a, s.has(a) ? Number(s.get(a) || NaN) : null]));
  const r = t && e && Object.values(i).every((a) => a === null || Number.isFinite(a));
  return r ? { criterion: { statistic: t, pair: e, where: n }, bounds: i } : null;
}
function is(s, t) {
  if (!s) return W({ try: null, lower: null, upper: null }, t);
  const { criterion: e, bounds: n } = s;
  const i = [e.statistic, e.pair, e.where].filter(Boolean).join(",");
  W({ try: i, ...Object.fromEntries(ei.map((r) => [r, n[r] ?? null])) }, t);
}

// src/thresholdeditor.js
var Fa = 250;
var xe = 400;
var Ka = 10;
var Ga = 1e3;
var Se = class {
  #t = null;
  #e = {};
  #s = 0;
  #n = null;
  #i = null;
  /** `again` reads the run's facts anew after a change. */
  constructor(t, e, { path: n, again: i }) {
    Object.assign(this, { heat: t, course: e, path: n, again: i });
    this.sliders = Object.fromEntries(["lower", "upper"].map((l) => [l, Ya(l, (c) => this.#u(l, c))]));
    this.effect = o("div", { class: "stack", role: "status" });
    this.problem = o("p", { class: "strong", role: "alert" });
    const r = o("button", { type: "button", onclick: () => this.#d() }, "Back to today's");
    const a = [
      _("Save as shadow", () => this.#f(), { title: "evaluated beside the policy, masks nothing" }),
      _("Put in force", () => this.#g()),
      r
    ];
    this.body = o("div", { class: "stack" }, this.problem, Object.values(this.sliders).map(({ element: l }) => l), this.effect, o("div", { class: "row" }, a));
    this.element = o(
      "details",
      { class: "editor", ontoggle: () => this.#o() },
      o("summary", {}, "Try other bounds"),
      this.body
    );
    this.#r();
    t.addEventListener("choosing", () => this.#r());
    t.addEventListener("chosen", () => this.element.open && this.#a());
    this.#i = si();
    if (this.#i) {
      t.choose(this.#i.criterion);
      this.element.open = true;
    }
    this.#y(t.canvas);
  }
  end() {
    clearTimeout(this.#n);
  }
  #o() {
    if (this.element.open) return this.#a();
    this.heat.try(null);
    is(null, this.path);
  }
  /** Take no bounds until those of the chosen criterion are known: they would be bounds of the former one. */
  #r() {
    clearTimeout(this.#n);
    for (const t of Object.values(this.sliders)) t.enable(false);
  }
  /** Take the policy in force and the criterion that the heat map shows; a draft of the same criterion stays. */
  async #a() {
    const { shown: t } = this.heat;
    if (!t && !this.heat.isRead) return;
    if (!t) return m(this.effect, o("p", {}, "No stored sequences in these steps."));
    const e = this.criterion && Z(this.criterion) === Z(t);
    this.criterion = t;
    if (!e) {
      this.#e = this.#c(t) ?? { lower: t.lower, upper: t.upper };
      this.#t = await b(`${this.path}/policy`);
    }
    for (const [n, i] of Object.entries(this.sliders)) {
      i.range(t.edges, this.#e[n]);
      i.enable(true);
    }
    this.heat.try(this.#e);
    this.#h();
    this.#l();
  }
  /** Return the bounds that the address had when the page was opened, once, if they are of this criterion. */
  #c(t) {
    const e = this.#i;
    this.#i = null;
    const n = e && Z(e.criterion) === Z(t);
    const i = e && `${e.criterion.statistic} (${e.criterion.pair})`;
    this.problem.textContent = e && !n ? `The address tries ${i}, which no policy of these steps bounds.` : "";
    return n ? e.bounds : null;
  }
  /** Keep a draft that differs from the policy's bounds in the address. */
  #h() {
    const t = ["lower", "upper"].some((e) => (this.#e[e] ?? null) !== (this.criterion[e] ?? null));
    is(t ? { criterion: this.criterion, bounds: this.#e } : null, this.path);
  }
  #d() {
    this.criterion = null;
    this.#a();
  }
  #u(t, e) {
    this.#e = { ...this.#e, [t]: e };
    this.sliders[t].show(e);
    this.heat.try(this.#e);
    this.#h();
    this.#l();
  }
  #l() {
    clearTimeout(this.#n);
    this.#n = setTimeout(() => this.#p(), Fa);
  }
  /** Ask what the draft would have rejected of the displayed steps; the newest answer wins. */
  async #p() {
    const t = ++this.#s;
    const [e, n] = this.course.view;
    const i = { policy: this.#m(), from_step: e, to_step: n, max_steps: Ga };
    try {
      const r = await T("POST", `${this.path}/whatif`, i);
      if (t === this.#s) m(this.effect, Va(r));
    } catch (r) {
      if (t === this.#s) m(this.effect, o("p", { class: "strong" }, r.message));
    }
  }
  /** Return the policy in force with the draft's bounds. */
  #m() {
    const { policy: t } = this.#t;
    const { statistic: e, pair: n, where: i } = this.criterion;
    const r = Object.fromEntries(Object.entries(this.#e).filter(([, u]) => u !== null && u !== void 0));
    const a = { statistic: e, pair: n, ...i ? { where: i } : {}, ...r };
    const l = t.criteria.some((u) => Z(u) === Z(a));
    const c = t.criteria.map((u) => Z(u) === Z(a) ? { ...Ja(u), ...a } : u);
    const { calibrate: h, ...d } = t;
    return { ...d, name: `${t.name.replace(/_by_hand$/, "")}_by_hand`, criteria: l ? c : [...c, a] };
  }
  async #f() {
    const t = await b(`${this.path}/policy`);
    const e = this.#m();
    const n = [...t.shadows.filter(({ name: i }) => i !== e.name), e];
    await this.#w({ policy: t.policy, shadows: n, pinned: t.pinned, reason: "shadow tried on the page" }, t);
  }
  async #g() {
    const t = await b(`${this.path}/policy`);
    if (t.hash !== this.#t.hash)
      throw new Error(`The policy is ${t.name} by ${t.author} by now: press Back to today's and try again.`);
    const { statistic: e, lower: n, upper: i } = this.criterion;
    const r = os({ lower: n, upper: i });
    const a = [
      o("p", {}, `${e}: ${r} → ${os(this.#e)}`),
      o("div", {}, [...this.effect.childNodes].map((c) => c.cloneNode(true)))
    ];
    const l = await I(
      "Put these bounds in force",
      a,
      "Put in force",
      () => this.#w({ policy: this.#m(), pinned: t.pinned, reason: `${e} ${os(this.#e)}, set on the page` }, t)
    );
    if (l) this.#d();
  }
  async #w(t, e) {
    await T("PUT", `${this.path}/policy`, { ...t, replaces: e.hash });
    await this.again();
  }
  /** Move a bound by dragging it on the heat map. */
  #y(t) {
    let e = null;
    let n = false;
    const i = (r) => ["upper", "lower"].find((a) => {
      const l = this.#e[a];
      return l !== null && l !== void 0 && Math.abs(t.heightOf?.(l) - r.offsetY) <= Ka;
    });
    t.addEventListener("pointerdown", (r) => {
      e = this.element.open ? i(r) : null;
      n = e !== void 0 && e !== null;
      if (!e) return;
      t.setPointerCapture(r.pointerId);
      r.preventDefault();
    });
    t.addEventListener("pointermove", (r) => {
      t.style.cursor = this.element.open && i(r) ? "ns-resize" : "";
      if (e) this.#u(e, rs(t.valueAt(r.offsetY)));
    });
    t.addEventListener("pointerup", () => e = null);
    t.parentElement.addEventListener("click", (r) => n && r.stopPropagation(), { capture: true });
  }
};
var Z = ({ statistic: s, pair: t, where: e }) => [s, t, e ?? ""].join();
var Ja = ({ lower: s, upper: t, ...e }) => e;
var rs = (s) => Number(s.toPrecision(3));
function os({ lower: s, upper: t }) {
  const e = [
    Ot(s) && `at least ${g(s)}`,
    Ot(t) && `at most ${g(t)}`
  ];
  return e.filter(Boolean).join(", ") || "no bound";
}
var Ot = (s) => s !== null && s !== void 0;
function Va({ total: s, then: t, reasons: e, by_length: n, range: i, weights: r }) {
  const a = y(s.n_sequences, "sequence");
  const l = `of ${a} in ${y(i.n_steps, "step")}`;
  const c = Object.entries(e).sort(([, d], [, u]) => u - d).map(([d, u]) => `${d} ${p(u)}`);
  const h = n.map(({ shortest: d, longest: u, mask_rate: f }) => `${p(d)}–${p(u)}: ${v(f)}`);
  return [
    o("p", {}, o("span", { class: "strong" }, r ? Xa(r) : `Would reject ${v(s.mask_rate)}`), ` ${l}; was ${v(t.mask_rate)}.`),
    r && o("p", { class: "quiet" }, `A soft policy: ${v(s.mask_rate)} are beyond the bounds and keep a weight.`),
    c.length > 0 && o("p", { class: "quiet" }, `Reasons: ${c.join(", ")}.`),
    h.length > 0 && o("p", { class: "quiet" }, `By length in tokens: ${h.join("; ")}.`),
    i.n_steps_without_reports > 0 && o("p", { class: "quiet" }, `${y(i.n_steps_without_reports, "step")} without stored sequences.`)
  ];
}
var Xa = ({ mean: s, effective_share: t }) => `Mean weight ${v(s)}, effective share ${v(t)}`;
function Ya(s, t) {
  const e = s === "upper" ? "Upper bound" : "Lower bound";
  const n = o("input", { type: "range", min: 0, max: xe, "aria-label": e });
  const i = o("input", { type: "number", step: "any", "aria-label": `${e}, number`, placeholder: "none" });
  let r = [0, 1];
  const a = (h) => {
    const d = h / xe * (r.length - 1);
    const u = Math.min(Math.floor(d), r.length - 2);
    return rs(Number(r[u]) + (d - u) * (Number(r[u + 1]) - Number(r[u])));
  };
  const l = (h) => {
    const d = Math.min(Math.max(r.findLastIndex((f) => Number(f) <= h), 0), r.length - 2);
    const u = (h - Number(r[d])) / (Number(r[d + 1]) - Number(r[d]) || 1);
    return Math.round((d + Math.min(Math.max(u, 0), 1)) / (r.length - 1) * xe);
  };
  n.addEventListener("input", () => t(a(Number(n.value))));
  i.addEventListener("input", () => t(i.value === "" ? null : Number(i.value)));
  const c = (h) => {
    if (document.activeElement !== i) i.value = Ot(h) ? String(rs(h)) : "";
    n.value = String(Ot(h) ? l(h) : s === "upper" ? xe : 0);
    n.setAttribute("aria-valuetext", Ot(h) ? g(h) : "none");
  };
  return {
    element: o("div", { class: "row bound" }, o("span", { class: "quiet" }, e), n, i),
    range: (h, d) => {
      r = h;
      c(d);
    },
    show: c,
    enable: (h) => {
      n.disabled = i.disabled = !h;
    }
  };
}

// src/run.js
var Za = 1500;
var Qa = 8;
async function ni(s, { live: t, parameters: [e, n] }) {
  const i = new as(s, e, n);
  s.title(n);
  const r = i.begin();
  const a = ({ data: h }) => h.project === e && h.run === n;
  const l = ht(t, { concerns: a, read: () => i.follow(), fail: s.fail, refreshMs: Za, after: r });
  document.addEventListener("keydown", i.keys);
  const c = () => {
    l();
    document.removeEventListener("keydown", i.keys);
    i.end();
  };
  try {
    await r;
  } catch (h) {
    c();
    throw h;
  }
  return c;
}
function tl(s) {
  if (!(s instanceof O)) throw s;
}
var as = class {
  constructor(t, e, n) {
    Object.assign(this, { stage: t, project: e, run: n, path: C(e, n), given: ue() });
    this.course = new fe(this.path, this.given);
    this.head = o("header", {});
    this.notes = o("section", { class: "notes", "aria-label": "Notes" });
    this.again = async () => this.#s(await this.#t());
    const { again: i } = this;
    this.why = new ye(this.course, { open: (r) => this.open(r), again: i });
    this.budget = new ae(this.path);
    this.policies = o("section", { class: "card panel", "aria-label": "Policies" });
    this.charts = new de(this.course, (r) => this.open(r));
    this.heat = new ke(this.course, (r) => this.open(r));
    this.editor = new Se(this.heat, this.course, { path: this.path, again: i });
    this.heat.element.append(this.editor.element);
    this.versions = o("div", { class: "history" });
    this.panel = new _e(this.path, (r) => this.open(r));
    this.events = new be(this.course, (r) => this.open(r));
    this.bar = new $e(this.course, (r) => this.open(r));
    this.keys = (r) => this.#n(r);
  }
  async begin() {
    const [t] = await Promise.all([this.#t(), this.course.learn()]);
    this.charts.takeRoom();
    m(this.policies, he(Qa));
    this.stage.show(
      this.head,
      this.notes,
      this.why.announcement,
      this.why.element,
      this.bar.element,
      this.events.element,
      this.charts.element,
      o("div", { class: "lower" }, this.heat.element, o("div", { class: "stack" }, this.policies, this.versions)),
      this.budget.element,
      this.panel.element
    );
    this.#e(t);
    await Promise.all([this.course.begin(), us()]);
    this.#s(t);
    await this.charts.begin();
    this.heat.read();
    if (this.given.step !== null) this.open(this.given.step, { scroll: false });
  }
  /** Read what is new. */
  async follow() {
    const [t] = await Promise.all([this.#t(), this.course.follow()]);
    this.#s(t);
    this.bar.draw();
    this.heat.follow();
    this.budget.follow();
  }
  /** Open a step's sequences, or close the panel with null. */
  async open(t, { scroll: e = true } = {}) {
    W({ step: t }, this.path);
    this.given.step = t;
    this.course.chosen = t;
    this.charts.redraw();
    this.bar.draw();
    await this.panel.show(t, this.given.attempt);
    if (e && t !== null) this.panel.element.scrollIntoView({ block: "nearest" });
  }
  end() {
    this.course.end();
    this.charts.end();
    this.heat.end();
    this.editor.end();
    this.why.end();
  }
  async #t() {
    const { project: t, run: e, path: n } = this;
    const i = {
      run: b(n),
      judged: b(`/fleet/${encodeURIComponent(t)}/${encodeURIComponent(e)}`),
      diagnosis: rt(b(`${n}/diagnosis`)),
      firing: kt("/alerts", { project: t, run: e, state: "firing" }),
      resolved: et("/alerts", { project: t, run: e, state: "resolved" }),
      policies: et(`${n}/policy/history`),
      attempts: et(`${n}/attempts`),
      notes: et(`${n}/notes`),
      adaptation: b(`${n}/adaptation`)
    };
    const r = Object.keys(i);
    const a = await Promise.all(Object.values(i));
    const { firing: l, resolved: c, ...h } = Object.fromEntries(r.map((d, u) => [d, a[u]]));
    return { ...h, alerts: { items: [...l, ...c] } };
  }
  /** Show what needs no series: who the run is, its verdict, the cause and what to do, and the events. */
  #e(t) {
    this.course.mark(t);
    this.stage.over(Jt(t.run));
    Yn(this.head, t, this.given.attempt);
    Fn(this.notes, t.notes, (e) => this.open(e));
    this.why.show(t);
  }
  #s(t) {
    this.#e(t);
    const { again: e } = this;
    Jn(this.versions, t, { path: this.path, again: e });
    Xn(this.policies, t, { course: this.course, path: this.path, again: e }).catch(tl);
    this.charts.outline(t);
  }
  #n(t) {
    const e = { "[": -1, "]": 1 }[t.key];
    if (!e || nt(t.target) || !this.course.series.step.length) return;
    const n = this.given.step === null ? this.course.extent[1] : this.course.beside(this.given.step, e);
    this.open(n);
  }
};

// src/signin.js
function ii(s, { why: t, done: e }) {
  const n = o("input", { type: "password", name: "token", required: true, autocomplete: "off", id: "token" });
  const i = (r) => {
    r.preventDefault();
    yt.set(n.value.trim());
    e();
  };
  m(
    s,
    o(
      "form",
      { class: "card empty stack", onsubmit: i },
      o("h1", {}, "Sign in"),
      o(
        "p",
        { class: "quiet" },
        "This service requires a token. A read token shows everything; to acknowledge or silence, use an admin token."
      ),
      t && o("p", { role: "alert", class: "strong" }, t),
      o("label", { for: "token" }, "Token"),
      n,
      o("p", {}, o("button", { class: "main", type: "submit" }, "Sign in")),
      o("p", { class: "quiet" }, "No token yet? Create one with ", o("code", {}, "trmon token create me --scope admin"), ".")
    )
  );
  n.focus();
}

// src/app.js
var ri = [
  { name: "fleet", path: /^\/$/, mount: gn },
  { name: "alerts", path: /^\/alerts$/, mount: Ns },
  { name: "compare", path: /^\/compare$/, mount: Gs },
  { name: "rule", path: /^\/rules\/(?<rule>[^/]+)$/, mount: $n },
  { name: "run", path: /^\/runs\/(?<project>[^/]+)\/(?<run>[^/]+)$/, mount: ni }
];
var H = document.getElementById("view");
var gt = new re();
var jt = () => {
};
var Q = 0;
var oi = 0;
var ai = null;
var el = 3e3;
var sl = 120;
var nl = [0, 502, 503, 504];
async function wt() {
  const s = ++Q;
  jt();
  jt = () => {
  };
  const t = ri.find(({ path: e }) => e.test(location.pathname));
  al();
  ci(false);
  ls();
  if (!t) return bn(H, location.pathname);
  H.setAttribute("aria-busy", "true");
  ai = setTimeout(() => m(H, Mn(t.name)), sl);
  if (H.contains(document.activeElement)) H.focus({ preventScroll: true });
  try {
    const e = Object.values(location.pathname.match(t.path).groups ?? {}).map(decodeURIComponent);
    const n = await t.mount(il(s), { live: gt, parameters: e });
    if (s !== Q) return n();
    jt = n;
    G.shown(true);
  } catch (e) {
    if (s === Q) cs(e);
  }
}
function ls(...s) {
  clearTimeout(ai);
  H.removeAttribute("aria-busy");
  if (s.length) m(H, ...s);
}
function il(s) {
  const t = (e) => (...n) => s === Q && e(...n);
  return {
    show: t(ls),
    title: t((e) => document.title = `${e} · trmon`),
    fail: t(cs),
    over: t((e) => ci(e))
  };
}
function cs(s) {
  jt();
  jt = () => {
  };
  ls();
  if (s.status === 401) return ol(s);
  if (!(s instanceof O)) console.error(s);
  const t = Q;
  if (nl.includes(s.status)) {
    G.shown(false);
    setTimeout(() => t === Q && wt(), el);
  }
  const e = o("button", { onclick: wt }, "Try again");
  const n = location.pathname.startsWith("/rules/") ? "Rule" : "Run";
  const i = s.status === 404 ? `${n} not found.` : s.message;
  const r = s.status === 404 ? s.message : "Is it running? Start it with trmon serve; its log says why it stopped.";
  m(
    H,
    o(
      "section",
      { class: "card empty stack", role: "alert" },
      o("h1", {}, i),
      o("p", {}, r),
      o("p", {}, e)
    )
  );
}
function ol(s) {
  if (oi === Q) return;
  oi = Q;
  ii(H, { why: yt.get() ? s.message : "", done: rl });
}
function rl() {
  gt.restart();
  wt();
}
function al() {
  document.title = "trmon";
  for (const s of document.querySelectorAll(".top nav a")) {
    if (s.getAttribute("href") === location.pathname) s.setAttribute("aria-current", "page");
    else s.removeAttribute("aria-current");
  }
}
function li(s) {
  history.pushState(null, "", s);
  window.scrollTo(0, 0);
  wt();
}
document.addEventListener("click", (s) => {
  const t = s.target.closest("a");
  if (!t || s.defaultPrevented || s.button || s.metaKey || s.ctrlKey || s.shiftKey) return;
  const e = new URL(t.href, location.href);
  if (e.origin !== location.origin || e.hash || !ri.some(({ path: n }) => n.test(e.pathname))) return;
  s.preventDefault();
  li(e.pathname + e.search);
});
window.addEventListener("popstate", wt);
gt.addEventListener("state", () => {
  const s = H.hasAttribute("aria-busy");
  if (gt.state === "signed out" && !s) cs(new O(401, "The token is no longer valid."));
});
Ls({ go: li });
var ci = yn(document.getElementById("live"), gt);
gt.start();
wt();
