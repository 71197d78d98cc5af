// Parses a signal's healthy range from the catalogue: "< 0.05", ">= 0.5", "0.98 to 1.02", "|x| < 0.02", "0".

const FORMS = [
  [/^0$/, () => [0, 0]],
  [/^<=? ([\d.e-]+)$/, ([, most]) => [-Infinity, Number(most)]],
  [/^>=? ([\d.e-]+)$/, ([, least]) => [Number(least), Infinity]],
  [/^([\d.e-]+) to ([\d.e-]+)$/, ([, least, most]) => [Number(least), Number(most)]],
  [/^\|x\| < ([\d.e-]+)$/, ([, most]) => [-Number(most), Number(most)]],
];

/** Return [lower, upper], or null for a signal that is compared with its own run. */
export function range(words) {
  for (const [form, bounds] of FORMS) {
    const found = form.exec(words ?? "");
    if (found) return bounds(found);
  }
  return null;
}
