// The state in a run's address besides its name: the open step, the displayed range and the attempt; draftaddress.js has
// the bounds that are being tried.

const NUMBERS = ["step", "from", "to", "attempt"];

export function read() {
  const given = new URLSearchParams(location.search);
  const numbers = NUMBERS.map((name) => [name, /^\d+$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null]);
  return { ...Object.fromEntries(numbers), tab: given.get("tab"), by: given.get("by") };
}

/** Change the given keys; null removes a key. Nothing is written once the user has left the run at `path`. */
export function write(changes, path = location.pathname) {
  if (path !== location.pathname) return;
  const kept = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) kept.delete(name);
    else kept.set(name, value);
  }
  const query = kept.toString().replaceAll("%2C", ",");
  history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
}
