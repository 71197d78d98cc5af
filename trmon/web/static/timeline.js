// The time line of an illness: the reward with the signal to look at under it, over the whole run, and the steps in which
// it began.

import { get } from "./api.js";
import { limitsOf, POINTS } from "./chartdata.js";
import { fill, h, linePath, svg } from "./dom.js";
import { signalWords } from "./panels.js";
import { capital, number, step, tickLabels } from "./words.js";

const REWARD = "reward_mean";
const LABELS = 18; // Pixels above the strips, for the labels of the marks.
const STRIP = 62;
const GAP = 22; // Pixels above a strip, for its name.
const FOOT = 16;
const PER_LETTER = 6.3;

export class Timeline {
  element = h("div", { class: "timeline" });
  #told = null;
  #asked = 0;
  #key = null;

  constructor(chartData, open) {
    Object.assign(this, { chartData, open });
    new ResizeObserver(() => this.#draw()).observe(this.element);
  }

  /** Show a story, or nothing with null; the series is read again only when the run's last step is another.
   *
   *  As many points as the charts have, so that both tell the same newest value. */
  async show(story, lastStep) {
    this.element.hidden = story === null;
    if (!story) return;
    const names = this.#names(story);
    const key = JSON.stringify([story, names, lastStep]);
    if (key === this.#key || !names.length) return;
    this.element.style.minHeight = `${heightOf(names)}px`;
    const turn = ++this.#asked;
    const query = { names: names.join(), statistics: "mean", digits: 4, points: POINTS, attempt_id: this.chartData.attempt };
    const series = await get(`${this.chartData.path}/signals`, query).catch(() => null);
    if (!series || turn !== this.#asked) return;
    this.#key = key;
    this.#told = { story, series, names };
    this.#draw();
  }

  /** Return the reward and the signal to look at, or else of the evidence, of those that the run has as series. */
  #names({ lead }) {
    const known = [lead.chart, ...lead.evidence.map((item) => item.signal)].filter((name) => this.chartData.names.has(name));
    return [this.chartData.names.has(REWARD) && REWARD, known.find((name) => name !== REWARD)].filter(Boolean);
  }

  #draw() {
    const width = this.element.clientWidth;
    if (!this.#told || !width) return;
    const { story, series, names } = this.#told;
    const height = heightOf(names);
    const first = Math.max(series.step[0] - series.count[0] + 1, 0);
    const last = Math.max(series.step.at(-1), first + 1);
    const x = (at) => ((Math.min(Math.max(at, first), last) - first) / (last - first)) * (width - 2) + 1;
    const limits = (name) => limitsOf({ findings: [story.lead] }, [name]).map(({ at }) => at);
    const parts = names.map((name, i) => strip(series, name, { x, width, top: LABELS + i * (GAP + STRIP) + GAP, limits: limits(name) }));
    const [from, to] = story.interval.map(x);
    const bottom = height - FOOT;
    const drawing = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary(story, series, names) },
      svg("rect", { class: "ill", x: from, y: LABELS, width: Math.max(to - from, 2), height: bottom - LABELS }),
      parts,
      inRows(marks(story), { x, width }).map((mark) => marked(mark, { x, width, bottom })),
      svg("text", { x: 0, y: height - 3 }, `step ${step(first)}`),
      svg("text", { x: width, y: height - 3, "text-anchor": "end" }, step(last)),
    );
    drawing.addEventListener("click", (event) =>
      this.open(Math.round(first + (event.offsetX / width) * (last - first))),
    );
    fill(this.element, drawing);
  }
}

const heightOf = (names) => LABELS + names.length * (GAP + STRIP) + FOOT;

/** The checkpoint to go back to, where the illness began, and later where the reward fell or else where it was found. */
function marks({ checkpoint, began, found, rewardFell }) {
  const fell = rewardFell !== null && rewardFell > began && { at: rewardFell, text: "reward fell", kind: "fell" };
  const later = fell || (found > began && { at: found, text: "found", kind: "fell" });
  const saved = checkpoint !== null && { at: checkpoint, text: "checkpoint", kind: "saved" };
  return [{ at: began, text: "began", kind: "began" }, later, saved].filter(Boolean);
}

const labelOf = ({ at, text }) => `${text} ${step(at)}`;

/** Return where the label of a mark lies: after its line, or before it where the drawing ends too soon; that of a
 *  checkpoint, which the beginning follows, before its line where there is room. */
function extentOf(mark, { x, width }) {
  const [at, length] = [x(mark.at), labelOf(mark).length * PER_LETTER];
  const isBefore = mark.kind === "saved" && at - 4 - length > 0;
  return !isBefore && at + 4 + length < width ? [at + 4, at + 4 + length] : [at - 4 - length, at - 4];
}

/** Give each mark the first of two rows in which its label runs into none before it; without a row it has no label. */
function inRows(all, within) {
  const rows = [[], []];
  return all.map((mark) => {
    const [from, to] = extentOf(mark, within);
    const row = rows.findIndex((taken) => taken.every(([start, end]) => from >= end + 4 || to <= start - 4));
    rows[row]?.push([from, to]);
    return { ...mark, row };
  });
}

function marked(mark, { x, width, bottom }) {
  const { row } = mark;
  const text = row < 0 ? "" : labelOf(mark);
  const at = x(mark.at);
  const [from] = extentOf(mark, { x, width });
  const place = from > at ? { x: from } : { x: at - 4, "text-anchor": "end" };
  return svg(
    "g",
    { class: `mark ${mark.kind}` },
    svg("line", { x1: at, x2: at, y1: row === 0 ? 2 : LABELS, y2: bottom }),
    svg("text", { ...place, y: row === 0 ? 12 : LABELS + 11 }, text),
  );
}

function strip(series, name, { x, width, top, limits }) {
  const values = series.signals[name].mean.map((value) => (typeof value === "number" ? value : null));
  const known = values.filter((value) => value !== null);
  const shown = [...known, ...limits];
  const [least, most] = shown.length ? [Math.min(...shown), Math.max(...shown)] : [0, 1];
  const isLog = least > 0 && most / least > 100;
  const scale = isLog ? Math.log10 : (value) => value;
  const [low, high] = [scale(least), scale(most)];
  const y = (value) => top + STRIP - 2 - (high === low ? 0.5 : (scale(value) - low) / (high - low)) * (STRIP - 4);
  const words = `${capital(signalWords(name))} ${number(known.at(-1))}`;
  const span = high === low ? "" : `${tickLabels([least, most]).join(" to ")}${isLog ? ", logarithmic" : ""}`;
  return [
    svg("text", { class: "name", x: 0, y: top - 7 }, words),
    svg("text", { x: width, y: top - 7, "text-anchor": "end" }, span),
    svg("line", { class: "base", x1: 0, x2: width, y1: top + STRIP, y2: top + STRIP }),
    limits.map((at) => svg("line", { class: "limit", x1: 0, x2: width, y1: y(at), y2: y(at) })),
    svg("path", { class: "course", d: linePath(values, (i) => x(series.step[i]), y) }),
  ];
}

function summary({ began, found, rewardFell, lastGood, checkpoint }, series, names) {
  const newest = (name) => number(series.signals[name].mean.findLast((value) => value !== null));
  const marks = [
    lastGood !== null && `last good step ${step(lastGood)}`,
    checkpoint !== null && `checkpoint of step ${step(checkpoint)}`,
    `began at step ${step(began)}`,
    `found at step ${step(found)}`,
    rewardFell !== null && `reward fell at step ${step(rewardFell)}`,
  ];
  const values = names.map((name) => `${signalWords(name)} now ${newest(name)}`);
  return [...marks.filter(Boolean), ...values].join(", ");
}
