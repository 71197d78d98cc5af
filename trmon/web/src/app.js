// The page: routes addresses to views and holds what all views share.

import { mountAlerts } from "./alerts.js";
import { ApiError, reach, token } from "./api.js";
import { mountCompare } from "./compare.js";
import { fill, h } from "./dom.js";
import { mountFleet } from "./fleet.js";
import { Live } from "./live.js";
import { watch } from "./livebadge.js";
import { notFound } from "./notfound.js";
import { mountRule } from "./rule.js";
import { mountRun } from "./run.js";
import { shortcuts } from "./shortcuts.js";
import { signIn } from "./signin.js";
import { skeleton } from "./skeleton.js";

const VIEWS = [
  { name: "fleet", path: /^\/$/, mount: mountFleet },
  { name: "alerts", path: /^\/alerts$/, mount: mountAlerts },
  { name: "compare", path: /^\/compare$/, mount: mountCompare },
  { name: "rule", path: /^\/rules\/(?<rule>[^/]+)$/, mount: mountRule },
  { name: "run", path: /^\/runs\/(?<project>[^/]+)\/(?<run>[^/]+)$/, mount: mountRun },
];
const root = document.getElementById("view");
const live = new Live();
let leave = () => {};
let shown = 0;
let asked = 0;
let waiting = null;
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
  render();
  if (!view) return notFound(root, location.pathname);
  root.setAttribute("aria-busy", "true");
  waiting = setTimeout(() => fill(root, skeleton(view.name)), SKELETON_MS);
  if (root.contains(document.activeElement)) root.focus({ preventScroll: true });
  try {
    const parameters = Object.values(location.pathname.match(view.path).groups ?? {}).map(decodeURIComponent);
    const ended = await view.mount(stage(turn), { live, parameters });
    if (turn !== shown) return ended();
    leave = ended;
    reach.shown(true);
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
    title: ifShown((text) => (document.title = `${text} · trmon`)),
    fail: ifShown(fail),
    over: ifShown((isOver) => badge(isOver)),
  };
}

/** Show an error in place of the view; for a missing token, show the sign-in form. */
function fail(error) {
  leave();
  leave = () => {};
  render();
  if (error.status === 401) return askToken(error);
  if (!(error instanceof ApiError)) console.error(error);
  const turn = shown;
  if (PASSING.includes(error.status)) {
    reach.shown(false);
    setTimeout(() => turn === shown && show(), RETRY_MS);
  }
  const again = h("button", { onclick: show }, "Try again");
  const noun = location.pathname.startsWith("/rules/") ? "Rule" : "Run";
  const title = error.status === 404 ? `${noun} not found.` : error.message;
  const detail =
    error.status === 404 ? error.message : "Is it running? Start it with trmon serve; its log says why it stopped.";
  fill(
    root,
    h(
      "section",
      { class: "card empty stack", role: "alert" },
      h("h1", {}, title),
      h("p", {}, detail),
      h("p", {}, again),
    ),
  );
}

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
const badge = watch(document.getElementById("live"), live);
live.start();
show();
