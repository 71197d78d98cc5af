// A button that makes the service do something: once at a time, and a refusal is said beside it.

import { h } from "./dom.js";

/** Return the button and where it says why the service would not. */
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

/** Why something was not done, for people. */
export const refusal = (error) => (error.status === 403 ? "This token may only read." : error.message);
