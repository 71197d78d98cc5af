// Names of runs, cut to the room that they have without losing what tells them apart; `trmon/terminal/names.py` does the
// same in the terminal.

import { keyOf } from "./api.js";
import { isNew } from "./dom.js";

const LEAST_SAVED = 2; // Characters that an ellipsis must save.
const PROJECT_SHARE = 3; // A project may have this part of the room of a run's full name.

const parted = (name) => name.match(/[^-_/:]+[-_/:]*|[-_/:]+/g);
const letters = (name) => [...name];

/** Return the texts of names by name: as they are if all fit, else with ellipses for the parts that tell nothing, the prefix
 *  that all share first, then the middle. No two names get the same text: one that would is longer than what fits. */
export function foldNames(names, fits, split = parted) {
  if (names.every(fits)) return new Map(names.map((name) => [name, name]));
  const after = new Map();
  for (const name of names) {
    for (const [begin, part] of walked([...split(name), ""])) after.set(begin, (after.get(begin) ?? new Set()).add(part));
  }
  const stretchesOf = (name) => {
    const stretches = [];
    for (const [begin, part] of walked(split(name))) {
      const tells = after.get(begin).size > 1;
      if (stretches.at(-1)?.tells === tells) stretches.at(-1).text += part;
      else stretches.push({ tells, text: part });
    }
    return stretches;
  };
  const shown = new Map(names.map((name) => [name, cut(withoutSilent(stretchesOf(name), fits), fits)]));
  if (split === parted && alike(shown).length) for (const [name, text] of foldNames(alike(shown), fits, letters)) shown.set(name, text);
  for (const name of alike(shown)) shown.set(name, name);
  return shown;
}

/** Return each part after what is before it. */
const walked = (parts, begin = "") => parts.map((part) => [begin, part, (begin += part)]);

/** Return the names whose text another one has too. */
const alike = (shown) =>
  [...Map.groupBy(shown, ([, text]) => text).values()].flatMap((same) => (same.length > 1 ? same.map(([name]) => name) : []));

function withoutSilent(stretches, fits) {
  const texts = stretches.map(({ text }) => text);
  const silent = [...texts.keys()].filter((i) => texts.length > 1 && !stretches[i].tells && texts[i].length > LEAST_SAVED);
  silent.sort((a, b) => (a > 0) - (b > 0) || texts[b].length - texts[a].length || a - b);
  for (const i of silent) {
    if (i > 0 && fits(texts.join(""))) break;
    const whole = texts[i];
    for (let n = i > 0 ? whole.length - LEAST_SAVED : 0; n >= 0; n--) {
      texts[i] = `${whole.slice(0, n)}…`;
      if (fits(texts.join(""))) break;
    }
  }
  return texts.join("");
}

/** Return a text that fits; one whose end was left out already loses more of it, another one its middle. */
function cut(text, fits) {
  if (fits(text)) return text;
  const isOpen = text.indexOf("…") === text.length - 1;
  for (let kept = text.length - 2; kept >= 0; kept--) {
    const tail = isOpen ? 0 : Math.floor(kept / 2);
    const found = `${text.slice(0, kept - tail)}…${text.slice(text.length - tail)}`.replace(/…+/g, "…");
    if (fits(found)) return found;
  }
  return text;
}

/** The texts of the names of runs in the room of a column. */
export class RunNames {
  #texts = new Map();

  /** Fold the names of runs to `room` pixels. */
  take(runs, room) {
    if (!isNew(this, room, runs.map(keyOf).sort())) return;
    const isRoomy = runs.every(({ project, run }) => pixels(project + run) <= room);
    const within = (width) => (text) => isRoomy || pixels(text) <= width;
    const ofProject = Map.groupBy(runs, ({ project }) => project);
    for (const [project, text] of foldNames([...ofProject.keys()], within(room / PROJECT_SHARE))) {
      const names = ofProject.get(project).map(({ run }) => run);
      this.#texts.set(project, { text, texts: foldNames(names, within(room - pixels(text))) });
    }
  }

  /** Return the texts of a run's project and name. */
  of({ project, run }) {
    const found = this.#texts.get(project);
    return [found.text, found.texts.get(run)];
  }
}

let pen = null;
const widths = []; // By the code of a letter.

/** Return how wide a text is where names are written, at most. */
function pixels(text) {
  if (!pen) {
    const { fontFamily, fontSize } = getComputedStyle(document.body);
    pen = document.createElement("canvas").getContext("2d");
    pen.font = `600 ${fontSize} ${fontFamily}`;
  }
  let sum = 0;
  for (let i = 0; i < text.length; i++) sum += widths[text.charCodeAt(i)] ??= pen.measureText(text[i]).width;
  return sum;
}
