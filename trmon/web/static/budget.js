// src/dom.js
function n(t, r = {}, ...o) {
  return m(document.createElement(t), r, o);
}
function m(t, r, o) {
  for (const [e, i] of Object.entries(r)) {
    if (e.startsWith("on")) t.addEventListener(e.slice(2), i);
    else if (i === true) t.setAttribute(e, "");
    else if (i !== false && i !== null && i !== void 0) t.setAttribute(e, i);
  }
  t.append(...d(o));
  return t;
}
function d(t) {
  return t.flat(3).filter((r) => r !== null && r !== void 0 && r !== false);
}

// src/words.js
function s(t, r = 3) {
  if (t === null || t === void 0 || Number.isNaN(t)) return "–";
  if (typeof t === "string") return t;
  const o = Math.abs(t);
  if (t === 0) return "0";
  if (o >= 1e6 || o < 1e-3) return Number(t.toPrecision(r)).toExponential().replace("e+", "e");
  if (Number.isInteger(t)) return t.toLocaleString("en");
  return o >= 1e3 ? Math.round(t).toLocaleString("en") : String(Number(t.toPrecision(r)));
}
function u(t) {
  if (t === null || t === void 0 || typeof t === "string") return "–";
  if (t > 0 && t < 0.01) return "<1%";
  return `${Math.round(t * 100)}%`;
}
var p = (t) => t.charAt(0).toUpperCase() + t.slice(1);

// src/budget.js
var f = { within: "within", exceeded: "exceeded", undecided: "undecided", not_measured: "not measured" };
var g = { present: "has it", absent: "has it not", unknown: "cannot be told" };
var b = { present: "Shown by this run", absent: "Not shown", unknown: "Cannot be told" };
var M = (t) => n("div", { class: "budget" }, w(t), y(t), x(t), _(t), S(t));
function w({ mismatch: t, step: r }) {
  const o = t.map((e) => [
    [e.name, n("br"), n("span", { class: "quiet small" }, e.note)],
    `< ${e.limit}`,
    e.value === null ? "–" : s(e.value),
    n("span", { class: e.state === "exceeded" ? "strong" : "quiet" }, f[e.state] ?? e.state)
  ]);
  return a(
    "Mismatch budget",
    `At step ${r}. Below these limits a correction is conjectured to gain less than 0.3% ([DRIFT], problem 4).`,
    l(["quantity", "limit", "value", "state"], o)
  );
}
function y({ lag: t, lag_words: r }) {
  const o = [
    ["largest lag S, versions", s(t.lag)],
    ["horizon T, updates", s(t.horizon)],
    ["learning rate η", s(t.lr)],
    ["S η", s(t.s_eta)],
    ["T η", s(t.t_eta)],
    ["η must stay well below", s(t.lr_scale)],
    ["ceiling of the lag, 50 ess_seq", s(t.ess_ceiling)]
  ];
  return a(
    "Lag and learning rate",
    "A conjecture for this run: η ≪ min(R_batch/(S G), R_crit/(T G)), whose radii are fitted (arXiv 2607.01083).",
    r.map((e) => n("p", {}, e)),
    l(["quantity", "value"], o)
  );
}
function x({ split: t, minorizer: r, minorizer_vacuous: o }) {
  const e = [
    ["staleness (π against π_old)", s(t.alpha_0), s(t.mean_staleness)],
    ["mismatch (π_old against μ)", s(t.alpha_1), s(t.mean_mismatch)],
    t.exact_max !== null && ["from logits, of the pair they were sent of", s(t.exact_max), s(t.exact_mean)]
  ].filter(Boolean);
  return a(
    "Where the drift comes from",
    "Total variation of tokens: the largest seen, a lower bound of the worst case, and the mean.",
    l(["policies", "at least", "mean"], e),
    t.mismatch_share !== null && n("p", {}, `Mismatch makes ${u(t.mismatch_share)} of the sum of the bounds.`),
    t.is_replayed && n("p", {}, "Routing is replayed, which hides the difference of the routers and does not reduce it."),
    r !== null && n("p", {}, `Minorizer ${s(r)}: the gain that the error bound leaves${o === 1 ? "; vacuous" : ""}.`)
  );
}
function _({ kinds: t }) {
  const r = t.map((o) => [
    [o.name, n("br"), n("span", { class: "quiet small" }, o.why, c(o.shown_by))],
    n("span", { class: o.presence === "present" ? "strong" : "quiet" }, g[o.presence] ?? o.presence)
  ]);
  return a(
    "Kinds of off-policyness",
    "Which of them this run has, by its columns and configuration.",
    l(["kind", "this run"], r)
  );
}
function S({ pipeline: t }) {
  const r = t.methods.map(
    (e) => n("li", {}, n("span", { class: "strong" }, `${e.title}: `), e.method, c(e.shown_by))
  );
  const o = t.anti_patterns.map(
    (e) => n(
      "li",
      { "data-presence": e.presence },
      n("span", { class: e.presence === "present" ? "strong" : "quiet" }, `${b[e.presence] ?? e.presence}: `),
      `${e.name}. ${p(e.why)}.`,
      c(e.shown_by)
    )
  );
  return a(
    "Advice by pipeline",
    "Operational defaults of the author of [DRIFT], not laws.",
    n("ul", {}, r),
    t.correction && n("p", {}, t.correction, c(t.correction_shown_by)),
    n("p", { class: "strong" }, "Anti-patterns"),
    n("ol", {}, o)
  );
}
var c = (t) => t.length > 0 && n("span", { class: "quiet small" }, ` (${t.map((r) => `${r.name} ${r.value}`).join(", ")})`);
var a = (t, r, ...o) => n("div", {}, n("h2", {}, t), n("p", { class: "quiet small" }, r), o);
function l(t, r) {
  const o = n("tr", {}, t.map((i) => n("th", { scope: "col" }, i)));
  const e = r.map((i) => n("tr", {}, i.map((h) => n("td", {}, h))));
  return n("table", { class: "evidence" }, n("thead", {}, o), n("tbody", {}, e));
}
export {
  M as budgetOf
};
