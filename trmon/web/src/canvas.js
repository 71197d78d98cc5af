// One uPlot: theme colours, zoom by dragging, pan by keys and wheel; a click opens a step, hovering names events.

import { h } from "./dom.js";
import { opts } from "./plotoptions.js";
import { step } from "./words.js";

const HEIGHT = 132;
const CLICK_PX = 3;
const NEAR_PX = 8;
const NAMED = 3; // Events that a tip names; it counts the others.

export class Canvas {
  #u = null;
  #data = [[]];
  #tip = h("span", { class: "tip", hidden: true });

  constructor(where, { uPlot, course, open, label, said, lines }) {
    Object.assign(this, { where, uPlot, course, open, said, lines });
    where.tabIndex = 0;
    where.setAttribute("role", "group");
    this.label = label;
    this.describe("");
    where.addEventListener("keydown", (event) => this.#key(event));
    where.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.resized = new ResizeObserver(() => this.#size());
    this.resized.observe(where);
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
    const { course } = this;
    const hooks = {
      select: (from, to) => course.show(course.stepAt(from), course.stepAt(to)),
      cursor: (at) => this.#hover(at),
    };
    const size = { width: this.where.clientWidth || 320, height: HEIGHT };
    this.#u = new this.uPlot(opts({ ...form, ...size, course, hooks }), this.#placed(), this.where);
    this.#listen(this.#u.over);
    this.#u.over.append(this.#tip);
  }

  data(columns) {
    this.#data = columns;
    this.#u.setData(this.#placed(), false);
    this.range();
  }

  range() {
    const [min, max] = this.course.view.map((step) => this.course.position(step));
    this.#u?.setScale("x", { min, max });
  }

  redraw() {
    this.#u?.redraw(false, false);
  }

  end() {
    this.resized.disconnect();
    this.#u?.destroy();
  }

  /** Return the columns with their steps as places on the horizontal axis. */
  #placed() {
    const [steps, ...columns] = this.#data;
    return [this.course.byTime ? steps.map((step) => this.course.position(step)) : steps, ...columns];
  }

  /** Tell the values at the cursor; under the mouse, a tip names the lines and the events near it. */
  #hover(at) {
    this.said(at);
    const { left, event } = this.#u.cursor;
    this.#tip.hidden = at === null || event?.type !== "mousemove";
    if (this.#tip.hidden) return;
    const [place, beside] = [left, left + NEAR_PX].map((x) => this.course.stepAt(this.#u.posToVal(x, "x")));
    this.#tip.textContent = [...this.lines(at), ...told(this.course.markersNear(place, beside - place))].join("\n");
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
    over.addEventListener("dblclick", () => this.course.show());
  }

  #key(event) {
    const { course } = this;
    const act = {
      ArrowLeft: () => course.pan(-0.1),
      ArrowRight: () => course.pan(0.1),
      "+": () => course.zoom(0.5),
      "-": () => course.zoom(2),
      0: () => course.show(),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  /** Horizontal scrolling pans and Ctrl+scroll zooms; vertical scrolling stays with the page. */
  #wheel(event) {
    if (event.ctrlKey) {
      event.preventDefault();
      const around = this.course.stepAt(this.#u.posToVal(event.offsetX, "x"));
      this.course.zoom(event.deltaY > 0 ? 1.25 : 0.8, around);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.course.pan((event.deltaX || event.deltaY) / this.where.clientWidth);
    }
  }
}

function told(events) {
  const more = events.length > NAMED ? [`and ${events.length - NAMED} more`] : [];
  return [...events.slice(0, NAMED).map(({ step: at, what }) => `${step(at)}: ${what}`), ...more];
}
