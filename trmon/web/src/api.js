// The client of the public API. The token lasts as long as the tab and is sent only in the Authorization header.

import { learn } from "./clock.js";

const TOKEN = "trmon.token";
const NEWEST = 200;
const PAGE = 1000;

/** An error response of the service, or no response at all (status 0). */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Whether the service answers: the last request did, and no view shows that it failed. Dispatches "change". */
class Reach extends EventTarget {
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
}

export const reach = new Reach();

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  clear: () => sessionStorage.removeItem(TOKEN),
};

export function headers(more = {}) {
  const kept = token.get();
  return kept ? { ...more, Authorization: `Bearer ${kept}` } : more;
}

/** Return the JSON at a path under /api/v1; null values are left out of `query`. Errors: ApiError. */
export function get(path, query = {}, { signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return ask(`/api/v1${path}${search}`, { headers: headers(), signal });
}

/** Return a file at a path under /api/v1 as a Blob. Errors: ApiError. */
export const file = (path) => ask(`/api/v1${path}`, { headers: headers() }, (answer) => answer.blob());

/** Return the newest items of a list, at most 200, oldest first. Errors: ApiError. */
export async function newestLast(path, query = {}) {
  const { items } = await get(path, { ...query, limit: NEWEST });
  return items.reverse();
}

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
    reach.answered(true);
    learn(answer.headers.get("date"));
    if (answer.status === 204) return null;
    if (answer.ok) return await read(answer);
    throw await refusal(answer);
  } catch (error) {
    // An aborted request or a truncated response is not an error response of the service.
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    reach.answered(false);
    throw new ApiError(0, "The service does not respond.");
  }
}

/** Build the error of a response: problem details, unless a proxy in front of the service responded. */
async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  return new ApiError(answer.status, said.detail || said.title || `The service responded with status ${answer.status}.`);
}

export const runPath = (project, run) => `/runs/${encodeURIComponent(project)}/${encodeURIComponent(run)}`;
