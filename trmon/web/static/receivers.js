// Whether no receiver is known to deliver alerts.

import { get } from "./api.js";
import { displayed, h } from "./dom.js";

/** Return words that say why alerts are shown on the page only; they stay hidden where nothing keeps them from people.
 *  They come late, and are to be put where nothing moves by them. */
export function unsentLine() {
  const line = h("span", { class: "quiet why", role: "note", hidden: true });
  const fill = ({ problem }) => {
    line.hidden = !problem;
    line.textContent = line.title = `Alerts are shown on this page only: ${problem}. docs/alerts.md says how to configure one.`;
  };
  const asked = displayed().then(() => get("/deliveries/receivers")); // After what the view is opened for.
  asked.then(fill, () => {}); // A view that is shown without it lacks nothing else.
  return line;
}
