// What a run's address says beside its name: which step is open, which range is drawn, of which attempt.

const NUMBERS = ["step", "from", "to", "attempt"];

export function read() {
  const given = new URLSearchParams(location.search);
  const numbers = NUMBERS.map((name) => [name, /^\d+$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null]);
  return { ...Object.fromEntries(numbers), tab: given.get("tab") };
}

/** Change what is given; null takes it out of the address. Of a run that is left, `path`, nothing is written. */
export function write(changes, path = location.pathname) {
  if (path !== location.pathname) return;
  const kept = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) kept.delete(name);
    else kept.set(name, value);
  }
  const query = kept.toString();
  history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
}
