// The chart panels: which ones a run has, and which of its signals each draws.

const PRIMARY = ["total", "mismatch", "staleness"];
const ENGINES = ["mismatch", "total"];

/** A panel with a `floor` has a logarithmic scale: smaller values count as zero, and estimates may be negative. */
const PANELS = [
  { title: "Reward", note: "mean", lines: [own("reward_mean", "mean")], reference: "peak" },
  {
    title: "KL",
    note: "k3, nats per token",
    lines: [
      pair("kl_k3", ["mismatch"], "engines"),
      pair("kl_k3", ["staleness"], "staleness"),
      pair("kl_k3", ["total"], "total"),
    ],
    floor: 1e-6,
    also: ["kl_k1", "kl_k2", "k3_excess", "staleness_growth"],
  },
  {
    title: "Effective samples",
    note: "by raw weights",
    lines: [pair("ess_token", PRIMARY, "tokens"), pair("ess_seq", PRIMARY, "sequences")],
    from: 0,
    also: ["ess_seq_relative"],
  },
  {
    title: "χ²",
    note: "per token",
    lines: [pair("chi2_token", PRIMARY, "mean"), pair("chi2_token_p95", PRIMARY, "p95 of sequences")],
    floor: 1e-3,
  },
  {
    title: "Engines agree",
    note: "Pearson, token probabilities",
    lines: [pair("prob_pearson", ENGINES, "")],
    also: ["prob_diff_max", "ppl_ratio"],
  },
  {
    title: "Version lag",
    note: "updates",
    lines: [own("version_lag_mean", "mean"), own("version_lag_max", "largest")],
    from: 0,
    also: ["engine_lag", "staleness_lag"],
  },
  {
    title: "Response length",
    note: "tokens",
    lines: [own("response_length_mean", "mean"), own("response_length_p95", "p95")],
    also: ["response_length_growth"],
  },
  {
    title: "Gradient norm",
    note: "before clipping",
    lines: [own("grad_norm", "")],
    from: 0,
    also: ["grad_norm_relative", "grad_variance_rise"],
  },
];

function own(name, label) {
  return { find: (names) => (names.has(name) ? name : null), label };
}

function pair(stem, pairs, label) {
  return { find: (names) => pairs.map((of) => `${of}_${stem}`).find((name) => names.has(name)) ?? null, label };
}

/** Return a signal's name without its pair: evidence may belong to another pair than the displayed one. */
export const stem = (name) => name.replace(/^(mismatch|staleness|total)_/, "");

/** Return the panels for which a run has signals, each with the full signal names. */
export function signalsOf(names) {
  return PANELS.map((panel) => {
    const lines = panel.lines
      .map((line) => ({ name: line.find(names), label: line.label }))
      .filter((line) => line.name);
    return { ...panel, lines, names: lines.map((line) => line.name) };
  }).filter((panel) => panel.lines.length);
}
