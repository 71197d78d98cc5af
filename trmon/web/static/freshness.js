// How old what is shown is: the banner across the top, and what is withdrawn meanwhile.

import { h, isNew, write } from "./dom.js";
import { hour, now, span } from "./words.js";

const LATE_MS = 10_000; // The stream says something every 5 s.
const OLD_MS = 30_000;
const WAKE_MS = 500; // The time for an answer after a sleep, or in a hidden tab, in which nothing was asked.

const VIEW = "view";
export const FLEET = "fleet"; // Which may be shown beside another view.

/** What is shown is current while the live events are followed and no read of the view is missing: a hidden tab, a sleep, a
 *  lost stream and a failed read end that, and the next read of the view begins it again. Dispatches "change". */
class Freshness extends EventTarget {
  level = ""; // "late": the banner says how old it is; "old": it is not claimed any more.
  #parts = new Map(); // By name, since when it is known what each view shows, whether events tell of its changes, and reads.
  #unjudged = 0;
  #isStreaming = false;
  #isAnswered = true;
  #isShown = true;
  #tickedAt = Date.now();
  #wokenAt = 0;

  /** Whether the last request was answered, and the view is shown rather than an error in its place. */
  get isGood() {
    return this.#isAnswered && this.#isShown;
  }

  /** Whether events tell of each change of what is shown. */
  get isFollowed() {
    return this.#parts.size > 0 && [...this.#parts.values()].every((part) => part.isFollowed);
  }

  /** Since when what is shown is known, of the view that was read first; null before a view has been read. */
  get #knownAt() {
    const known = [...this.#parts.values()].flatMap((part) => part.knownAt ?? []);
    return known.length ? Math.min(...known) : null;
  }

  /** Record whether a request got an answer at all. */
  answered(isAnswered) {
    this.#isAnswered = isAnswered;
    this.show();
  }

  /** Record that another view, or an error, takes the place of a view: its age does not count until it has been read. */
  leave(isShown = this.#isShown, name = VIEW) {
    this.#parts.delete(name);
    this.#isShown = isShown;
    this.show();
  }

  /** Read a view; returns what `read` returns, or throws its error. */
  async reading(read, name = VIEW) {
    const began = Date.now();
    const part = this.#parts.get(name) ?? { knownAt: null, isFollowed: false, isRead: false };
    this.#parts.set(name, part);
    part.isRead = true;
    try {
      const found = await read();
      [part.knownAt, part.isFollowed] = [began, this.#isStreaming];
      if (part === this.#parts.get(name)) this.#isShown = true;
      return found;
    } catch (error) {
      part.isFollowed = false;
      throw error;
    } finally {
      part.isRead = false;
      this.#advance();
      this.show();
    }
  }

  /** Record that a part of a view could not be read. */
  missed(name = VIEW) {
    if (this.#parts.has(name)) this.#parts.get(name).isFollowed = false;
  }

  /** Record that the live events said something. */
  heard() {
    this.#isStreaming = true;
    this.#advance();
  }

  /** Record that the live events have ended. */
  lost() {
    this.#isStreaming = false;
    for (const part of this.#parts.values()) part.isFollowed = false;
    this.#unjudged = 0;
  }

  /** Record how many seconds ago a worker made progress, null without one; the service says it every 5 s. */
  judged(age) {
    this.#unjudged = age === null ? Infinity : 1000 * age;
    this.show();
  }

  /** Follow the clock: ages grow without an event, and a sleep is a gap in it. */
  start() {
    document.addEventListener("visibilitychange", () => this.#wake());
    setInterval(() => {
      if (Date.now() - this.#tickedAt > 5000) this.#wake();
      this.#tickedAt = Date.now();
      this.show();
    }, 1000);
  }

  #wake() {
    this.#wokenAt = Date.now();
    setTimeout(() => this.show(), WAKE_MS);
  }

  #advance() {
    for (const part of this.#parts.values()) if (part.isFollowed && !part.isRead) part.knownAt = Date.now();
  }

  /** Show how old the view is. */
  show() {
    const at = Date.now();
    const says = this.level || this.#knownAt !== null;
    if (says && !document.hidden && at - this.#wokenAt >= WAKE_MS) this.#say(at);
    this.dispatchEvent(new Event("change"));
  }

  #say(at) {
    const isRead = this.#knownAt !== null;
    const unread = isRead ? at - this.#knownAt : 0;
    const unjudged = isRead ? this.#unjudged : 0;
    const age = Math.max(unread, unjudged);
    this.#become(age >= OLD_MS ? "old" : age >= LATE_MS ? "late" : "");
    const words = unread >= LATE_MS ? unanswered(unread) : stopped(unjudged);
    write(document.getElementById("stale"), this.level && words);
  }

  #become(level) {
    const view = document.getElementById("view");
    if (level === "old") withdraw(view);
    if (level === this.level) return;
    if (this.level === "old") restore(view);
    this.level = level;
    view.dataset.stale = level;
    document.getElementById("stale").hidden = !level;
    const again = this.#knownAt === null ? "" : "What is shown is current again.";
    const said = { late: "What is shown may be out of date.", "": again }[level];
    if (said !== undefined) write(document.getElementById("stale-said"), said);
  }
}

const unanswered = (age) => `No answer for ${span(age / 1000)}: shown as of ${hour(now() - age / 1000)}`;

const stopped = (age) => (age === Infinity ? "Nothing is judged: no worker runs" : `Judging has stopped: ${span(age / 1000)}`);

/** Write what a view claims to be so; the same words again leave in their place what was put there. */
export function claim(element, text) {
  if (isNew(element, text)) element.textContent = text;
}

/** Put other words in the place of what the view claims to be so, which keeps its room. */
function withdraw(view) {
  for (const claim of view.querySelectorAll(".claim:not(:has(> .instead))")) {
    const said = h("span", { class: "withdrawn", "aria-hidden": "true" }, [...claim.childNodes]);
    claim.append(said, h("span", { class: "instead" }, "Not known now"));
  }
}

function restore(view) {
  for (const said of view.querySelectorAll(".claim > .withdrawn")) said.parentElement.replaceChildren(...said.childNodes);
}

export const fresh = new Freshness();
