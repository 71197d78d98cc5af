// Sign-in: asks for a token, which is kept until the tab closes.

import { token } from "./api.js";
import { fill, h } from "./dom.js";

/** Ask for a token in place of the view; `why` says why the last one was rejected. */
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
        "This service requires a token. A read token shows everything; to acknowledge or silence, use an admin token.",
      ),
      why && h("p", { role: "alert", class: "strong" }, why),
      h("label", { for: "token" }, "Token"),
      field,
      h("p", {}, h("button", { class: "main", type: "submit" }, "Sign in")),
      h("p", { class: "quiet" }, "No token yet? Create one with ", h("code", {}, "trmon token create me --scope admin"), "."),
    ),
  );
  field.focus();
}
