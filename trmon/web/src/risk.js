// The risk of a collapse: a line for the diagnosis, and a chart with its thresholds, its drivers and what is uncertain.

import { Chart } from "./chart.js";
import { fill, h } from "./dom.js";
import { signalWords } from "./signalwords.js";
import { percent } from "./words.js";

const WARNING = ["warn", "page"];
const SHOWN = 6; // The drivers of the largest size; the others hardly matter.
const PREDICTIONS = ["collapse_risk", "collapse_risk_high"];
const PAST = "The reward has collapsed, or the run has finished: there is nothing left to predict.";

/** Whether an incident is led by a prediction: nothing has broken yet. */
export const isPrediction = (incident) => PREDICTIONS.includes(incident?.cause);

/** Return the risk in a line while it is at a threshold, else null: "63% risk of collapse within 200 steps, ...". */
export function riskLine({ diagnosis }) {
  const risk = diagnosis?.collapse_risk;
  if (!WARNING.includes(risk?.level)) return null;
  const within = `${percent(risk.probability)} risk of collapse within ${risk.horizon_steps} steps`;
  return h("p", { class: `risk risk-${risk.level}` }, within, drivenBy(risk.drivers));
}

/** Return the risk as a badge of a run in the fleet, null while it is low. */
export function riskBadge({ collapse_risk: risk }) {
  if (!WARNING.includes(risk?.level)) return null;
  const title = risk.driven_by.length ? `risk of collapse, driven by ${risk.driven_by.join(" and ")}` : "risk of collapse";
  return h("span", { class: `risk risk-${risk.level}`, title }, `${percent(risk.probability)} risk`);
}

export class RiskChart extends Chart {
  #risk = null;
  #drivers = h("div", { class: "drivers" });

  constructor(given) {
    super(given);
    this.element.classList.add("beside");
    this.element.append(this.#drivers);
  }

  /** Show the drivers of the newest step, and the thresholds of the model that made the estimate. */
  learn({ diagnosis }) {
    const risk = diagnosis?.collapse_risk ?? null;
    if (JSON.stringify(risk) === JSON.stringify(this.#risk)) return;
    const isMoved = risk?.warn_at !== this.#risk?.warn_at || risk?.page_at !== this.#risk?.page_at;
    this.#risk = risk;
    fill(this.#drivers, risk && explained(risk));
    if (isMoved) this.make();
  }

  get limits() {
    if (!this.#risk) return [];
    return [
      { at: this.#risk.warn_at, kind: "watch" },
      { at: this.#risk.page_at, kind: "act" },
    ];
  }

  reference() {
    return this.#risk ? `warns at ${percent(this.#risk.warn_at)}, pages at ${percent(this.#risk.page_at)}` : "";
  }
}

function explained(risk) {
  const shown = [...risk.drivers].sort((a, b) => Math.abs(b.log_odds) - Math.abs(a.log_odds)).slice(0, SHOWN);
  const most = Math.max(...shown.map(({ log_odds: size }) => Math.abs(size)));
  return [
    risk.level === "past" && h("p", { class: "quiet" }, PAST),
    h("p", { class: "quiet" }, "What drives it, in log-odds"),
    h(
      "ol",
      {},
      shown.sort((a, b) => b.log_odds - a.log_odds).map((driver) => line(driver, most)),
    ),
    uncertain(risk),
  ];
}

function line({ input, log_odds: size }, most) {
  const bar = h("span", { class: "bar", "aria-hidden": "true", "data-sign": size < 0 ? "against" : "for" });
  bar.style.width = `${Math.round((100 * Math.abs(size)) / (most || 1))}%`;
  return h(
    "li",
    { title: input },
    h("span", {}, signalWords(input)),
    h("span", { class: "track" }, bar),
    h("span", { class: "number" }, `${size < 0 ? "−" : "+"}${Math.abs(size).toFixed(2)}`),
  );
}

/** Say in one line which inputs the model lacks, and which are beyond what it was fitted to. */
function uncertain({ missing, outside }) {
  const parts = [
    missing.length && `Not sent: ${missing.map(signalWords).join(", ")}.`,
    outside.length && `Beyond what the model was fitted to: ${outside.map(signalWords).join(", ")}.`,
  ].filter(Boolean);
  return parts.length ? h("p", { class: "quiet uncertain", title: parts.join("\n") }, parts.join(" ")) : null;
}

function drivenBy(drivers) {
  const words = drivers.slice(0, 2).filter(({ log_odds: size }) => size > 0);
  return words.length ? `, driven by ${words.map(({ input }) => signalWords(input)).join(" and ")}` : "";
}
