// A heat map of the sequences' statistic against the policy's threshold: a column a step, darker where more sequences lie.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { inks } from "./plot.js";
import { isKnown, number, percent, step, tickLabels } from "./words.js";

const WAIT_MS = 350;
const FOLLOW_MS = 10_000; // Each response re-reads stored sequences: too expensive for every step of a fast run.
const POINTS = 120;

export class Heatmap extends EventTarget {
  #found = null;
  #asked = 0;
  #timer = null;
  #readAt = 0;
  #chosen = null;
  #isChoosing = false;

  /** Dispatches "choosing" when another criterion is asked for and "chosen" when it has been read. */
  constructor(chartData, open) {
    super();
    this.chartData = chartData;
    this.choice = h("select", { "aria-label": "Criterion", hidden: true, onchange: () => this.#choose() });
    this.now = h("span", { class: "strong" });
    this.against = h("span", { class: "quiet" });
    this.note = h("span", { class: "note" });
    this.canvas = h("canvas", { role: "img", "aria-label": "Sequences against the threshold, not read yet" });
    this.where = h("div", { class: "heat" }, this.canvas);
    const caption = h(
      "figcaption",
      {},
      h("h2", {}, "Sequences against the threshold"),
      this.now,
      h("span", { class: "note" }, this.choice, " ", this.note),
      this.against,
    );
    this.element = h("figure", { class: "card panel" }, caption, this.where);
    this.canvas.addEventListener("click", (event) => this.#open(event, open));
    const { signal } = chartData;
    new ResizeObserver(() => this.#draw()).observe(this.where);
    chartData.addEventListener("view", () => this.#later());
    window.addEventListener("themechange", () => this.#draw(), { signal });
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /** Read the new steps of a growing run, rate-limited. */
  follow() {
    if (Date.now() - this.#readAt > FOLLOW_MS) this.read();
  }

  /** Read the displayed steps; if responses overtake each other, the newest request wins. */
  async read() {
    const turn = ++this.#asked;
    this.#readAt = Date.now();
    const [from, to] = this.chartData.view;
    const query = { from, to, points: POINTS, attempt_id: this.chartData.attempt, ...this.#chosen };
    const found = await this.#ask(query);
    if (!found || turn !== this.#asked) return;
    this.#found = { ...found, draft: this.#found?.draft };
    this.#isChoosing = false;
    this.#say();
    this.#draw();
    this.dispatchEvent(new Event("chosen"));
  }

  /** Return the distribution, or null without an answer; a criterion that these steps do not have gives way to another. */
  async #ask(query) {
    try {
      return await get(`${this.chartData.path}/distribution`, query);
    } catch (error) {
      if (error.status !== 400 || !this.#chosen) return null;
      this.#chosen = null;
      return this.#ask({ ...query, statistic: null, pair: null, where: null });
    }
  }

  /** Show another criterion with the next read, given as { statistic, pair, where }. */
  choose(criterion) {
    this.#chosen = criterion;
  }

  /** Whether the steps of the chosen criterion have been read. */
  get isRead() {
    return this.#found !== null && !this.#isChoosing;
  }

  /** The criterion that is drawn, with its newest bounds and the edges of the bins; null without stored sequences or until they are read. */
  get shown() {
    if (!this.isRead || !this.#found.chosen) return null;
    const { chosen, edges, lower, upper } = this.#found;
    return { ...chosen, edges, lower: lower.at(-1), upper: upper.at(-1) };
  }

  /** Draw bounds that are being tried. */
  try(draft) {
    if (!this.#found) return;
    this.#found.draft = draft;
    this.#draw();
  }

  #later() {
    this.#draw();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read(), WAIT_MS);
  }

  #choose() {
    const { statistic, pair, where } = this.#found.criteria[this.choice.value];
    this.choose({ statistic, pair, where });
    this.#isChoosing = true;
    this.dispatchEvent(new Event("choosing"));
    this.read();
  }

  #say() {
    const { criteria, chosen, steps, counts } = this.#found;
    this.where.hidden = !chosen;
    if (!chosen) return fill(this.note, "no stored sequences with two log-probs in these steps");
    const read = ({ statistic, pair, where }) => [statistic, pair, where].join();
    fill(
      this.choice,
      criteria.map((one, value) => h("option", { value, selected: read(one) === read(chosen) }, one.statistic)),
    );
    this.choice.hidden = criteria.length < 2;
    fill(this.note, `${criteria.length < 2 ? `${chosen.statistic} ` : ""}${bound(this.#found)}`);
    const [first, last] = [this.#beyond(0), this.#beyond(steps.length - 1)];
    fill(this.now, `${percent(last)} beyond`);
    fill(this.against, `initially ${percent(first)}`);
    const n = counts.reduce((sum, row) => sum + row.reduce((a, b) => a + b, 0), 0);
    this.canvas.setAttribute(
      "aria-label",
      `${n} sequences of ${steps.length} steps: ${percent(first)} of the first step's lie beyond the bound, ${percent(last)} of the last step's`,
    );
  }

  /** Return the share of a step's sequences in bins beyond its bounds. */
  #beyond(at) {
    const { edges, counts, lower, upper, n_unknown: unknown } = this.#found;
    const row = counts[at];
    const all = row.reduce((sum, n) => sum + n, 0) + unknown[at];
    const out = row.filter(
      (_, bin) =>
        (upper[at] !== null && edges[bin] >= upper[at]) || (lower[at] !== null && edges[bin + 1] <= lower[at]),
    );
    return all ? (out.reduce((sum, n) => sum + n, 0) + unknown[at]) / all : null;
  }

  #draw() {
    if (this.#found?.chosen && this.where.clientWidth)
      drawHeat(this.canvas, this.#found, { view: this.chartData.view, width: this.where.clientWidth });
  }

  #open(event, open) {
    const { steps } = this.#found ?? { steps: [] };
    if (!steps.length) return;
    const at = this.canvas.stepAt(event.offsetX);
    open(steps.reduce((best, step) => (Math.abs(step - at) < Math.abs(best - at) ? step : best)));
  }
}

function bound({ lower, upper }) {
  const [least, most] = [lower.at(-1), upper.at(-1)];
  if (least === null) return `at most ${number(most)}`;
  return most === null ? `at least ${number(least)}` : `${number(least)} to ${number(most)}`;
}

const HEIGHT = 190;
const LEFT = 58;
const BOTTOM = 20;
const TICKS = 4;

/** Draw counts by step and bin; the canvas then maps positions to steps. */
function drawHeat(canvas, found, { view, width }) {
  const ink = inks();
  const scale = devicePixelRatio;
  Object.assign(canvas, { width: width * scale, height: HEIGHT * scale });
  Object.assign(canvas.style, { width: `${width}px`, height: `${HEIGHT}px` });
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  const [from, to] = view;
  const { edges } = found;
  const bins = edges.length - 1;
  const x = (at) => LEFT + ((at - from) / Math.max(to - from, 1)) * (width - LEFT);
  const y = (value) => (HEIGHT - BOTTOM) * (1 - placeOf(edges, value) / bins);
  const place = { ctx, ink, found, x, y, width, from, to };
  canvas.stepAt = (offset) => from + ((offset - LEFT) / (width - LEFT)) * (to - from);
  cells(place);
  bounds(place);
  drafted(place);
  labels(place);
  canvas.valueAt = (offset) => valueAt(edges, (1 - offset / (HEIGHT - BOTTOM)) * bins);
  canvas.heightOf = y;
}

/** Return the value at a place between the edges of bins: 1.5 is the middle of the second bin. */
export function valueAt(edges, place) {
  const at = Math.min(Math.max(place, 0), edges.length - 1);
  const bin = Math.min(Math.floor(at), edges.length - 2);
  return edges[bin] + (at - bin) * (edges[bin + 1] - edges[bin]);
}

/** Return the place of a value between the edges of bins. */
export function placeOf(edges, value) {
  const bin = Math.min(Math.max(edges.findLastIndex((edge) => edge <= value), 0), edges.length - 2);
  const within = (value - edges[bin]) / (edges[bin + 1] - edges[bin] || 1);
  return bin + Math.min(Math.max(within, 0), 1);
}

/** Draw the bounds that are being tried, over all steps. */
function drafted({ ctx, ink, found, y, width }) {
  for (const value of Object.values(found.draft ?? {})) {
    if (!isKnown(value)) continue;
    ctx.save();
    ctx.strokeStyle = ink.accent;
    ctx.lineWidth = 2;
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    ctx.moveTo(LEFT, y(value));
    ctx.lineTo(width, y(value));
    ctx.stroke();
    ctx.restore();
  }
}

function cells({ ctx, ink, found, x, width }) {
  const { steps, counts } = found;
  const tall = (HEIGHT - BOTTOM) / (found.edges.length - 1);
  ctx.fillStyle = ink.accent;
  steps.forEach((at, i) => {
    const left = Math.max(x(i ? (steps[i - 1] + at) / 2 : at), LEFT);
    const right = Math.min(x(i + 1 < steps.length ? (at + steps[i + 1]) / 2 : at + 1), width);
    const all = counts[i].reduce((sum, n) => sum + n, 0);
    if (right <= left || !all) return;
    counts[i].forEach((n, bin) => {
      if (!n) return;
      ctx.globalAlpha = 0.12 + 0.88 * Math.sqrt(n / all);
      ctx.fillRect(left, HEIGHT - BOTTOM - (bin + 1) * tall, right - left + 0.4, tall - 0.5);
    });
  });
  ctx.globalAlpha = 1;
}

function bounds({ ctx, ink, found, x, y }) {
  ctx.strokeStyle = ink.ink;
  ctx.lineWidth = 1.5;
  for (const bound of [found.lower, found.upper]) {
    ctx.beginPath();
    bound.forEach((value, i) => {
      if (value === null) return;
      const [left, right] = [x(found.steps[i]), x(found.steps[i + 1] ?? found.steps[i] + 1)];
      ctx.lineTo(Math.max(left, LEFT), y(value));
      ctx.lineTo(Math.max(right, LEFT), y(value));
    });
    ctx.stroke();
  }
}

/** Return the largest of 1, 2, 5, 10, 20, 50 ... that is at most a length. */
function round(length) {
  const power = 10 ** Math.floor(Math.log10(Math.max(length, 1)));
  return power * [5, 2, 1].find((times) => times * power <= Math.max(length, 1));
}

function labels({ ctx, ink, found, x, y, width, from, to }) {
  const { edges } = found;
  ctx.clearRect(0, 0, LEFT - 1, HEIGHT);
  ctx.fillStyle = ink.quiet;
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "right";
  const shown = Array.from({ length: TICKS + 1 }, (_, tick) => Number(edges[Math.round((tick / TICKS) * (edges.length - 1))]));
  tickLabels(shown).forEach((words, i) => ctx.fillText(words, LEFT - 6, Math.min(Math.max(y(shown[i]) + 4, 10), HEIGHT - BOTTOM)));
  ctx.textAlign = "center";
  const by = round((to - from) / TICKS);
  for (let at = Math.ceil(from / by) * by; at <= to; at += by) {
    ctx.fillText(step(at), Math.min(Math.max(x(at), LEFT + 4), width - 14), HEIGHT - 5);
  }
}
