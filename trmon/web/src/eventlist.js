// The events of a run as a list: alerts, policies and notes, each with its step, and how the charts mark them.

import { h, refill } from "./dom.js";
import { markLegend } from "./marklegend.js";
import { plural, step } from "./words.js";

const SHOWN = 100; // The newest.

export class EventList {
  element = h("section", { class: "eventlist", "aria-label": "Events" });
  #said = null;

  constructor(course, open) {
    Object.assign(this, { course, open });
    course.addEventListener("markers", () => this.#draw());
  }

  #draw() {
    const { markers } = this.course;
    const said = JSON.stringify(markers);
    if (said === this.#said) return;
    this.#said = said;
    const items = markers.slice(-SHOWN).map(({ step: at, what, kind }) =>
      h(
        "li",
        {},
        h("button", { class: "link", onclick: () => this.open(at) }, `step ${step(at)}`),
        h("span", { class: `kind-${kind}` }, what),
      ),
    );
    const summary = h("summary", { class: "quiet" }, plural(markers.length, "event"));
    const list = items.length > 0 && h("details", { "data-name": "events" }, summary, h("ol", {}, items));
    refill(this.element, list, markLegend(markers));
  }
}
