// What time it is by the service's clock: what it tells is told by it, and a browser's may be hours off.

const TOLERATED_MS = 5000; // An answer's date is in whole seconds, and on its way for a while.

let aheadMs = 0;

/** Learn from the date of an answer. */
export function learn(date) {
  const off = Date.parse(date) - Date.now();
  if (!Number.isNaN(off)) aheadMs = Math.abs(off) > TOLERATED_MS ? off : 0;
}

/** Seconds since the epoch. */
export const now = () => (Date.now() + aheadMs) / 1000;
