// An action button: runs one request at a time and shows an error next to the button.

import { h } from "./dom.js";

/** Return the button and the element that shows its error. */
export function action(text, act, given = {}) {
  const problem = h("span", { role: "alert", class: "strong" });
  let isActing = false;
  const onclick = async () => {
    if (isActing) return;
    isActing = true;
    problem.textContent = "";
    try {
      await act();
    } catch (error) {
      problem.textContent = refusal(error);
    } finally {
      isActing = false;
    }
  };
  return [h("button", { ...given, onclick }, text), problem];
}

/** Return the text of a failed request. */
export const refusal = (error) => (error.status === 403 ? "This token is read-only." : error.message);
