// The healthy range of a signal, as the catalogue says it in words: "< 0.05", ">= 0.5", "0.98 to 1.02", "|x| < 0.02", "0".

const FORMS = [
  [/^0$/, () => [0, 0]],
  [/^<=? ([\d.e-]+)$/, ([, most]) => [-Infinity, Number(most)]],
  [/^>=? ([\d.e-]+)$/, ([, least]) => [Number(least), Infinity]],
  [/^([\d.e-]+) to ([\d.e-]+)$/, ([, least, most]) => [Number(least), Number(most)]],
  [/^\|x\| < ([\d.e-]+)$/, ([, most]) => [-Number(most), Number(most)]],
];

/** Return [least, most], or null where a run is its own measure. */
export function range(words) {
  for (const [form, bounds] of FORMS) {
    const found = form.exec(words ?? "");
    if (found) return bounds(found);
  }
  return null;
}
