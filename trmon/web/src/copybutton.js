// A button that copies a text.

import { h } from "./dom.js";

const SHOWN_MS = 2000;

/** Return a button; `text` returns what it copies. */
export function copyButton(label, text, given = {}) {
  return h("button", { ...given, onclick: (event) => copy(event.currentTarget, { label, text: text() }) }, label);
}

async function copy(button, { label, text }) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), SHOWN_MS);
  } catch {
    // Browsers deny clipboard access to pages served over plain HTTP.
    prompt("Copy this", text);
  }
}
