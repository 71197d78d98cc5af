// Draws the heat map: one column per step, darker where more sequences lie, with the bounds on top.

import { inks } from "./plotoptions.js";
import { number, step } from "./words.js";

const HEIGHT = 190;
const LEFT = 58;
const BOTTOM = 20;
const TICKS = 4;

/** Draw counts by step and bin; the canvas then maps positions to steps. */
export function drawHeat(canvas, found, { view, width }) {
  const ink = inks();
  const scale = devicePixelRatio;
  Object.assign(canvas, { width: width * scale, height: HEIGHT * scale });
  Object.assign(canvas.style, { width: `${width}px`, height: `${HEIGHT}px` });
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  const [from, to] = view;
  const x = (at) => LEFT + ((at - from) / Math.max(to - from, 1)) * (width - LEFT);
  const place = { ctx, ink, found, x, y: vertical(found.edges), width, from, to };
  canvas.stepAt = (offset) => from + ((offset - LEFT) / (width - LEFT)) * (to - from);
  cells(place);
  bounds(place);
  drafted(place);
  labels(place);
  canvas.valueAt = (offset) => valueAt(found.edges, offset);
  canvas.heightOf = place.y;
}

/** Return the value at a height, in pixels from the top. */
function valueAt(edges, offset) {
  const bins = edges.length - 1;
  const place = Math.min(Math.max((1 - offset / (HEIGHT - BOTTOM)) * bins, 0), bins);
  const bin = Math.min(Math.floor(place), bins - 1);
  return Number(edges[bin]) + (place - bin) * (Number(edges[bin + 1]) - Number(edges[bin]));
}

/** Draw the bounds that are being tried, over all steps. */
function drafted({ ctx, ink, found, y, width }) {
  for (const value of Object.values(found.draft ?? {})) {
    if (value === null || value === undefined) continue;
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

/** Return the position of a value between the bin edges. */
function vertical(edges) {
  const bins = edges.length - 1;
  return (value) => {
    const bin = edges.findLastIndex((edge) => edge <= value);
    const at = Math.min(Math.max(bin, 0), bins - 1);
    const within = (value - edges[at]) / (edges[at + 1] - edges[at]);
    return (HEIGHT - BOTTOM) * (1 - (at + Math.min(Math.max(within, 0), 1)) / bins);
  };
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
  for (let tick = 0; tick <= TICKS; tick++) {
    const edge = edges[Math.round((tick / TICKS) * (edges.length - 1))];
    ctx.fillText(number(Number(edge)), LEFT - 6, Math.min(Math.max(y(edge) + 4, 10), HEIGHT - BOTTOM));
  }
  ctx.textAlign = "center";
  const by = round((to - from) / TICKS);
  for (let at = Math.ceil(from / by) * by; at <= to; at += by) {
    ctx.fillText(step(at), Math.min(Math.max(x(at), LEFT + 4), width - 14), HEIGHT - 5);
  }
}
