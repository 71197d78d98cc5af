// The charts of a run, each a figure: a title, the newest value next to its reference, a plot, and a menu that saves it.

import { get } from "./api.js";
import { download, fill, h } from "./dom.js";
import { limitsOf } from "./findings.js";
import { range } from "./panels.js";
import { Canvas } from "./plot.js";
import { clock, number, percent, step } from "./words.js";

/** A subclass implements `say(at)`, which shows the values at the cursor, or the newest ones if `at` is null, and
 *  `lines(at)`, which returns the step and each value with its name and unit, and `rows()`, the drawn data as a table. */
class Figure {
  now = h("span", { class: "strong" });
  against = h("span", { class: "quiet" });
  legend = h("span", {});

  constructor({ uPlot, chartData, open, title, note, label = title }) {
    const where = h("span", { class: "plot" });
    const below = h("span", { class: "note" }, note && `${note}\u2003`, this.legend);
    const menu = exportMenu(title, { rows: () => this.rows(), canvas: () => where.querySelector("canvas") });
    const words = [h("span", { class: "row tight" }, h("h2", {}, title), menu), this.now, below, this.against];
    this.chartData = chartData;
    this.element = h("figure", { class: "card panel" }, h("figcaption", {}, words), where);
    const told = { said: (at) => this.say(at), lines: (at) => this.lines(at) };
    this.canvas = new Canvas(where, { uPlot, chartData, open, label, ...told });
  }

  range() {
    this.canvas.range();
  }

  redraw() {
    this.canvas.redraw();
  }

  end() {
    this.canvas.end();
  }
}

const BASELINE_POINTS = 20;

export class Chart extends Figure {
  limits = []; // The horizontal lines, each a value `at` which something is told, and its `kind`, watch or act.

  constructor({ uPlot, chartData, panel, open }) {
    super({ uPlot, chartData, open, title: panel.title, note: panel.note });
    this.panel = panel;
    this.healthy = chartData.catalogue.get(panel.names[0])?.healthy ?? "";
  }

  /** Whether the chart draws a signal. */
  shows(name) {
    return this.panel.names.includes(name);
  }

  /** Draw the limits that findings name on the scale of the chart, and the healthy range of the run. */
  learn({ diagnosis }) {
    const { names } = this.panel;
    this.limit(limitsOf(diagnosis, names), diagnosis?.outside.find((one) => one.signal === names[0])?.range);
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
      log: panel.floor !== undefined,
      from: panel.from,
      to: panel.to,
      healthy: range(this.healthy),
      limits: this.limits,
    });
    this.data();
  }

  range() {
    super.range();
    this.say(null);
  }

  data() {
    const { series } = this.chartData;
    if (this.canvas.banded !== !series.exact) return this.make();
    const columns = this.panel.names.flatMap((name) => {
      const { mean, min, max } = series.signals[name];
      const isThere = this.#has(mean);
      return (series.exact ? [mean] : [mean, min, max]).map((values) => this.#drawable(values, isThere));
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
      this.now.textContent = values.map((column) => number(column[at])).join(" · ");
      this.against.textContent = `step ${step(series.step[at])}`;
      return;
    }
    const end = series.step.findLastIndex((step, i) => values[0][i] !== null && step <= this.chartData.view[1]);
    this.now.textContent = number(values[0][end]);
    this.against.textContent = this.chartData.isAtEnd || end < 0 ? this.reference() : `step ${step(series.step[end])}`;
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
    const unit = unitWords(catalogue.get(this.panel.names[0])?.unit);
    const values = this.panel.lines.map(({ name, label }) => {
      const named = label && this.panel.lines.length > 1 ? label : this.panel.title.toLowerCase();
      return `${named} ${number(series.signals[name].mean[at])}${unit}`;
    });
    return [`step ${step(series.step[at])}, ${clock(series.closed_at[at])}`, ...values];
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

/** Units that are no more than a number are not told. */
const PLAIN = new Set(["ratio", "fraction", "probability", "cosine", "norm", "rate", "chi2", "reward", undefined]);
const unitWords = (unit) => (PLAIN.has(unit) ? "" : ` ${unit}`);

const SHOWN = 3; // The most frequent reasons; the total includes the others.

export class ReasonsChart extends Figure {
  #found = { steps: [], mask_rate: [], reasons: {} };
  #asked = 0;

  constructor({ uPlot, chartData, open }) {
    super({ uPlot, chartData, open, title: "Masked, by reason", label: "Masked" });
  }

  shows(name) {
    return name === "mask_rate";
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
    this.now.textContent = percent(rates[place]);
    this.against.textContent = at === null ? `initially ${percent(rates[0])}` : `step ${step(steps[place])}`;
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
  const style = getComputedStyle(document.documentElement);
  const of = (token) => style.getPropertyValue(`--${token}`).trim();
  const ratio = devicePixelRatio;
  const [pad, top] = [PAD_PX * ratio, TITLE_PX * ratio];
  const made = Object.assign(document.createElement("canvas"), {
    width: drawn.width + 2 * pad,
    height: drawn.height + top + pad,
  });
  const ctx = made.getContext("2d");
  ctx.fillStyle = of("card");
  ctx.fillRect(0, 0, made.width, made.height);
  ctx.fillStyle = of("ink");
  ctx.font = `600 ${14 * ratio}px system-ui, sans-serif`;
  ctx.fillText(title, pad, top - 8 * ratio);
  ctx.drawImage(drawn, pad, top);
  made.toBlob((blob) => download(blob, name), "image/png");
}
