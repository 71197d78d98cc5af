// Keeps a view up to date: reads it again when an event concerns it, and periodically for changes without an event.

const EVERY_MS = 30_000; // A silent trainer, a silence that ends, a deleted run: these changes send no event.

/**
 * Follow the live events; returns a function that stops it.
 *
 * `concerns` says whether an event affects the view; `read` reads it again, never twice at once, and is retried
 * after an error; `fail` receives the error that ends the view. Events are heard from now on, and first read `after` a
 * promise.
 */
export function follow(live, { concerns, read, fail, refreshMs, after = null }) {
  let isChanged = false;
  let isReading = false;
  let isBegun = after === null;
  const begin = () => (isBegun = true);
  after?.then(begin, begin);
  let readAt = Date.now();
  const heard = ({ detail }) => (isChanged ||= concerns(detail));
  const back = () => (isChanged ||= isBegun && live.state === "live");
  const refresh = async () => {
    if (!isBegun || isReading || document.hidden || !(isChanged || Date.now() - readAt > EVERY_MS)) return;
    isReading = true;
    isChanged = false;
    readAt = Date.now();
    try {
      await read();
    } catch (error) {
      if ([401, 404].includes(error.status)) fail(error);
    } finally {
      isReading = false;
    }
  };
  const timer = setInterval(refresh, refreshMs);
  live.addEventListener("event", heard);
  live.addEventListener("state", back);
  return () => {
    clearInterval(timer);
    live.removeEventListener("event", heard);
    live.removeEventListener("state", back);
  };
}
