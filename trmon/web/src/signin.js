// Sign-in: a token, kept for as long as the tab is open.

import { token } from "./api.js";
import { fill, h } from "./dom.js";

/** Ask for a token in place of the view; `why` says why the last one did not do. */
export function signIn(root, { why, done }) {
  const field = h("input", { type: "password", name: "token", required: true, autocomplete: "off", id: "token" });
  const enter = (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    done();
  };
  fill(
    root,
    h(
      "form",
      { class: "card empty stack", onsubmit: enter },
      h("h1", {}, "Sign in"),
      h(
        "p",
        { class: "quiet" },
        "This service knows its callers by tokens. One that may read shows everything; acknowledging and silencing need an admin's.",
      ),
      why && h("p", { role: "alert", class: "strong" }, why),
      h("label", { for: "token" }, "Token"),
      field,
      h("p", {}, h("button", { class: "main", type: "submit" }, "Sign in")),
      h("p", { class: "quiet" }, "None yet? ", h("code", {}, "trmon token create me --scope admin"), " makes one."),
    ),
  );
  field.focus();
}
