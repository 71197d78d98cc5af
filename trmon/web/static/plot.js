// One uPlot: scales, axes and lines in the theme's colours, events behind the lines; zoom by dragging, pan by keys and wheel;
// a click opens a step, hovering names events.

import { h } from "./dom.js";
import { isKnown, step, tickLabels, zone } from "./words.js";

let loading = null;

export function plot() {
  loading ??= read(import.meta.resolve("./vendor/uplot-1.6.32.js")).then(() => window.uPlot);
  return loading;
}

function read(src) {
  return new Promise((done, failed) => {
    const script = Object.assign(document.createElement("script"), { src });
    script.onload = done;
    script.onerror = () => failed(new Error(`cannot load ${src}`));
    document.head.append(script);
  });
}

const DASHES = [[], [5, 3], [2, 2]];
const CLUSTER_PX = 6;
const TICK_PX = 5; // A policy change is a small tick: adaptation makes many of them, and they are not alarms.
/** The formats of ticks on an axis of times, by the distance between two ticks in seconds. */
const TIMES = [
  [86_400, "{D} {MMM}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];
const GAP_PX = 4;
const FONT = "11px system-ui, sans-serif";

const WHOLE = Array.from({ length: 10 }, (_, i) => [1, 2, 5].map((times) => times * 10 ** i)).flat();

export function opts({ n, banded, smoothed, log, from, to, healthy, limits = [], sparse, width, height, chartData, hooks }) {
  const ink = inks();
  return {
    width,
    height,
    legend: { show: false },
    padding: [6, 18, 0, 0],
    scales: { x: { time: chartData.byTime }, y: { distr: log ? 3 : 1, range: ranged(log, from, to) } },
    axes: axes(ink, log, chartData.byTime ? { values: TIMES } : { values: (_, at) => at.map(step), incrs: WHOLE }),
    series: [{}, ...Array.from({ length: n }, (_, i) => lines(ink, i, { banded, smoothed, sparse })).flat()],
    bands: banded ? Array.from({ length: n }, (_, i) => edges(i, smoothed, ink)) : [],
    cursor: cursor(ink),
    hooks: {
      drawClear: [(u) => healthy && band(u, healthy, ink), (u) => between(u, chartData, ink)],
      draw: [
        (u) => limits.forEach((limit) => level(u, limit, ink)),
        (u) => marks(u, chartData, ink),
        (u) => chartData.byTime && named(u, ink),
      ],
      setSelect: [(u) => selected(u, hooks.select)],
      setCursor: [(u) => hooks.cursor(u.cursor.idx ?? null)],
    },
  };
}

const INKS = ["accent", "accent-soft", "line", "quiet", "second", "third", "ink", "act", "watch", "good-soft", "card"];
const probe = h("span", {});

/** Return the theme's colours by the names of their tokens, as a canvas needs them: a token itself names one for each theme. */
export function inks(names = INKS) {
  document.head.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  return Object.fromEntries(names.map((name) => [name, colour(name)]));
}

/** Keep to both ends if they are given; centre a flat line; put a line of zeros at the bottom; give a logarithmic scale at least a decade. */
function ranged(log, from, to) {
  return (_, min, max) => {
    if (to !== undefined) return [from, to];
    if (min === null) return log ? [0.001, 1] : [0, 1];
    if (log) return [min / 1.3, Math.max(max * 1.3, min * 10)];
    if (max === min && min === from) return [from, from + 1];
    const room = (max - min || Math.abs(max) || 1) * 0.06;
    return [from === undefined ? min - room : Math.min(from, min), max + room];
  };
}

/** Return both axes; `given` is of the horizontal one alone. */
export function axes(ink, log, given) {
  const both = { stroke: ink.quiet, font: FONT, grid: { stroke: ink.line, width: 1 }, ticks: { show: false }, gap: GAP_PX };
  const splits = log ? { splits: decades, filter: (_, at) => at } : {};
  return [
    { ...both, size: 22, space: 70, ...given },
    { ...both, size: 50, space: 30, values: (_, at) => tickLabels(at), ...splits },
  ];
}

/** Return the powers of ten within a scale, at most four; of a scale of about a decade also twice and five times them. */
function decades(_u, _axis, min, max) {
  const [first, last] = [Math.ceil(Math.log10(min)), Math.floor(Math.log10(max))];
  const within = (at) => at >= min && at <= max;
  if (last <= first) return [first - 1, first].flatMap((power) => [1, 2, 5].map((times) => times * 10 ** power)).filter(within);
  const by = Math.ceil((last - first) / 3);
  return Array.from({ length: Math.floor((last - first) / by) + 1 }, (_, i) => 10 ** (first + i * by));
}

/** Return the series of a line in the order of its columns: the line, faint under its average if there is one, and its edges. */
function lines(ink, i, { banded, smoothed, sparse }) {
  const stroke = [ink.accent, ink.second, ink.third][i % 3];
  const line = {
    stroke,
    width: 1.5,
    dash: DASHES[(i + Math.floor(i / 3)) % 3],
    points: { show: true, filter: (u, at) => lone(u.data[at]), size: 4, fill: stroke, stroke },
    spanGaps: sparse ?? false,
  };
  const edge = { stroke: "transparent", width: 0, points: { show: false } };
  return [smoothed && { ...line, alpha: 0.25, dash: [] }, line, banded && edge, banded && edge].filter(Boolean);
}

/** Return the band between the edges of a line, the largest and the smallest values. */
function edges(i, smoothed, ink) {
  const [width, before] = smoothed ? [4, 2] : [3, 1];
  return { series: [width * i + before + 2, width * i + before + 1], fill: ink["accent-soft"] };
}

/** Draw a value without neighbours as a point. */
function lone(values) {
  return values.flatMap((value, i) => (isKnown(value) && !isKnown(values[i - 1]) && !isKnown(values[i + 1]) ? [i] : []));
}

function cursor(ink) {
  const filters = { pub: (type) => type === "mousemove" || type === "mouseleave" };
  return {
    y: false,
    points: { size: 5, fill: ink.accent },
    drag: { x: true, y: false, setScale: false },
    sync: { key: "run", filters },
    bind: { dblclick: () => () => null },
  };
}

function selected(u, select) {
  const { left, width } = u.select;
  if (width < 4) return;
  const [from, to] = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  select(from, to);
}

/** Fill the healthy range in green. */
function band(u, [least, most], ink) {
  const { left, top, width, height } = u.bbox;
  const y = (value, beyond) =>
    Number.isFinite(value) && !(u.scales.y.distr === 3 && value <= 0)
      ? clamp(u.valToPos(value, "y", true), top, top + height)
      : beyond;
  const [up, down] = [y(most, top), y(least, top + height)];
  u.ctx.save();
  u.ctx.fillStyle = ink["good-soft"];
  u.ctx.fillRect(left, up, width, down - up);
  u.ctx.restore();
}

/** Shade the steps in which the leading finding began. */
function between(u, chartData, ink) {
  const { ctx, bbox } = u;
  if (!chartData.interval) return;
  const place = (at) => clamp(u.valToPos(chartData.position(at), "x", true), bbox.left, bbox.left + bbox.width);
  const [from, to] = chartData.interval.map(place);
  ctx.save();
  ctx.fillStyle = ink[chartData.kind];
  ctx.globalAlpha = 0.1;
  ctx.fillRect(from, bbox.top, to - from, bbox.height);
  ctx.restore();
}

/** Draw a horizontal line at a value, where it is in view. */
function level({ ctx, bbox, valToPos }, { at, kind }, ink) {
  const y = Math.round(valToPos(at, "y", true)) + 0.5;
  const isInView = y >= bbox.top && y <= bbox.top + bbox.height;
  if (isInView) straight(ctx, [bbox.left, y], [bbox.left + bbox.width, y], { colour: ink[kind], dash: [6, 4] });
}

function straight(ctx, from, to, { colour, dash }) {
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(...from);
  ctx.lineTo(...to);
  ctx.stroke();
  ctx.restore();
}

/** Draw the events of a run; those a few pixels apart are one line, of the most urgent of them. */
function marks(u, chartData, ink) {
  const placed = chartData.markers.map((marker) => ({ ...marker, x: u.valToPos(chartData.position(marker.step), "x", true) }));
  for (const { x, kind } of clustered(placed)) {
    if (kind === "policy") upright(u, x, { colour: ink.quiet, dash: [], height: TICK_PX });
    else if (kind === "note") upright(u, x, { colour: ink.accent, dash: [], height: TICK_PX });
    else if (kind === "checkpoint") upright(u, x, { colour: ink.ink, dash: [], height: TICK_PX });
    else if (kind === "change") upright(u, x, { colour: ink.ink, dash: [], height: 2 * TICK_PX });
    else if (kind === "restart") upright(u, x, { colour: ink.quiet, dash: [1, 3] });
    else upright(u, x, { colour: ink[kind], dash: [3, 3] });
  }
  const { chosen } = chartData;
  if (chosen !== null) upright(u, u.valToPos(chartData.position(chosen), "x", true), { colour: ink.ink, dash: [] });
}

/** Name the zone of an axis of times, in the corner under the other axis, so that a saved picture tells it too. */
function named(u, ink) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.font = FONT.replace("11px", `${11 * devicePixelRatio}px`);
  ctx.fillStyle = ink.quiet;
  ctx.textBaseline = "top";
  ctx.fillText(zone(u.scales.x.max), 0, bbox.top + bbox.height + GAP_PX * devicePixelRatio);
  ctx.restore();
}

const URGENCY = ["checkpoint", "note", "policy", "change", "restart", "watch", "act"];

function clustered(placed) {
  const clusters = [];
  for (const marker of placed) {
    const last = clusters.at(-1);
    if (!last || marker.x - last.x > CLUSTER_PX * devicePixelRatio) clusters.push({ ...marker });
    else if (URGENCY.indexOf(marker.kind) > URGENCY.indexOf(last.kind)) last.kind = marker.kind;
  }
  return clusters;
}

function upright({ ctx, bbox }, at, { colour, dash, height = Infinity }) {
  if (at < bbox.left || at > bbox.left + bbox.width) return;
  const x = Math.round(at) + 0.5;
  straight(ctx, [x, bbox.top], [x, bbox.top + Math.min(bbox.height, height * devicePixelRatio)], { colour, dash });
}

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

const HEIGHT = 132;
const CLICK_PX = 3;
const NEAR_PX = 8;
const NAMED = 3; // Events that a tip names; it counts the others.

export class Canvas {
  #u = null;
  #data = [[]];
  #tip = h("span", { class: "tip", hidden: true });

  constructor(where, { uPlot, chartData, open, label, said, lines }) {
    Object.assign(this, { where, uPlot, chartData, open, said, lines });
    where.tabIndex = 0;
    where.setAttribute("role", "group");
    this.label = label;
    this.describe("");
    where.addEventListener("keydown", (event) => this.#key(event));
    where.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    new ResizeObserver(() => this.#size()).observe(where); // Out of the document it has no width.
  }

  /** Say in words what the chart shows, for those who do not see it. */
  describe(words) {
    this.where.setAttribute("aria-label", `${this.label}, chart${words ? `: ${words}` : ""}`);
  }

  /** Rebuild the plot, for other lines or another theme. */
  make(form) {
    this.form = form;
    this.banded = form.banded;
    this.#u?.destroy();
    const { chartData } = this;
    const hooks = {
      select: (from, to) => chartData.show(chartData.stepAt(from), chartData.stepAt(to)),
      cursor: (at) => this.#hover(at),
    };
    const size = { width: this.where.clientWidth || 320, height: HEIGHT };
    this.#u = new this.uPlot(opts({ ...form, ...size, chartData, hooks }), this.#placed(), this.where);
    this.#listen(this.#u.over);
    this.#u.over.append(this.#tip);
  }

  data(columns) {
    this.#data = columns;
    this.#u.setData(this.#placed(), false);
    this.range();
  }

  range() {
    const [min, max] = this.chartData.view.map((step) => this.chartData.position(step));
    this.#u?.setScale("x", { min, max });
  }

  redraw() {
    this.#u?.redraw(false, false);
  }

  end() {
    this.#u?.destroy();
  }

  /** Return the columns with their steps as places on the horizontal axis. */
  #placed() {
    const [steps, ...columns] = this.#data;
    return [this.chartData.byTime ? steps.map((step) => this.chartData.position(step)) : steps, ...columns];
  }

  /** Tell the values at the cursor; under the mouse, a tip names the lines and the events near it. */
  #hover(at) {
    this.said(at);
    const { left, event } = this.#u.cursor;
    this.#tip.hidden = at === null || event?.type !== "mousemove";
    if (this.#tip.hidden) return;
    const [place, beside] = [left, left + NEAR_PX].map((x) => this.chartData.stepAt(this.#u.posToVal(x, "x")));
    this.#tip.textContent = [...this.lines(at), ...told(this.chartData.markersNear(place, beside - place))].join("\n");
    this.#tip.classList.toggle("leftward", left > this.where.clientWidth / 2);
    this.#tip.style.left = `${left}px`;
  }

  #size() {
    const width = this.where.clientWidth;
    if (this.#u && width && width !== this.#u.width) this.#u.setSize({ width, height: HEIGHT });
  }

  #listen(over) {
    let pressed = null;
    over.addEventListener("mousedown", (event) => (pressed = event.clientX));
    over.addEventListener("click", (event) => {
      const at = this.#u.cursor.idx;
      if (at !== null && Math.abs(event.clientX - pressed) <= CLICK_PX) this.open(this.#data[0][at]);
    });
    over.addEventListener("dblclick", () => this.chartData.show());
  }

  #key(event) {
    const { chartData } = this;
    const act = {
      ArrowLeft: () => chartData.pan(-0.1),
      ArrowRight: () => chartData.pan(0.1),
      "+": () => chartData.zoom(0.5),
      "-": () => chartData.zoom(2),
      0: () => chartData.show(),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  /** Horizontal scrolling pans and Ctrl+scroll zooms; vertical scrolling stays with the page. */
  #wheel(event) {
    if (event.ctrlKey) {
      event.preventDefault();
      const around = this.chartData.stepAt(this.#u.posToVal(event.offsetX, "x"));
      this.chartData.zoom(event.deltaY > 0 ? 1.25 : 0.8, around);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.chartData.pan((event.deltaX || event.deltaY) / this.where.clientWidth);
    }
  }
}

function told(events) {
  const more = events.length > NAMED ? [`and ${events.length - NAMED} more`] : [];
  return [...events.slice(0, NAMED).map(({ step: at, what }) => `${step(at)}: ${what}`), ...more];
}
