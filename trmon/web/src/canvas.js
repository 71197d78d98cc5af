// One uPlot: theme colours, zoom by dragging, pan by keys and wheel; a click opens a step.

import { opts } from "./plotoptions.js";

const HEIGHT = 132;
const CLICK_PX = 3;

export class Canvas {
  #u = null;
  #data = [[]];

  constructor(where, { uPlot, course, open, label, said }) {
    Object.assign(this, { where, uPlot, course, open, said });
    where.tabIndex = 0;
    where.setAttribute("role", "group");
    where.setAttribute("aria-label", `${label}, chart`);
    where.addEventListener("keydown", (event) => this.#key(event));
    where.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.resized = new ResizeObserver(() => this.#size());
    this.resized.observe(where);
  }

  /** Rebuild the plot, for other lines or another theme. */
  make(form) {
    this.form = form;
    this.banded = form.banded;
    this.#u?.destroy();
    const hooks = { select: (from, to) => this.course.show(from, to), cursor: (at) => this.said(at) };
    const size = { width: this.where.clientWidth || 320, height: HEIGHT };
    this.#u = new this.uPlot(opts({ ...form, ...size, course: this.course, hooks }), this.#data, this.where);
    this.#listen(this.#u.over);
  }

  data(columns) {
    this.#data = columns;
    this.#u.setData(columns, false);
    this.range();
  }

  range() {
    const [min, max] = this.course.view;
    this.#u?.setScale("x", { min, max });
  }

  redraw() {
    this.#u?.redraw(false, false);
  }

  end() {
    this.resized.disconnect();
    this.#u?.destroy();
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
      if (at !== null && Math.abs(event.clientX - pressed) <= CLICK_PX) this.open(this.#u.data[0][at]);
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
      this.course.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.#u.posToVal(event.offsetX, "x"));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.course.pan((event.deltaX || event.deltaY) / this.where.clientWidth);
    }
  }
}
