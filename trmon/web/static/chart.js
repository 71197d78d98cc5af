// The charts of a run, each a figure: a title, the newest value next to its reference, a plot, and a menu that saves it.

import { get } from "./api.js";
import { limitsOf } from "./chartdata.js";
import { download, fill, h } from "./dom.js";
import { range } from "./panels.js";
import { Canvas, inks } from "./plot.js";
import { clock, number, percent, step } from "./words.js";

const ENOUGH_STEPS = 20;
const LEVEL = 0.02; // Of the largest size: less would be a line without a shape.

/** Return a text that another one covers while the cursor is on a chart, so that it takes as much room as before. */
function reading(look) {
  const [rest, over] = [h("span", {}), h("span", { class: "at" })];
  const show = (text, isAtCursor) => {
    over.textContent = isAtCursor ? text : "";
    if (!isAtCursor) rest.textContent = text;
  };
  return { element: h("span", { class: `reading ${look}` }, rest, over), show };
}

/** A subclass implements `say(at)`, which shows the values at the cursor, or the newest ones if `at` is null, and
 *  `lines(at)`, which returns the step and each value with its name and unit, and `rows()`, the drawn data as a table. */
class Figure {
  now = reading("strong");
  against = reading("quiet");
  legend = h("span", {});
  tag = h("span", { class: "tag" });

  constructor({ uPlot, chartData, panel, open, label = panel.title }) {
    const { title, note } = panel;
    const where = h("span", { class: "plot" });
    const below = h("span", { class: "note" }, note && `${note}\u2003`, this.legend);
    const menu = exportMenu(title, { rows: () => this.rows(), canvas: () => where.querySelector("canvas") });
    const words = [h("span", { class: "row tight" }, h("h2", {}, title), menu), this.now.element, below, this.against.element];
    Object.assign(this, { chartData, panel });
    this.element = h("figure", { class: "card panel" }, this.tag, h("figcaption", {}, words), where);
    const told = { said: (at) => this.say(at), lines: (at) => this.lines(at) };
    this.canvas = new Canvas(where, { uPlot, chartData, open, label, ...told });
  }

  /** Outline the chart, and say of what it is evidence; the finding that leads comes first. */
  mark() {
    const [, found] = [...this.chartData.evidence].find(([name]) => this.panel.means.includes(name)) ?? [];
    this.element.dataset.evidence = found?.kind ?? "";
    this.tag.textContent = found?.title ?? "";
  }

  /** Whether its lines are level or empty over the whole run, and none is evidence. */
  get isQuiet() {
    const { exact, signals, step: steps } = this.chartData.whole;
    if (this.panel.stays || this.element.dataset.evidence) return false;
    return this.panel.names.every((name) => {
      const { mean = [], min = [], max = [] } = signals[name] ?? {};
      return this.isFlat(exact ? mean : [...min, ...max], steps.length);
    });
  }

  /** Whether a line has no value or, once there are enough steps, is nearly level. */
  isFlat(line, n) {
    const known = line.filter((value) => value !== null);
    const [least, most] = [Math.min(...known), Math.max(...known)];
    return !known.length || (n >= ENOUGH_STEPS && most - least <= LEVEL * Math.max(Math.abs(least), Math.abs(most)));
  }

  range() {
    this.canvas.range();
    this.say(null);
  }
}

const BASELINE_POINTS = 20;

export class Chart extends Figure {
  limits = []; // The horizontal lines, each a value `at` which something is told, and its `kind`, watch or act.

  constructor(given) {
    super(given);
    this.healthy = given.chartData.catalogue.get(given.panel.lines[0].signal)?.healthy ?? "";
  }

  /** A line outside the healthy range is not quiet, however level. */
  isFlat(line, n) {
    const [least, most] = range(this.healthy) ?? [-Infinity, Infinity];
    return super.isFlat(line, n) && line.every((value) => value === null || (value >= least && value <= most));
  }

  /** Draw the limits that findings name on the scale of the chart, and the healthy range of the run. */
  learn({ diagnosis }) {
    const { means, lines } = this.panel;
    this.limit(limitsOf(diagnosis, means), diagnosis?.outside.find((one) => one.signal === lines[0].signal)?.range);
  }

  limit(limits, healthy = this.healthy) {
    if (JSON.stringify([limits, healthy]) === JSON.stringify([this.limits, this.healthy])) return;
    Object.assign(this, { limits, healthy });
    this.make();
  }

  make() {
    const { panel } = this;
    this.canvas.make({
      n: panel.lines.length,
      banded: !this.chartData.series.exact,
      smoothed: this.chartData.smoothing > 0,
      log: panel.floor !== undefined,
      sparse: panel.sparse,
      from: panel.from,
      to: panel.to,
      healthy: range(this.healthy),
      limits: this.limits,
    });
    this.data();
  }

  data() {
    const { series, smoothing } = this.chartData;
    const { banded, smoothed } = this.canvas.form;
    if (banded !== !series.exact || smoothed !== smoothing > 0) return this.make();
    const columns = this.panel.names.flatMap((name) => {
      const { mean, min, max } = series.signals[name];
      const isThere = this.#has(mean);
      const [line, ...edges] = (series.exact ? [mean] : [mean, min, max]).map((values) => this.#drawable(values, isThere));
      return smoothed ? [line, averaged(line, smoothing), ...edges] : [line, ...edges];
    });
    this.canvas.data([series.step, ...columns]);
    this.#name(series);
    this.say(null);
  }

  /** Show a legend if there is more than one line. */
  #name({ signals }) {
    const drawn = this.panel.lines
      .map((line, i) => ({ ...line, i }))
      .filter(({ name }) => this.#has(signals[name].mean));
    fill(this.legend, drawn.length > 1 && drawn.map(({ i, label }) => h("span", { class: `legend line-${i}` }, label)));
  }

  /** Show the values at the cursor, or the newest value next to its reference. */
  say(at) {
    const { series } = this.chartData;
    const values = this.panel.names.map((name) => series.signals[name].mean);
    if (at !== null) {
      this.now.show(values.map((column) => number(column[at])).join(" · "), true);
      this.against.show(`step ${step(series.step[at])}`, true);
      return;
    }
    const end = series.step.findLastIndex((step, i) => values[0][i] !== null && step <= this.chartData.view[1]);
    this.now.show(number(values[0][end]));
    this.against.show(this.chartData.isAtEnd || end < 0 ? this.reference() : `step ${step(series.step[end])}`);
    this.canvas.describe(this.#summary(values));
  }

  /** Return each line's newest value and its range, e.g. "reward newest 0.41, from 0.35 to 0.78". */
  #summary(values) {
    const parts = this.panel.lines.map(({ label }, i) => {
      const known = values[i].filter((value) => typeof value === "number");
      if (!known.length) return null;
      const name = this.panel.lines.length > 1 && label ? `${label} ` : "";
      return `${name}newest ${number(known.at(-1))}, from ${number(Math.min(...known))} to ${number(Math.max(...known))}`;
    });
    const steps = this.chartData.series.step;
    return steps.length ? [...parts.filter(Boolean), `steps ${step(steps[0])} to ${step(steps.at(-1))}`].join("; ") : "";
  }

  lines(at) {
    const { series, catalogue } = this.chartData;
    const unit = unitWords(catalogue.get(this.panel.lines[0].signal)?.unit);
    const values = this.panel.lines.map(({ name, label }) => {
      const named = label && this.panel.lines.length > 1 ? label : this.panel.title.toLowerCase();
      return `${named} ${number(series.signals[name].mean[at])}${unit}`;
    });
    const when = this.chartData.hasTimes ? `, ${clock(series.closed_at[at])}` : "";
    return [`step ${step(series.step[at])}${when}`, ...values];
  }

  rows() {
    const { series, catalogue } = this.chartData;
    const columns = this.panel.names.flatMap((name) => {
      const unit = catalogue.get(name)?.unit;
      const statistics = series.exact ? ["mean"] : ["mean", "min", "max"];
      return statistics.map((statistic) => ({
        head: `${name}${series.exact ? "" : ` ${statistic}`}${unit ? ` (${unit})` : ""}`,
        values: series.signals[name][statistic],
      }));
    });
    const time = (at) => new Date(1000 * at).toISOString();
    const body = series.step.map((at, i) => [at, time(series.closed_at[i]), ...columns.map(({ values }) => values[i])]);
    return [["step", "closed at (UTC)", ...columns.map(({ head }) => head)], ...body];
  }

  /** Return the reference of the newest value, from the whole run. */
  reference() {
    if (this.healthy) return `healthy ${this.healthy}`;
    const values = this.chartData.whole.signals[this.panel.names[0]]?.mean ?? [];
    const known = values.filter((value) => typeof value === "number");
    if (!known.length) return "";
    if (this.panel.reference === "peak") return `peak ${number(Math.max(...known))}`;
    const first = known.slice(0, BASELINE_POINTS).sort((a, b) => a - b);
    return `initially ${number(first[Math.floor(first.length / 2)])}`;
  }

  /** Whether there is data to draw: a logarithmic scale cannot show a series of zeros. */
  #has(values) {
    return values.some((value) => value !== null && (value > 0 || this.panel.floor === undefined));
  }

  /** Infinities cannot be drawn; values below the floor are drawn on it. */
  #drawable(values, isThere) {
    const { floor = -Infinity } = this.panel;
    return values.map((value) => (isThere && typeof value === "number" ? Math.max(value, floor) : null));
  }
}

/** Return the exponential moving average of the known values, without the bias of its start; the unknown stay unknown. */
export function averaged(values, weight) {
  let [sum, whole] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    [sum, whole] = [weight * sum + (1 - weight) * value, weight * whole + (1 - weight)];
    return sum / whole;
  });
}

/** Units that are no more than a number are not told. */
const PLAIN = new Set(["ratio", "fraction", "probability", "cosine", "norm", "rate", "chi2", "reward", undefined]);
const unitWords = (unit) => (PLAIN.has(unit) ? "" : ` ${unit}`);

const SHOWN = 3; // The most frequent reasons; the total includes the others.

export class ReasonsChart extends Figure {
  #found = { steps: [], mask_rate: [], reasons: {} };
  #asked = 0;

  constructor(given) {
    super({ ...given, label: "Masked" });
  }

  /** Whether nothing is masked: a chart on which everything always is, is level and not quiet. */
  isFlat(line) {
    return line.every((value) => !value);
  }

  make() {
    this.canvas.make({ n: Math.max(this.#names().length, 1), banded: false, from: 0 });
    this.#draw();
  }

  /** Read the displayed steps; if responses overtake each other, the newest request wins. */
  async data() {
    const turn = ++this.#asked;
    const [from, to] = this.chartData.view;
    const found = await get(`${this.chartData.path}/reasons`, {
      from,
      to,
      attempt_id: this.chartData.attempt,
      points: 200,
    }).catch(() => null);
    if (!found || turn !== this.#asked) return;
    const before = this.#names().join();
    this.#found = found;
    if (this.#names().join() === before) this.#draw();
    else this.make();
  }

  #names() {
    const total = (name) => this.#found.reasons[name].reduce((sum, share) => sum + share, 0);
    return Object.keys(this.#found.reasons)
      .sort((a, b) => total(b) - total(a))
      .slice(0, SHOWN);
  }

  #draw() {
    const names = this.#names();
    const columns = names.length ? names.map((name) => this.#found.reasons[name]) : [this.#found.mask_rate];
    this.canvas.data([this.#found.steps, ...columns]);
    fill(
      this.legend,
      names.map((name, i) => h("span", { class: `legend line-${i}` }, name)),
    );
    this.say(null);
  }

  lines(at) {
    const { steps, mask_rate: rates, reasons } = this.#found;
    const values = this.#names().map((name) => `${name} ${percent(reasons[name][at])}`);
    return [`step ${step(steps[at])}`, `masked ${percent(rates[at])}`, ...values];
  }

  rows() {
    const { steps, mask_rate: rates, reasons } = this.#found;
    const names = Object.keys(reasons);
    const body = steps.map((at, i) => [at, rates[i], ...names.map((name) => reasons[name][i])]);
    return [["step", "masked (fraction)", ...names.map((name) => `${name} (fraction)`)], ...body];
  }

  say(at) {
    const { steps, mask_rate: rates } = this.#found;
    const place = at === null ? rates.length - 1 : at;
    this.now.show(percent(rates[place]), at !== null);
    this.against.show(at === null ? `initially ${percent(rates[0])}` : `step ${step(steps[place])}`, at !== null);
  }
}

const TITLE_PX = 26;
const PAD_PX = 10;

/** Return a menu with both; `rows` returns the lines of the CSV, the first one with the names of the columns. */
function exportMenu(title, { rows, canvas }) {
  const name = () => `${location.pathname.split("/").slice(2).join("-")}-${title}`.replace(/[^\w.-]+/g, "-").toLowerCase();
  const menu = h(
    "details",
    { class: "export" },
    h("summary", { "aria-label": `Save the chart ${title}`, title: "Save" }, "⤓"),
    h(
      "div",
      { class: "card menu" },
      h("button", { onclick: () => close(saveCsv(rows(), `${name()}.csv`)) }, "CSV"),
      h("button", { onclick: () => close(savePng(canvas(), { title, name: `${name()}.png` })) }, "PNG"),
    ),
  );
  const close = () => (menu.open = false);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  return menu;
}

function saveCsv(rows, name) {
  const text = rows.map((row) => row.map(cell).join(",")).join("\r\n");
  download(new Blob([`${text}\r\n`], { type: "text/csv;charset=utf-8" }), name);
}

/** Return a cell; a text that a spreadsheet would take for a formula begins with an apostrophe. */
export function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Draw the chart with its title on the card's ground: a canvas alone has neither. */
function savePng(drawn, { title, name }) {
  const { card, ink } = inks();
  const ratio = devicePixelRatio;
  const [pad, top] = [PAD_PX * ratio, TITLE_PX * ratio];
  const made = Object.assign(document.createElement("canvas"), {
    width: drawn.width + 2 * pad,
    height: drawn.height + top + pad,
  });
  const ctx = made.getContext("2d");
  ctx.fillStyle = card;
  ctx.fillRect(0, 0, made.width, made.height);
  ctx.fillStyle = ink;
  ctx.font = `600 ${14 * ratio}px system-ui, sans-serif`;
  ctx.fillText(title, pad, top - 8 * ratio);
  ctx.drawImage(drawn, pad, top);
  made.toBlob((blob) => download(blob, name), "image/png");
}
