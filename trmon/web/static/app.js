// The page: routes addresses to views, and what surrounds every view: the badge, shortcuts, skeletons, sign-in and errors.

import { ApiError, askEarly, firstOfFleet, Live, loaded, PAGE, runPath, token, WITH_PARTS } from "./api.js";
import { bone, figures, fill, h, isShortcut, several } from "./dom.js";
import { fresh } from "./freshness.js";
import { span } from "./words.js";

const WORDS = { connecting: "connecting", reconnecting: "reconnecting", "signed out": "signed out" };

const heard = ({ heardAt }) => (Date.now() - heardAt < 1000 ? "now" : `${span((Date.now() - heardAt) / 1000)} ago`);

/** Keep the badge up to date; ages grow without an event. Returns a function that says whether the view is of a run
 *  that has ended, beside which nothing is live. */
function watch(badge, live) {
  let isOver = false;
  const show = () => {
    const isLive = live.state === "live" && fresh.isGood;
    badge.dataset.state = (isLive && !fresh.level) || live.state !== "live" ? live.state : "reconnecting";
    if (isLive && fresh.level) badge.textContent = "out of date";
    else if (isLive) badge.textContent = isOver ? "up to date" : `live · ${heard(live)}`;
    else badge.textContent = live.state === "live" ? "no answer" : WORDS[live.state];
  };
  live.addEventListener("state", show);
  live.addEventListener("event", show);
  fresh.addEventListener("change", show);
  show();
  return (over) => {
    isOver = over;
    show();
  };
}

const KEYS = [
  ["Ctrl K", "find a run, a rule or a step; ⌘ K on a Mac"],
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
  ["?", "keyboard shortcuts"],
];

function shortcuts({ go }) {
  let waiting = "";
  const actions = { gf: () => go("/"), ga: () => go("/alerts"), t: turn, "?": explain, "/": filter };
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return find();
    }
    if (!isShortcut(event)) return;
    const action = actions[waiting + event.key];
    waiting = event.key === "g" ? "g" : "";
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.getElementById("theme").addEventListener("click", turn);
  document.getElementById("keys").addEventListener("click", explain);
  document.getElementById("find").addEventListener("click", find);
}

const find = async () => (await loaded(import("./palette.js"))).openPalette();

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
  const rows = KEYS.map(([key, what]) => h("tr", {}, h("td", {}, h("code", {}, key)), h("td", {}, what)));
  const close = h("button", { onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { "aria-label": "Keyboard shortcuts" },
    h("h2", {}, "Keyboard"),
    h("table", {}, rows),
    close,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Ask for a token in place of the view; `why` says why the last one was rejected. */
function signIn(root, { why, done }) {
  const field = h("input", { type: "password", name: "token", required: true, autocomplete: "off", id: "token" });
  const enter = (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    done();
  };
  fill(
    root,
    h(
      "form",
      { class: "card empty stack", onsubmit: enter },
      h("h1", {}, "Sign in"),
      h(
        "p",
        { class: "quiet" },
        "This service requires a token. A read token shows everything; to acknowledge or silence, use an admin token.",
      ),
      why && h("p", { role: "alert", class: "strong" }, why),
      h("label", { for: "token" }, "Token"),
      field,
      h("p", {}, h("button", { class: "main", type: "submit" }, "Sign in")),
      h("p", { class: "quiet" }, "No token yet? Create one with ", h("code", {}, "trmon token create me --scope admin"), "."),
    ),
  );
  field.focus();
}

function notFound(root, path) {
  document.title = "Not found · trmon";
  fill(
    root,
    h(
      "section",
      { class: "card empty stack", role: "alert" },
      h("h1", {}, "Nothing is at this address."),
      h("p", {}, "There is no page ", h("code", {}, path), ". Runs are at ", h("code", {}, "/runs/PROJECT/RUN"), "."),
      h("p", {}, h("a", { href: "/" }, "All runs"), " · ", h("a", { href: "/alerts" }, "Alerts")),
      h("p", {}, h("button", { onclick: find }, "Find a run")),
    ),
  );
}

const FIGURES = 9;
const ROWS = 12;

const heading = (...more) => h("header", {}, bone("title"), more);
const filters = () => h("div", { class: "row controls" }, bone("field"), bone("field narrow"));
const words = (n) => h("div", { class: "card panel stack" }, several(n, () => bone("line")));
const rows = (kind) => h("div", { class: "card" }, several(ROWS, () => h("div", { class: `bones ${kind}` }, bone("line"))));

/** The shape of each view, by the name of the view. */
const SHAPES = {
  fleet: () => [heading(bone("title narrow"), bone("line half")), filters(), rows("run-line")],
  alerts: () => [heading(bone("field narrow")), filters(), bone("subtitle"), rows("alert-line")],
  run: () => [
    heading(bone("field narrow"), bone("line half"), bone("line third")),
    h("div", { class: "card diagnosis" }, h("div", { class: "stack" }, several(5, () => bone("line")))),
    h("div", { class: "rangebar" }, bone("field")),
    h("div", { class: "charts" }, figures(FIGURES)),
  ],
  compare: () => [heading(), words(4), h("div", { class: "charts" }, figures(FIGURES))],
  rule: () => [heading(), words(6)],
};

/** Return the shape of a view. */
function skeleton(view) {
  const said = h("p", { class: "sr", role: "status" }, "Loading …");
  return [said, h("div", { class: "skeleton", "aria-hidden": "true" }, SHAPES[view]())];
}

/** The views. The modules of each are read when it is first shown, and what it asks first is requested meanwhile. */
const VIEWS = [
  { name: "fleet", path: /^\/$/, load: () => import("./fleet.js"), first: () => [["/fleet", firstOfFleet()]] },
  { name: "alerts", path: /^\/alerts$/, load: () => import("./alerts.js"), first: () => [["/alerts", { state: "firing", limit: PAGE }]] },
  { name: "compare", path: /^\/compare$/, load: () => import("./compare.js"), first: () => [["/signals"]] },
  { name: "rule", path: /^\/rules\/([^/]+)$/, load: () => import("./alerts.js"), first: () => [], mount: "mountRule" },
  {
    name: "run",
    path: /^\/runs\/([^/]+)\/([^/]+)$/,
    load: () => import("./run.js"),
    first: (project, run) => {
      const path = runPath(project, run);
      return [[path, WITH_PARTS], [`${path}/signals/names`], ["/signals"]];
    },
  },
];
const root = document.getElementById("view");
const live = new Live();
let leave = () => {};
let shown = 0;
let asked = 0;
let waiting = null;
let titled = "";
const RETRY_MS = 3000;
const SKELETON_MS = 120; // A view that is there sooner needs no skeleton, which would only flicker.
const PASSING = [0, 502, 503, 504]; // No answer, or a proxy or a starting service that will soon give one.

/** Show the view of the current address; `leave` closes the previous view. */
async function show() {
  const turn = ++shown;
  leave();
  leave = () => {};
  const view = VIEWS.find(({ path }) => path.test(location.pathname));
  mark();
  badge(false);
  fresh.leave();
  render();
  if (!view) return notFound(root, location.pathname);
  root.setAttribute("aria-busy", "true");
  waiting = setTimeout(() => fill(root, skeleton(view.name)), SKELETON_MS);
  if (root.contains(document.activeElement)) root.focus({ preventScroll: true });
  try {
    const parameters = location.pathname.match(view.path).slice(1).map(decodeURIComponent);
    askEarly(view.first(...parameters));
    const { [view.mount ?? "mount"]: mount } = await loaded(view.load());
    const ended = await fresh.reading(() => mount(stage(turn), { live, parameters }));
    if (turn !== shown) return ended();
    leave = ended;
  } catch (error) {
    if (turn === shown) fail(error);
  }
}

/** Render content, or nothing yet, in place of a skeleton. */
function render(...children) {
  clearTimeout(waiting);
  root.removeAttribute("aria-busy");
  if (children.length) fill(root, ...children);
}

/** A container that a view renders into, and where it says whether what it shows is over; late responses render nothing once the user has moved on. */
function stage(turn) {
  const ifShown =
    (act) =>
    (...given) =>
      turn === shown && act(...given);
  return {
    show: ifShown(render),
    title: ifShown(entitle),
    fail: ifShown(fail),
    over: ifShown((isOver) => badge(isOver)),
  };
}

/** Write the tab's title, which does not claim what the view does not. */
function entitle(text = titled) {
  titled = text;
  if (text) document.title = `${fresh.level === "old" ? "? " : ""}${text} · trmon`;
}

/** Show an error in place of the view; for a missing token, show the sign-in form. */
function fail(error) {
  leave();
  leave = () => {};
  render();
  fresh.leave(PASSING.includes(error.status) ? false : undefined);
  if (error.status === 401) return askToken(error);
  if (!(error instanceof ApiError)) console.error(error);
  const turn = shown;
  if (PASSING.includes(error.status)) {
    setTimeout(() => turn === shown && show(), RETRY_MS);
  }
  const again = h("button", { onclick: show }, "Try again");
  const noun = location.pathname.startsWith("/rules/") ? "Rule" : "Run";
  const title = error.status === 404 ? `${noun} not found.` : error.message;
  const detail = error.nearest?.length
    ? ["Did you mean ", error.nearest.map((name, i) => [i ? " or " : "", h("a", { class: "link", href: nearHref(noun, name) }, name)]), "?"]
    : error.status === 404
      ? error.message
      : "Is it running? Start it with trmon serve; its log says why it stopped.";
  fill(
    root,
    h(
      "section",
      { class: "card empty stack", role: "alert" },
      h("h1", {}, title),
      h("p", {}, detail),
      h("p", { class: "row" }, again, error.status === 404 && h("button", { onclick: find }, `Find a ${noun.toLowerCase()}`)),
    ),
  );
}

const nearHref = (noun, name) => (noun === "Rule" ? `/rules/${encodeURIComponent(name)}` : runPath(...name.split("/")));

/** Show the sign-in form once a turn: the event stream and the view learn of a 401 each, and one may be typing by then. */
function askToken(error) {
  if (asked === shown) return;
  asked = shown;
  signIn(root, { why: token.get() ? error.message : "", done: signedIn });
}

function signedIn() {
  live.restart();
  show();
}

function mark() {
  document.title = "trmon";
  titled = "";
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Navigate within the page without reloading it. */
function go(href) {
  history.pushState(null, "", href);
  window.scrollTo(0, 0);
  show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href, location.href);
  if (url.origin !== location.origin || url.hash || !VIEWS.some(({ path }) => path.test(url.pathname))) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
window.addEventListener("popstate", show);
live.addEventListener("state", () => {
  const isReading = root.hasAttribute("aria-busy"); // The view says why the token is not valid.
  if (live.state === "signed out" && !isReading) fail(new ApiError(401, "The token is no longer valid."));
});
shortcuts({ go });
fresh.addEventListener("change", () => entitle());
fresh.start();
const badge = watch(document.getElementById("live"), live);
live.start();
show();
