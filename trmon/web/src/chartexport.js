// Saves a chart as CSV, in full precision, or as PNG.

import { download } from "./download.js";
import { h } from "./dom.js";

const TITLE_PX = 26;
const PAD_PX = 10;

/** Return a menu with both; `rows` returns the lines of the CSV, the first one with the names of the columns. */
export function exportMenu(title, { rows, canvas }) {
  const name = () => `${location.pathname.split("/").slice(2).join("-")}-${title}`.replace(/[^\w.-]+/g, "-").toLowerCase();
  const menu = h(
    "details",
    { class: "export" },
    h("summary", { "aria-label": `Save the chart ${title}`, title: "Save" }, "⤓"),
    h(
      "div",
      { class: "card menu" },
      h("button", { onclick: () => close(saveCsv(rows(), `${name()}.csv`)) }, "CSV"),
      h("button", { onclick: () => close(savePng(canvas(), { title, name: `${name()}.png` })) }, "PNG"),
    ),
  );
  const close = () => (menu.open = false);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  return menu;
}

function saveCsv(rows, name) {
  const text = rows.map((row) => row.map(cell).join(",")).join("\r\n");
  download(new Blob([`${text}\r\n`], { type: "text/csv;charset=utf-8" }), name);
}

/** Return a cell; a text that a spreadsheet would take for a formula begins with an apostrophe. */
export function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Draw the chart with its title on the card's ground: a canvas alone has neither. */
function savePng(drawn, { title, name }) {
  const style = getComputedStyle(document.documentElement);
  const of = (token) => style.getPropertyValue(`--${token}`).trim();
  const ratio = devicePixelRatio;
  const [pad, top] = [PAD_PX * ratio, TITLE_PX * ratio];
  const made = Object.assign(document.createElement("canvas"), {
    width: drawn.width + 2 * pad,
    height: drawn.height + top + pad,
  });
  const ctx = made.getContext("2d");
  ctx.fillStyle = of("card");
  ctx.fillRect(0, 0, made.width, made.height);
  ctx.fillStyle = of("ink");
  ctx.font = `600 ${14 * ratio}px system-ui, sans-serif`;
  ctx.fillText(title, pad, top - 8 * ratio);
  ctx.drawImage(drawn, pad, top);
  made.toBlob((blob) => download(blob, name), "image/png");
}
