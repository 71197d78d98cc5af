// The client of the public API and of its live events. The token lasts as long as the tab and is sent only in the
// Authorization header.

import { every } from "./dom.js";
import { fresh } from "./freshness.js";
import { learn } from "./words.js";

const TOKEN = "trmon.token";
export const PAGE = 1000;

/** An error response of the service, or no response at all (status 0). */
export class ApiError extends Error {
  constructor(status, message, nearest = []) {
    super(message);
    Object.assign(this, { status, nearest });
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
};

function headers(more = {}) {
  const kept = token.get();
  return kept ? { ...more, Authorization: `Bearer ${kept}` } : more;
}

const RELOAD_MS = 3000;

/** Return a module. One that does not load is of another version than the service: the page is then reloaded.
 *  Errors: ApiError if the service is away. */
export function loaded(module) {
  return module.catch(async (error) => {
    if ((await ask(location.href, {}, ({ ok }) => ok)) === true) setTimeout(() => location.reload(), RELOAD_MS);
    throw error;
  });
}

/** Return the module of the dialogs, which are loaded when the first one is opened. */
export const dialogs = () => loaded(import("./dialogs.js"));

const early = new Map();

/** Request what a view will ask first, each a path with a query, while its modules load; its `get` takes the answer. */
export function askEarly(questions) {
  early.clear();
  for (const [path, query = {}] of questions) {
    const answer = get(path, query);
    answer.catch(() => {}); // The view tells of it.
    early.set(address(path, query), answer);
  }
}

/** Return the JSON at a path under /api/v1; null values are left out of `query`. Errors: ApiError. */
export function get(path, query = {}, { signal } = {}) {
  const url = address(path, query);
  const answer = early.get(url) ?? ask(url, { headers: headers(), signal: orHung(signal) });
  early.delete(url);
  return answer;
}

const HUNG_MS = 10_000;
let asking = [];

/** Return a signal that aborts a read with another one, or once it is known to have been left without an answer. */
function orHung(signal) {
  const given = new AbortController();
  asking = [...asking.filter(({ began }) => Date.now() - began < 60 * HUNG_MS), { given, began: Date.now() }];
  return signal ? AbortSignal.any([signal, given.signal]) : given.signal;
}

/** Abort the reads of long ago: the connection of a machine that slept may never say that it has ended. */
function abortHung() {
  for (const { given, began } of asking) if (Date.now() - began > HUNG_MS) given.abort(noAnswer());
  asking = [];
}

const noAnswer = () => new ApiError(0, "The service does not respond.");

function address(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return `/api/v1${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Return a file at a path under /api/v1 as a Blob. Errors: ApiError. */
export const file = (path) => ask(`/api/v1${path}`, { headers: headers() }, (answer) => answer.blob());

/** Return every item of a list, page by page. Errors: ApiError. */
export const all = async (path, query = {}) => (await upTo(Infinity, path, query)).items;

/** Return the first `n` items of a list, page by page, and whether more follow. Errors: ApiError. */
export async function upTo(n, path, query = {}) {
  const items = [];
  let after = null;
  do {
    const page = await get(path, { ...query, after, limit: Math.min(PAGE, n - items.length) });
    items.push(...page.items);
    after = page.next;
  } while (after && items.length < n);
  return { items, hasMore: after !== null };
}

/** Send JSON and return the response body. Errors: ApiError. */
export function send(method, path, body) {
  const given = body === undefined ? {} : { body: JSON.stringify(body) };
  return ask(`/api/v1${path}`, { method, headers: headers({ "Content-Type": "application/json" }), ...given });
}

/** Ignore that a request failed, which the next update repeats; rethrow other errors. */
export function unanswered(error) {
  if (!(error instanceof ApiError)) throw error;
}

/** Return null on 404: a run without steps has no diagnosis, which is not an error. */
export async function orNothing(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

async function ask(url, options, read = (answer) => answer.json()) {
  try {
    const answer = await fetch(url, options);
    fresh.answered(true);
    learn(answer.headers.get("date"));
    if (answer.status === 204) return null;
    if (answer.ok) return await read(answer);
    throw await refusal(answer);
  } catch (error) {
    // An aborted request or a truncated response is not an error response of the service.
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    fresh.answered(false);
    throw noAnswer();
  }
}

/** Build the error of a response: problem details, unless a proxy in front of the service responded. */
async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  return new ApiError(answer.status, said.detail || said.title || `The service responded with status ${answer.status}.`, said.nearest);
}

/** The query of a run with what its page shows of it. */
export const WITH_PARTS = { include: "diagnosis,alerts,policies,attempts,notes,adaptation" };

const FIRST_RUNS = 25; // Enough to fill a screen; the service may have to compute each of them.

/** Return the query of the fleet's first page, as the address says. */
export const firstOfFleet = () => ({ limit: FIRST_RUNS, archived: new URLSearchParams(location.search).has("archived") || null });

export const keyOf = ({ project, run }) => `${project}/${run}`;

export const runPath = (project, run) => `/runs/${encodeURIComponent(project)}/${encodeURIComponent(run)}`;

/** Return the address of a comparison of runs, given as { project, run }. */
export const compareAddress = (runs) =>
  `/compare?runs=${runs.map(({ project, run }) => `${encodeURIComponent(project)}/${encodeURIComponent(run)}`).join(",")}`;

const SILENT_MS = 12_000; // The service says something every 5 s.
const WAITS_MS = [500, 1000, 2000, 5000, 10_000];

export class Live extends EventTarget {
  state = "connecting";
  heardAt = null;
  #askedAt = null;
  #last = null;
  #failures = 0;
  #abort = null;
  #resume = () => {};

  /** Stream events until the page closes; dispatches "event" with { kind, data }, and "state". Only a visible tab holds
   *  a connection: a browser opens at most six per host over HTTP/1.1, and one more tab would never load. */
  async start() {
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#abort?.abort() : this.restart()));
    for (;;) {
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
    this.#askedAt = Date.now();
    const place = this.#last === null ? {} : { "Last-Event-ID": this.#last };
    const watchdog = setInterval(() => this.#silent() && this.#abort.abort(), 1000);
    try {
      const answer = await fetch("/api/v1/events", { headers: headers(place), signal: this.#abort.signal });
      if (!answer.ok) throw Object.assign(new Error("refused"), { status: answer.status });
      this.#heard();
      abortHung();
      for await (const block of blocks(answer.body)) this.#take(block);
    } finally {
      clearInterval(watchdog);
    }
    this.#lost();
  }

  #take(block) {
    this.#heard();
    const fields = Object.fromEntries(block.split("\n").map((line) => split(line)));
    if (fields.id) this.#last = fields.id;
    if (!fields.data) return;
    if (fields.event === "judging") return fresh.judged(JSON.parse(fields.data).beat_age_seconds);
    const detail = { kind: fields.event, data: JSON.parse(fields.data) };
    this.dispatchEvent(new CustomEvent("event", { detail }));
  }

  #heard() {
    this.heardAt = Date.now();
    this.#failures = 0;
    fresh.heard();
    this.#become("live");
  }

  #silent() {
    return Date.now() - Math.max(this.#askedAt, this.heardAt ?? 0) > SILENT_MS;
  }

  #lost(error) {
    fresh.lost();
    this.#become(error?.status === 401 ? "signed out" : "reconnecting");
  }

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}

/** Wait until the tab is visible. */
async function seen() {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

async function* blocks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    yield* parts;
  }
}

function split(line) {
  const colon = line.indexOf(":");
  return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
}

/** How long what was read is shown: a silent trainer, a silence that ends, a deleted run send no event. Without the live
 *  events, as behind a proxy that holds them back, or without judging, nothing else would tell of a change. */
export const isDue = (readAt) => Date.now() - readAt > (fresh.isFollowed && !fresh.level ? 30_000 : 5000);

/**
 * Follow the live events until the view's `stage` is left.
 *
 * `concerns` says whether an event affects the view; `read` reads it again, never twice at once, and is retried
 * after an error; an error that ends the view goes to the stage; `age` renders ages that grow although nothing is read.
 * Events are heard from now on, and first read `after` a promise.
 */
export function follow(live, { stage: { fail, signal }, concerns, read, refreshMs, age = () => {}, after = null }) {
  let isChanged = false;
  let isReading = false;
  let isBegun = after === null;
  const begin = () => (isBegun = true);
  after?.then(begin, begin);
  let readAt = Date.now();
  const heard = ({ detail }) => (isChanged ||= concerns(detail));
  const back = () => {
    isChanged ||= isBegun && live.state === "live";
    if (isChanged) refresh();
  };
  const refresh = async () => {
    if (isBegun && fresh.level) age();
    if (!isBegun || isReading || document.hidden || !(isChanged || isDue(readAt))) return;
    isReading = true;
    isChanged = false;
    readAt = Date.now();
    try {
      await fresh.reading(read);
    } catch (error) {
      if ([401, 404].includes(error.status)) fail(error);
    } finally {
      isReading = false;
    }
  };
  every(refreshMs, refresh, signal);
  live.addEventListener("event", heard, { signal });
  live.addEventListener("state", back, { signal });
}

export const episode = ({ identity, attempt_id, step }) => `${identity}@${attempt_id}:${step}`;

/** Return the alerts that stand for themselves: incidents, and alerts that joined none of them. */
export function leading(alerts, incidents = alerts) {
  const joined = new Set(incidents.flatMap(({ members }) => members.map(episode)));
  return alerts.filter((alert) => !joined.has(episode(alert)));
}

/** Whether a run's trainer has sent its end, well or ill. */
export const hasEnded = ({ state }) => state === "finished" || state === "crashed";
