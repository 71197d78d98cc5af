// Whether alerts are known to reach nobody.

import { get } from "./api.js";
import { h } from "./dom.js";

/** Return a line that says why alerts are shown on the page only; it stays hidden where nothing keeps them from people. */
export function unsentLine() {
  const line = h("p", { class: "quiet", role: "note", hidden: true });
  const fill = ({ problem }) => {
    line.hidden = !problem;
    line.textContent = `Alerts are shown on this page only: ${problem}. docs/alerts.md says how to configure one.`;
  };
  get("/deliveries/receivers").then(fill, () => {}); // A view that is shown without it lacks nothing else.
  return line;
}
