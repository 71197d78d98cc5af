// Following: a view is read again when something of it has changed, and now and then for what nobody tells of.

const EVERY_MS = 30_000; // A trainer that falls silent, a silence that ends, a run that is deleted: no event says so.

/**
 * Follow what live tells; returns what stops it.
 *
 * `concerns` says whether an event is of the view; `read` reads it again, never twice at once, and what is not answered
 * is asked again later; `fail` is told of an error that ends the view.
 */
export function follow(live, { concerns, read, fail, refreshMs }) {
  let isChanged = false;
  let isReading = false;
  let readAt = Date.now();
  const heard = ({ detail }) => (isChanged ||= concerns(detail));
  const back = () => (isChanged ||= live.state === "live");
  const refresh = async () => {
    if (isReading || document.hidden || !(isChanged || Date.now() - readAt > EVERY_MS)) return;
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
