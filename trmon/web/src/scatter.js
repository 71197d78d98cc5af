// A scatter plot of a policy's statistic against sequence length: does the policy reject the long sequences?

import { h, svg } from "./dom.js";
import { number, step } from "./words.js";

const WIDTH = 420;
const HEIGHT = 260;
const LEFT = 52;
const BOTTOM = 36;

export function scatter({ columns, decisions }, criterion) {
  const accepted = decisions.find((one) => one.role === "active")?.accepted;
  if (!criterion || !accepted) return null;
  const points = criterion.values
    .map((value, i) => ({ value, length: columns.n_tokens[i], accepted: accepted[i] }))
    .filter(({ value }) => typeof value === "number");
  return points.length ? h("div", {}, drawing(points, criterion), legend()) : null;
}

function drawing(points, criterion) {
  const bounds = [criterion.lower, criterion.upper].filter((bound) => bound !== null);
  const values = points.map(({ value }) => value);
  const lengths = points.map(({ length }) => length);
  const y = vertical([...values, ...bounds]);
  const x = linear(lengths, [LEFT + 8, WIDTH - 10]);
  const dots = points.map((point) => dot(point, { x, y }));
  const words = (bound) => `${bound === criterion.upper ? "at most" : "at least"} ${number(bound)}`;
  const lines = bounds.map((bound) => line(y.at(bound), words(bound)));
  const n = points.filter((point) => !point.accepted).length;
  const label = `${criterion.statistic} against length of ${points.length} sequences, ${n} of them rejected`;
  const given = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "scatter" };
  return svg("svg", given, lines, dots, ticks(x, y), names(criterion));
}

const dot = ({ length, value, accepted }, { x, y }) =>
  svg("circle", { cx: x.at(length), cy: y.at(value), r: 3, class: accepted ? "in" : "out" });

const line = (y, words) => [
  svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y, class: "bound" }),
  svg("text", { x: LEFT + 6, y: y - 5, class: "limit" }, words),
];

function legend() {
  const marks = ["in", "out"].map((kind) => h("span", { class: `dot ${kind}` }));
  return h("p", { class: "quiet small" }, marks[0], "accepted ", marks[1], "rejected");
}

function linear(values, [start, end]) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const at = (value) => (most > least ? start + ((value - least) / (most - least)) * (end - start) : (start + end) / 2);
  return { least, most, at };
}

/** Use a logarithmic scale if the values span orders of magnitude; values at or below zero lie at the bottom. */
function vertical(values) {
  const positive = values.filter((value) => value > 0);
  const least = Math.min(...positive);
  const isLog = Math.min(...values) >= 0 && positive.length > 0 && Math.max(...values) > 30 * least;
  if (!isLog) return linear(values, [HEIGHT - BOTTOM - 4, 10]);
  const scale = linear(positive.map(Math.log), [HEIGHT - BOTTOM - 4, 10]);
  return { least, most: Math.exp(scale.most), at: (value) => scale.at(Math.log(Math.max(value, least))) };
}

function ticks(x, y) {
  const text = (words, given) => svg("text", given, words);
  return [
    text(number(y.most), { x: LEFT - 6, y: y.at(y.most) + 4, "text-anchor": "end" }),
    text(number(y.least), { x: LEFT - 6, y: y.at(y.least) + 4, "text-anchor": "end" }),
    text(step(x.least), { x: x.at(x.least), y: HEIGHT - 20, "text-anchor": "middle" }),
    x.most > x.least ? text(step(x.most), { x: x.at(x.most), y: HEIGHT - 20, "text-anchor": "end" }) : null,
    svg("path", { d: `M${LEFT} 6V${HEIGHT - BOTTOM}H${WIDTH}`, class: "axis" }),
  ].filter(Boolean);
}

const names = (criterion) => [
  svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "tokens"),
  svg(
    "text",
    { x: 12, y: (HEIGHT - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(HEIGHT - BOTTOM) / 2})` },
    criterion.statistic,
  ),
];
