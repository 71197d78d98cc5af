// The badge that shows whether the displayed data is live.

import { span } from "./words.js";

const WORDS = { connecting: "connecting", reconnecting: "reconnecting", "signed out": "signed out" };

const heard = ({ heardAt }) => (Date.now() - heardAt < 1000 ? "now" : `${span((Date.now() - heardAt) / 1000)} ago`);

/** Keep the badge up to date; ages grow without an event. */
export function watch(badge, live) {
  const show = () => {
    badge.dataset.state = live.state;
    badge.textContent = live.state === "live" ? `live · ${heard(live)}` : WORDS[live.state];
  };
  live.addEventListener("state", show);
  live.addEventListener("event", show);
  setInterval(show, 1000);
  show();
}
