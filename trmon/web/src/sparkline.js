// A sparkline: a single SVG path without axes, cheap enough for a list of a thousand.

import { svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 26;

/** Return a drawing of values (null where unknown), lowest at the bottom; a flat line lies in the middle.
 *  The height spans at least `least`, so that noise below the healthy limit does not look large. */
export function sparkline(values, label, least = []) {
  const known = [...values.filter((value) => value !== null), ...least];
  const bottom = Math.min(...known);
  const range = Math.max(...known) - bottom;
  const x = (i) => (values.length < 2 ? WIDTH / 2 : (i / (values.length - 1)) * (WIDTH - 2) + 1);
  const y = (value) => (range > 0 ? HEIGHT - 2 - ((value - bottom) / range) * (HEIGHT - 4) : HEIGHT / 2);
  let path = "";
  values.forEach((value, i) => {
    if (value === null) return;
    path += `${i && values[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    svg("path", { d: path }),
  );
}
