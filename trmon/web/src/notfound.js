// What is shown at an address that has no view.

import { fill, h } from "./dom.js";

export function notFound(root, path) {
  document.title = "Not found · trmon";
  fill(
    root,
    h(
      "section",
      { class: "card empty stack", role: "alert" },
      h("h1", {}, "Nothing is at this address."),
      h("p", {}, "There is no page ", h("code", {}, path), ". Runs are at ", h("code", {}, "/runs/PROJECT/RUN"), "."),
      h("p", {}, h("a", { href: "/" }, "All runs"), " · ", h("a", { href: "/alerts" }, "Alerts")),
    ),
  );
}
