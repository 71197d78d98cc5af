// DOM elements and what all views make of them: buttons that act or copy, skeletons. Text is only ever set as text, so that
// a run's name can never become markup.

const FOCUSED = "a, button, input, select, textarea, summary, [tabindex]";

/** Return an element: h("a", { class: "x", style: { width: "4px" }, onclick: f }, "text", child, null, [more]). */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Return an SVG element; the arguments are those of `h`. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

/** Return the path of a line through values, at `x(i)` and `y(value)`, broken where a value is null. */
export function linePath(values, x, y) {
  const point = (value, i) => `${i && values[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  return values.map((value, i) => (value === null ? "" : point(value, i))).join("");
}

/** Return a table; `heads` are the names of its columns. */
export const table = (given, heads, rows) =>
  h("table", given, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows));

/** Resolve after the next paint; immediately if the document is hidden. */
export function displayed() {
  if (document.hidden) return Promise.resolve();
  return new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}

/** Call `act` every so many milliseconds until a signal. */
export function every(milliseconds, act, signal) {
  signal.throwIfAborted();
  const timer = setInterval(act, milliseconds);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** Replace the children of an element. The focused element keeps the focus if it is still there; otherwise its
 *  replacement gets it. Live views are re-rendered often. */
export function fill(element, ...children) {
  const had = document.activeElement;
  const at = [...element.querySelectorAll(FOCUSED)].indexOf(had);
  element.replaceChildren(...flat(children));
  if (at < 0) return element;
  const has = element.contains(had) ? had : element.querySelectorAll(FOCUSED)[at];
  has?.focus({ preventScroll: true });
  return element;
}

/** Replace the children of a live view as `fill` does, with the same disclosures open; while text in it is selected,
 *  what is shown stays, and the newest children are shown once nothing is selected. */
export function refill(element, ...children) {
  const selection = document.getSelection();
  if (!selection.isCollapsed && selection.containsNode(element, true)) return later(element, children);
  waiting.delete(element);
  const opened = new Map([...element.querySelectorAll("details")].map((one) => [named(one), one.open]));
  fill(element, ...children);
  for (const one of element.querySelectorAll("details")) one.open = opened.get(named(one)) ?? one.open;
  return element;
}

const waiting = new Map();
const named = (details) => details.dataset.name ?? details.querySelector("summary").textContent;

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

const drawn = new WeakMap();

/** Whether what is drawn in an element is to be other than the last time, so that nothing is rendered in vain. */
export function isNew(element, ...given) {
  const now = JSON.stringify(given);
  const isOther = drawn.get(element) !== now;
  drawn.set(element, now);
  return isOther;
}

/** Write a text that is not there already, which a screen reader would tell again. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Render children that may be reused; the focused one keeps the focus. */
export function moving(draw) {
  const had = document.activeElement;
  draw();
  if (had !== document.body && had.isConnected) had.focus({ preventScroll: true });
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [of, given] of Object.entries(value)) element.style.setProperty(of, given);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

export const typing = (element) =>
  /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) && element.type !== "checkbox" && element.type !== "radio";

/** Whether a key press may be a shortcut: nothing is being typed, no dialog is open, and no modifier is held. */
export const isShortcut = (event) =>
  !(typing(event.target) || document.querySelector("dialog[open]") || event.metaKey || event.ctrlKey || event.altKey);

export const several = (n, made) => Array.from({ length: n }, made);

/** Return the shapes of charts. */
export function figures(n) {
  return several(n, () => h("figure", { class: "card panel", "aria-hidden": "true" }, bone("caption"), bone("plot")));
}

/** Return lines of text that have not arrived. */
export const lines = (n) => several(n, () => h("span", { class: "bone line", "aria-hidden": "true" }));

export const bone = (kind) => h("span", { class: `bone ${kind}` });

/** Return a group of buttons of which one is pressed: its `element`, and `press(at)`. */
export function choice(label, names, choose) {
  const buttons = names.map((name, i) => h("button", { onclick: () => choose(i) }, name));
  const press = (at) => buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === at)));
  return { element: h("span", { class: "row joined", role: "group", "aria-label": label }, buttons), press };
}

/** Return the button and the element that shows its error. */
export function action(text, act, given = {}) {
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

/** Return the text of a failed request. */
export const refusal = (error) => (error.status === 403 ? "This token is read-only." : error.message);

/** Return a name whose lines may break after its separators. */
export const breakable = (name) => name.split(/(?<=[-_./])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

const SHOWN_MS = 2000;

/** Return a button; `text` returns what it copies. */
export function copyButton(label, text, given = {}) {
  return h("button", { ...given, onclick: (event) => copy(event.currentTarget, { label, text: text() }) }, label);
}

async function copy(button, { label, text }) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), SHOWN_MS);
  } catch {
    // Browsers deny clipboard access to pages served over plain HTTP.
    prompt("Copy this", text);
  }
}

/** Offer content to the browser as a download. */
export function download(content, name) {
  const url = URL.createObjectURL(content);
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
