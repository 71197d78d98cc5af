// The badge that shows whether the displayed data is live.

import { reach } from "./api.js";
import { span } from "./words.js";

const WORDS = { connecting: "connecting", reconnecting: "reconnecting", "signed out": "signed out" };

const heard = ({ heardAt }) => (Date.now() - heardAt < 1000 ? "now" : `${span((Date.now() - heardAt) / 1000)} ago`);

/** Keep the badge up to date; ages grow without an event. Returns a function that says whether the view is of a run
 *  that has ended, beside which nothing is live. */
export function watch(badge, live) {
  let isOver = false;
  const show = () => {
    const isLive = live.state === "live" && reach.isGood;
    badge.dataset.state = isLive || live.state !== "live" ? live.state : "reconnecting";
    if (isLive) badge.textContent = isOver ? "up to date" : `live · ${heard(live)}`;
    else badge.textContent = live.state === "live" ? "no answer" : WORDS[live.state];
  };
  live.addEventListener("state", show);
  live.addEventListener("event", show);
  reach.addEventListener("change", show);
  setInterval(show, 1000);
  show();
  return (over) => {
    isOver = over;
    show();
  };
}
