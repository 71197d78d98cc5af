// The page: routes addresses to views, and what surrounds every view: the badge, shortcuts, skeletons, sign-in and errors.

import { ApiError, askEarly, firstOfFleet, keyOf, Live, loaded, PAGE, runPath, token, WITH_PARTS } from "./api.js";
import { bone, figures, fill, h, isShortcut, several } from "./dom.js";
import { FLEET, fresh } from "./freshness.js";
import { span } from "./words.js";

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
    else badge.textContent = live.state === "live" ? "no answer" : live.state;
    badge.title = badge.textContent; // A phone may have no room for all of it.
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
  const filter = () => document.querySelector("[data-filter]")?.focus();
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
  const needed = "This service requires a token. A read token shows everything; to acknowledge or silence, use an admin token.";
  const parts = [
    h("h1", {}, "Sign in"),
    h("p", { class: "quiet" }, needed),
    why && h("p", { role: "alert", class: "strong" }, why),
    h("label", { for: "token" }, "Token"),
    field,
    h("p", {}, h("button", { class: "main", type: "submit" }, "Sign in")),
    h("p", { class: "quiet" }, "No token yet? Create one with ", h("code", {}, "trmon token create me --scope admin"), "."),
  ];
  fill(root, h("form", { class: "card empty stack", onsubmit: enter }, parts));
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
      return [[path, WITH_PARTS], [`${path}/signals/names`], [`${path}/signals/scalars`], ["/signals"]];
    },
  },
];
const main = document.getElementById("view");
const live = new Live();
const wide = matchMedia("(min-width: 1900px)"); // There is room for the fleet and a run.
const BROWSE_MS = 150; // Runs that only fly past are not read.
let shown = 0;
let asked = 0;
let titled = "";
const RETRY_MS = 3000;
const SKELETON_MS = 120; // A view that is there sooner needs no skeleton, which would only flicker.
const PASSING = [0, 502, 503, 504]; // No answer, or a proxy or a starting service that will soon give one.

/** Where a view is shown: the whole page, or a pane of it. */
class Place {
  view = null;
  #left = new AbortController();
  #waiting = null;

  /** `isLeading()` says whether the tab's title and the badge are of this place's view. */
  constructor(root, isLeading = () => true) {
    Object.assign(this, { root, isLeading });
  }

  /** End the view. */
  close() {
    this.#left.abort();
    this.#left = new AbortController();
    if (this.view) fresh.leave(undefined, partOf(this.view));
    this.view = null;
    this.render();
  }

  /** Show a view in place of another. */
  async show(view, parameters) {
    this.close();
    Object.assign(this, { view, parameters, again: () => this.show(view, parameters) });
    const { signal } = this.#left;
    this.root.setAttribute("aria-busy", "true");
    this.#waiting = setTimeout(() => fill(this.root, skeleton(view.name)), SKELETON_MS);
    if (this.root.contains(document.activeElement)) this.root.focus({ preventScroll: true });
    try {
      const { [view.mount ?? "mount"]: mount } = await loaded(view.load());
      signal.throwIfAborted();
      const given = { live, parameters, beside: this.root === main ? null : beside };
      await fresh.reading(() => mount(this.#stage(signal), given), partOf(view));
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    }
  }

  /** Render content, or nothing yet, in place of a skeleton. */
  render(...children) {
    clearTimeout(this.#waiting);
    this.root.removeAttribute("aria-busy");
    if (children.length) fill(this.root, ...children);
  }

  /** What a view renders into, and where it says whether what it shows is over; late responses render nothing once the user has moved on,
   *  of which `signal` tells. */
  #stage(signal) {
    const ifShown = (act) => (...given) => !signal.aborted && act(...given);
    return {
      signal,
      show: ifShown((...children) => this.render(...children)),
      title: ifShown((text) => {
        this.title = text;
        if (this.isLeading()) entitle(text);
      }),
      fail: ifShown((error) => this.fail(error)),
      over: ifShown((isOver) => this.root === main && badge(isOver)),
    };
  }

  /** Show an error in place of the view; for a missing token, show the sign-in form. */
  fail(error) {
    const { view, again } = this;
    this.close();
    fresh.leave(PASSING.includes(error.status) ? false : undefined, partOf(view));
    if (error.status === 401) return askToken(error);
    if (!(error instanceof ApiError)) console.error(error);
    const { signal } = this.#left;
    if (PASSING.includes(error.status)) setTimeout(() => signal.aborted || again(), RETRY_MS);
    const noun = view?.name === "rule" ? "Rule" : "Run";
    const isUnknown = error.status === 404;
    const hrefOf = (name) => (noun === "Rule" ? `/rules/${encodeURIComponent(name)}` : runPath(...name.split("/")));
    const near = (name, i) => [i ? " or " : "", h("a", { class: "link", href: hrefOf(name) }, name)];
    const detail = error.nearest?.length
      ? ["Did you mean ", error.nearest.map(near), "?"]
      : isUnknown
        ? error.message
        : "Is it running? Start it with trmon serve; its log says why it stopped.";
    const buttons = [
      h("button", { onclick: again }, "Try again"),
      isUnknown && h("button", { onclick: find }, `Find a ${noun.toLowerCase()}`),
    ];
    const parts = [h("h1", {}, isUnknown ? `${noun} not found.` : error.message), h("p", {}, detail), h("p", { class: "row" }, buttons)];
    fill(this.root, h("section", { class: "card empty stack", role: "alert" }, parts));
  }
}

const partOf = (view) => (view?.name === FLEET ? FLEET : undefined);
const isOfRun = () => VIEWS.find(({ name }) => name === "run").path.test(location.pathname);
const pane = (label) => h("section", { class: "pane", "aria-label": label, tabindex: "-1" });
const whole = new Place(main);
const left = new Place(pane("Fleet"), () => !isOfRun());
const right = new Place(pane("Run"), isOfRun);
const panes = h("div", { class: "panes" }, left.root, right.root);

/** The run beside the fleet: that of the address, else the most urgent one. Dispatches "shown". */
const beside = Object.assign(new EventTarget(), {
  key: null,
  query: "", // The filters of the fleet, which the address of a run does not hold.
  timer: null,
  suggest: (run) => isOfRun() || right.view || showRun(run.project, run.run),
  browse: (href) => {
    clearTimeout(beside.timer);
    beside.timer = setTimeout(() => {
      history[isOfRun() ? "replaceState" : "pushState"](null, "", href);
      show();
    }, BROWSE_MS);
  },
});

/** Take the address of the run beside the fleet once a person does something with it. */
function adopt() {
  if (isOfRun() || !right.view) return;
  history.pushState(null, "", runPath(...right.parameters));
  mark();
  entitle(right.title);
}
for (const done of ["pointerdown", "keydown"]) right.root.addEventListener(done, adopt, { capture: true });

function showRun(project, run) {
  beside.key = keyOf({ project, run });
  beside.dispatchEvent(new Event("shown"));
  window.scrollTo(0, 0);
  return right.show(VIEWS.find(({ name }) => name === "run"), [project, run]);
}

/** Show the view of the current address: the fleet and a run beside each other where there is room, else the whole page. */
function show() {
  shown++;
  clearTimeout(beside.timer);
  const view = VIEWS.find(({ path }) => path.test(location.pathname));
  const parameters = view && location.pathname.match(view.path).slice(1).map(decodeURIComponent);
  const areTwo = wide.matches && ["fleet", "run"].includes(view?.name);
  const isKept = areTwo && panes.isConnected && left.view && (view.name === "run" || location.search === beside.query);
  mark();
  badge(false);
  if (!isKept) for (const place of [whole, left, right]) if (place !== right || !areTwo) place.close();
  if (!view) return notFound(main, location.pathname);
  const fleet = VIEWS[0];
  const views = [...(areTwo && !isKept ? [[fleet, []]] : []), ...(areTwo && view === fleet ? [] : [[view, parameters]])];
  askEarly(views.flatMap(([{ first }, given]) => first(...given)));
  if (!areTwo) return whole.show(view, parameters);
  if (!panes.isConnected) fill(main, panes);
  if (!isKept) {
    beside.query = view === fleet ? location.search : "";
    left.show(fleet, []);
  }
  if (view === fleet) beside.dispatchEvent(new Event("shown"));
  else showRun(...parameters);
}

/** Write the tab's title, which does not claim what the view does not. */
function entitle(text = titled) {
  titled = text;
  if (text) document.title = `${fresh.level === "old" ? "? " : ""}${text} · trmon`;
}

/** Show the sign-in form once a turn: the event stream and the view learn of a 401 each, and one may be typing by then. */
function askToken(error) {
  if (asked === shown) return;
  asked = shown;
  for (const place of [whole, left, right]) place.close();
  signIn(main, { why: token.get() ? error.message : "", done: () => (live.restart(), show()) });
}

function mark() {
  document.title = "trmon";
  titled = "";
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Navigate within the page without reloading it; with a key, into the run beside the fleet. */
function go(href, isByKey = false) {
  const isShown = panes.isConnected && isOfRun() && href === location.pathname + location.search;
  if (!isShown) {
    history.pushState(null, "", href);
    window.scrollTo(0, 0);
    show();
  }
  if (isByKey && panes.isConnected) right.root.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href, location.href);
  if (url.origin !== location.origin || url.hash || !VIEWS.some(({ path }) => path.test(url.pathname))) return;
  event.preventDefault();
  go(url.pathname + url.search, event.detail === 0);
});
window.addEventListener("popstate", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));
wide.addEventListener("change", show);
live.addEventListener("state", () => {
  const isReading = main.matches("[aria-busy]") || main.querySelector("[aria-busy]"); // The view says why the token is not valid.
  if (live.state === "signed out" && !isReading) whole.fail(new ApiError(401, "The token is no longer valid."));
});
shortcuts({ go });
fresh.addEventListener("change", () => entitle());
fresh.start();
const badge = watch(document.getElementById("live"), live);
live.start();
show();
