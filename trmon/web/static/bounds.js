// Other bounds, tried by hand: what they would have rejected of the stored sequences, then as a shadow or in force.

import { get, send } from "./api.js";
import { write } from "./chartdata.js";
import { asked } from "./dialogs.js";
import { action, fill, h } from "./dom.js";
import { placeOf, valueAt } from "./heatmap.js";
import { isKnown, number, percent, plural, step } from "./words.js";

const WAIT_MS = 250;
const STEPS = 400; // Positions of a slider.
const NEAR_PX = 10;
const MOST_STEPS = 1000;

export class ThresholdEditor {
  #policy = null;
  #draft = {};
  #asked = 0;
  #timer = null;
  #given = null;

  /** `again` reads the run's facts anew after a change. */
  constructor(heat, chartData, again) {
    Object.assign(this, { heat, chartData, path: chartData.path, again });
    this.sliders = Object.fromEntries(["lower", "upper"].map((side) => [side, slider(side, (value) => this.#set(side, value))]));
    this.effect = h("div", { class: "stack", role: "status" });
    this.problem = h("p", { class: "strong", role: "alert" });
    const back = h("button", { type: "button", onclick: () => this.#reset() }, "Back to today's");
    const buttons = [
      action("Save as shadow", () => this.#save(), { title: "evaluated beside the policy, masks nothing" }),
      action("Put in force", () => this.#enforce()),
      back,
    ];
    this.body = h("div", { class: "stack" }, this.problem, Object.values(this.sliders).map(({ element }) => element), this.effect, h("div", { class: "row" }, buttons));
    this.element = h(
      "details",
      { class: "editor", ontoggle: () => this.#toggle() },
      h("summary", {}, "Try other bounds"),
      this.body,
    );
    this.#wait();
    heat.addEventListener("choosing", () => this.#wait());
    heat.addEventListener("chosen", () => this.element.open && this.#begin());
    this.#given = draftInAddress();
    if (this.#given) {
      heat.choose(this.#given.criterion);
      this.element.open = true;
    }
    this.#drag(heat.canvas);
    chartData.signal.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  #toggle() {
    if (this.element.open) return this.#begin();
    this.heat.try(null);
    keepDraft(null, this.path);
  }

  /** Take no bounds until those of the chosen criterion are known: they would be bounds of the former one. */
  #wait() {
    clearTimeout(this.#timer);
    for (const one of Object.values(this.sliders)) one.enable(false);
  }

  /** Take the policy in force and the criterion that the heat map shows; a draft of the same criterion stays. */
  async #begin() {
    const { shown } = this.heat;
    if (!shown && !this.heat.isRead) return;
    if (!shown) return fill(this.effect, h("p", {}, "No stored sequences in these steps."));
    const isSame = this.criterion && key(this.criterion) === key(shown);
    this.criterion = shown;
    if (!isSame) {
      this.#draft = this.#givenFor(shown) ?? { lower: shown.lower, upper: shown.upper };
      this.#policy = await get(`${this.path}/policy`);
    }
    for (const [side, one] of Object.entries(this.sliders)) {
      one.range(shown.edges, this.#draft[side]);
      one.enable(true);
    }
    this.heat.try(this.#draft);
    this.#keep();
    this.#later();
  }

  /** Return the bounds that the address had when the page was opened, once, if they are of this criterion. */
  #givenFor(shown) {
    const given = this.#given;
    this.#given = null;
    const isShown = given && key(given.criterion) === key(shown);
    const named = given && `${given.criterion.statistic} (${given.criterion.pair})`;
    this.problem.textContent = given && !isShown ? `The address tries ${named}, which no policy of these steps bounds.` : "";
    return isShown ? given.bounds : null;
  }

  /** Keep a draft that differs from the policy's bounds in the address. */
  #keep() {
    const isChanged = ["lower", "upper"].some((side) => (this.#draft[side] ?? null) !== (this.criterion[side] ?? null));
    keepDraft(isChanged ? { criterion: this.criterion, bounds: this.#draft } : null, this.path);
  }

  #reset() {
    this.criterion = null;
    this.#begin();
  }

  #set(side, value) {
    this.#draft = { ...this.#draft, [side]: value };
    this.sliders[side].show(value);
    this.heat.try(this.#draft);
    this.#keep();
    this.#later();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), WAIT_MS);
  }

  /** Ask what the draft would have rejected of the displayed steps; the newest answer wins. */
  async #read() {
    const turn = ++this.#asked;
    const [from, to] = this.chartData.view;
    const question = { policy: this.#drafted(), from_step: from, to_step: to, max_steps: MOST_STEPS };
    try {
      const found = await send("POST", `${this.path}/whatif`, question);
      if (turn === this.#asked) fill(this.effect, effect(found));
    } catch (error) {
      if (turn === this.#asked) fill(this.effect, h("p", { class: "strong" }, error.message));
    }
  }

  /** Return the policy in force with the draft's bounds. */
  #drafted() {
    const { policy } = this.#policy;
    const { statistic, pair, where } = this.criterion;
    const bounds = Object.fromEntries(Object.entries(this.#draft).filter(([, value]) => isKnown(value)));
    const changed = { statistic, pair, ...(where ? { where } : {}), ...bounds };
    const has = policy.criteria.some((one) => key(one) === key(changed));
    const criteria = policy.criteria.map((one) => (key(one) === key(changed) ? { ...without(one), ...changed } : one));
    const { calibrate: _, ...kept } = policy; // Bounds that are set by hand are not calibrated away.
    return { ...kept, name: `${policy.name.replace(/_by_hand$/, "")}_by_hand`, criteria: has ? criteria : [...criteria, changed] };
  }

  async #save() {
    const current = await get(`${this.path}/policy`);
    const drafted = this.#drafted();
    const shadows = [...current.shadows.filter(({ name }) => name !== drafted.name), drafted];
    await this.#put({ policy: current.policy, shadows, pinned: current.pinned, reason: "shadow tried on the page" }, current);
  }

  async #enforce() {
    const current = await get(`${this.path}/policy`);
    if (current.hash !== this.#policy.hash)
      throw new Error(`The policy is ${current.name} by ${current.author} by now: press Back to today's and try again.`);
    const { statistic, lower, upper } = this.criterion;
    const before = words({ lower, upper });
    const told = [
      h("p", {}, `${statistic}: ${before} → ${words(this.#draft)}`),
      h("div", {}, [...this.effect.childNodes].map((node) => node.cloneNode(true))),
    ];
    const isDone = await asked("Put these bounds in force", told, "Put in force", () =>
      this.#put({ policy: this.#drafted(), pinned: current.pinned, reason: `${statistic} ${words(this.#draft)}, set on the page` }, current),
    );
    if (isDone) this.#reset();
  }

  async #put(change, current) {
    await send("PUT", `${this.path}/policy`, { ...change, replaces: current.hash });
    await this.again();
  }

  /** Move a bound by dragging it on the heat map. */
  #drag(canvas) {
    let side = null;
    let isDragged = false;
    const near = (event) =>
      ["upper", "lower"].find((one) => {
        const value = this.#draft[one];
        return isKnown(value) && Math.abs(canvas.heightOf?.(value) - event.offsetY) <= NEAR_PX;
      });
    canvas.addEventListener("pointerdown", (event) => {
      side = this.element.open ? near(event) : null;
      isDragged = side !== undefined && side !== null;
      if (!side) return;
      canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    canvas.addEventListener("pointermove", (event) => {
      canvas.style.cursor = this.element.open && near(event) ? "ns-resize" : "";
      if (side) this.#set(side, rounded(canvas.valueAt(event.offsetY)));
    });
    canvas.addEventListener("pointerup", () => (side = null));
    // The click that ends a drag opens no step.
    canvas.parentElement.addEventListener("click", (event) => isDragged && event.stopPropagation(), { capture: true });
  }
}

const key = ({ statistic, pair, where }) => [statistic, pair, where ?? ""].join();
const without = ({ lower: _lower, upper: _upper, ...kept }) => kept;
const rounded = (value) => Number(value.toPrecision(3));

function words({ lower, upper }) {
  const parts = [isKnown(lower) && `at least ${number(lower)}`, isKnown(upper) && `at most ${number(upper)}`];
  return parts.filter(Boolean).join(", ") || "no bound";
}

function effect({ total, then, reasons, by_length: quarters, range, weights }) {
  const of = plural(total.n_sequences, "sequence");
  const steps = `of ${of} in ${plural(range.n_steps, "step")}`;
  const why = Object.entries(reasons).sort(([, a], [, b]) => b - a).map(([name, n]) => `${name} ${step(n)}`);
  const lengths = quarters.map(({ shortest, longest, mask_rate: rate }) => `${step(shortest)}–${step(longest)}: ${percent(rate)}`);
  return [
    h("p", {}, h("span", { class: "strong" }, weights ? softly(weights) : `Would reject ${percent(total.mask_rate)}`), ` ${steps}; was ${percent(then.mask_rate)}.`),
    weights && h("p", { class: "quiet" }, `A soft policy: ${percent(total.mask_rate)} are beyond the bounds and keep a weight.`),
    why.length > 0 && h("p", { class: "quiet" }, `Reasons: ${why.join(", ")}.`),
    lengths.length > 0 && h("p", { class: "quiet" }, `By length in tokens: ${lengths.join("; ")}.`),
    range.n_steps_without_reports > 0 && h("p", { class: "quiet" }, `${plural(range.n_steps_without_reports, "step")} without stored sequences.`),
  ];
}

const softly = ({ mean, effective_share: share }) => `Mean weight ${percent(mean)}, effective share ${percent(share)}`;

/** A bound: a slider over the edges of the heat map's bins, and a field for any number; an empty field is no bound. */
function slider(side, set) {
  const name = side === "upper" ? "Upper bound" : "Lower bound";
  const bar = h("input", { type: "range", min: 0, max: STEPS, "aria-label": name });
  const field = h("input", { type: "number", step: "any", "aria-label": `${name}, number`, placeholder: "none" });
  let edges = [0, 1];
  const positionOf = (value) => Math.round((placeOf(edges, value) / (edges.length - 1)) * STEPS);
  bar.addEventListener("input", () => set(rounded(valueAt(edges, (bar.valueAsNumber / STEPS) * (edges.length - 1)))));
  field.addEventListener("input", () => set(field.value === "" ? null : Number(field.value)));
  const show = (value) => {
    if (document.activeElement !== field) field.value = isKnown(value) ? String(rounded(value)) : "";
    bar.value = String(isKnown(value) ? positionOf(value) : side === "upper" ? STEPS : 0);
    bar.setAttribute("aria-valuetext", isKnown(value) ? number(value) : "none");
  };
  return {
    element: h("div", { class: "row bound" }, h("span", { class: "quiet" }, name), bar, field),
    range: (given, value) => {
      edges = given;
      show(value);
    },
    show,
    enable: (isEnabled) => {
      bar.disabled = field.disabled = !isEnabled;
    },
  };
}

const SIDES = ["lower", "upper"];

/** Return the draft in the address as { criterion, bounds }; null without one, or with one that cannot be read. */
function draftInAddress() {
  const given = new URLSearchParams(location.search);
  const [statistic, pair, where = null] = (given.get("try") ?? "").split(",");
  const bounds = Object.fromEntries(SIDES.map((side) => [side, given.has(side) ? Number(given.get(side) || NaN) : null]));
  const isRead = statistic && pair && Object.values(bounds).every((value) => value === null || Number.isFinite(value));
  return isRead ? { criterion: { statistic, pair, where }, bounds } : null;
}

/** Keep bounds of a criterion in the address of the run at `path`; null removes them. */
function keepDraft(draft, path) {
  if (!draft) return write({ try: null, lower: null, upper: null }, path);
  const { criterion, bounds } = draft;
  const name = [criterion.statistic, criterion.pair, criterion.where].filter(Boolean).join(",");
  write({ try: name, ...Object.fromEntries(SIDES.map((side) => [side, bounds[side] ?? null])) }, path);
}
