// Live events: Server-Sent Events over fetch, because EventSource cannot send a token. After a lost connection the
// stream resumes from the last event received, so no event is missed while the service restarts.

import { headers } from "./api.js";

const SILENT_MS = 40_000; // The service sends a keep-alive every 15 s.
const WAITS_MS = [500, 1000, 2000, 5000, 10_000];

export class Live extends EventTarget {
  state = "connecting";
  heardAt = null;
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
    const place = this.#last === null ? {} : { "Last-Event-ID": this.#last };
    const answer = await fetch("/api/v1/events", { headers: headers(place), signal: this.#abort.signal });
    if (!answer.ok) throw Object.assign(new Error("refused"), { status: answer.status });
    this.#heard();
    const watchdog = setInterval(() => this.#silent() && this.#abort.abort(), 5000);
    try {
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
}

/** Wait until the tab is visible. */
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
