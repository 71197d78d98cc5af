// The service's clock: ages are computed with it because a browser's clock may be hours off.

const TOLERATED_MS = 5000; // The Date header has whole seconds, and the response takes time to arrive.

let aheadMs = 0;

/** Set the offset from the Date header of a response. */
export function learn(date) {
  const off = Date.parse(date) - Date.now();
  if (!Number.isNaN(off)) aheadMs = Math.abs(off) > TOLERATED_MS ? off : 0;
}

/** Return the service's time in seconds since the epoch. */
export const now = () => (Date.now() + aheadMs) / 1000;
