// The sparklines of the fleet: a list of thousands comes with the newest values alone, and those of the rows that are seen
// are read as they come into view.

import { get } from "./api.js";
import { keyOf } from "./fleetselection.js";

const WAIT_MS = 80; // Rows that only fly past are not read.
const MOST = 60; // The most that one request may name.

export class Courses {
  #known = new Map();
  #wanted = [];
  #timer = null;

  /** `arrived` is called once runs have got their sparklines; `failed` gets an error. */
  constructor({ arrived, failed }) {
    Object.assign(this, { arrived, failed });
  }

  end() {
    clearTimeout(this.#timer);
  }

  /** Return runs with the sparklines that are known of them; those of an earlier step end in the newest value. */
  joined(runs) {
    for (const [key, run] of runs) if (!isBrief(run)) this.#known.set(key, run);
    return new Map([...runs].map(([key, run]) => [key, this.#joined(key, run)]));
  }

  /** Read the sparklines of runs in view that are not known, or of an earlier step. */
  follow(runs) {
    this.#wanted = runs.filter((run) => isBrief(run) || isOld(run)).slice(0, MOST);
    if (this.#wanted.length) this.#timer ??= setTimeout(() => this.#read(), WAIT_MS);
  }

  #joined(key, run) {
    const known = this.#known.get(key);
    if (!known || !isBrief(run)) return run;
    return { ...run, reward: continued(known.reward, run.reward), kl: continued(known.kl, run.kl) };
  }

  async #read() {
    try {
      const found = this.#wanted.length ? await get("/fleet/named", { runs: this.#wanted.map(keyOf).join() }) : [];
      for (const run of found) this.#known.set(keyOf(run), run);
      this.#timer = null;
      if (found.length) this.arrived(found);
    } catch (error) {
      this.#timer = null;
      this.failed(error);
    }
  }
}

/** Whether the sparklines of a run are of an earlier step than its newest values. */
const isOld = ({ judged_step: judged, reward, kl }) => judged > ((reward ?? kl)?.last_step ?? judged);

/** Return a sparkline with the newest value at its end. */
const continued = (known, brief) => known && brief && { ...known, values: [...known.values.slice(0, -1), ...brief.values] };

/** Whether a run has come without its sparklines. */
const isBrief = ({ reward, kl }) => [reward, kl].some((line) => line && line.values.length < 2 && line.first_step < line.last_step);
