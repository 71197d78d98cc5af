// The chart panels: which ones a run has, which of its signals each draws, and their healthy ranges.

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
  {
    title: "Risk of collapse",
    note: "within 200 steps",
    lines: [own("collapse_risk", "")],
    from: 0,
    to: 1,
    isRisk: true,
  },
  {
    title: "Gradient noise",
    note: "proxy 3, a band",
    lines: [own("proxy3_pure_noise_low", "at least"), own("proxy3_pure_noise_high", "at most")],
    from: 0,
    also: ["proxy1_signal_strength", "proxy2_total_power_high", "grad_variance"],
  },
  {
    title: "Gradient direction",
    note: "cosine with the update before",
    lines: [own("grad_cosine", "")],
  },
  {
    title: "Pull on the entropy",
    note: "covariance of log-prob and advantage",
    lines: [own("logp_advantage_cov", "")],
    also: ["entropy_relative", "entropy_rise"],
  },
  {
    title: "KL to the reference",
    note: "nats per token",
    lines: [own("ref_kl_k3", "k3"), own("ref_kl_k3_is", "k3, weighted"), own("ref_kl_k1", "k1")],
  },
  {
    title: "Weights of sequences",
    note: "0 where rejected",
    lines: [own("sequence_weight_mean", "mean"), own("sequence_weight_ess", "effective share")],
    from: 0,
  },
  {
    title: "Turns rejected",
    note: "share",
    lines: [own("turn_mask_rate", "turns"), own("turn_mask_rate_tokens", "their tokens")],
    from: 0,
    to: 1,
  },
  {
    title: "Router flips",
    note: "other experts in training",
    lines: [own("router_flip_rate", "")],
    from: 0,
    also: ["router_flip_relative", "max_vio"],
  },
  {
    title: "Minorizer",
    note: "gain beyond the error bound, reward",
    lines: [own("minorizer", "")],
    also: ["bound_adaptive"],
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

const WORDS = {
  abs_log_ratio_max: "largest log-ratio of a token",
  chi2_token: "spread of token weights (χ²)",
  chi2_token_p95: "spread of token weights",
  clip_fraction: "clipped tokens",
  clip_fraction_rise: "clipped tokens against before",
  effective_signal: "learning signal",
  effective_signal_relative: "learning signal against the start",
  engine_lag: "versions behind at the engine",
  entropy_relative: "entropy against the start",
  entropy_rise: "trend of the entropy",
  ess_seq: "effective share of sequences",
  ess_seq_relative: "effective sequences against the start",
  ess_token: "effective share of tokens",
  grad_cosine: "cosine with the gradient before",
  grad_norm: "gradient norm",
  grad_norm_relative: "gradient norm against its median",
  grad_variance_rise: "gradient variance against before",
  invalid_fraction: "tokens without usable log-probs",
  k3_excess: "KL against the most that is possible",
  kl_k1: "KL per token, signed",
  kl_k3: "KL per token",
  kl_k3_ema: "KL per token, smoothed",
  kl_k3_relative: "KL against the start",
  length_limit_ema: "responses cut at the limit",
  length_limit_rise: "trend of cut responses",
  length_limit_share: "responses cut at the limit",
  ln_e_value: "evidence against the log-probs",
  logp_advantage_cov: "covariance of log-prob and advantage",
  lr: "learning rate",
  mask_rate: "masked sequences",
  minorizer: "gain beyond the error bound",
  nonfinite_steps: "steps with NaN or infinity",
  ppl_ratio: "ratio of perplexities",
  prob_diff_max: "largest gap of a token's probability",
  prob_diff_mean: "mean gap of token probabilities",
  prob_pearson: "agreement of token probabilities",
  proxy1_signal_strength: "squared gradient norm",
  proxy2_total_power_high: "mean squared gradient, at most",
  proxy2_total_power_low: "mean squared gradient, at least",
  proxy3_pure_noise_high: "gradient variance, at most",
  proxy3_pure_noise_low: "gradient variance, at least",
  ratio_mean: "mean importance ratio",
  ratio_shift: "shift of the mean ratio, in standard errors",
  ref_kl_k1: "KL to the reference, signed",
  ref_kl_k3: "KL to the reference",
  ref_kl_k3_is: "KL to the reference, weighted",
  response_length_growth: "response length against before",
  response_length_mean: "response length",
  response_length_relative: "response length against the start",
  reward_collapse: "fall of the reward",
  reward_decline: "slow fall of the reward",
  reward_length_corr: "correlation of reward and length",
  reward_length_corr_ema: "correlation of reward and length",
  reward_mean: "reward",
  reward_std: "spread of rewards",
  router_flip_rate: "tokens with other experts",
  router_flip_relative: "other experts against the start",
  router_replay: "routing is replayed",
  sampled_entropy: "entropy",
  saturated_fraction: "tokens with padded log-probs",
  saturated_outside_band: "padded tokens with unlikely ratios",
  kl_k3_early: "KL per token after the first updates",
  growth: "KL growth with the lag",
  lag: "updates since the rollout",
  sequence_weight_ess: "effective share of weighted sequences",
  sequence_weight_mean: "mean weight of sequences",
  staleness_abs_log_ratio_max: "largest log-ratio of the updates",
  staleness_ess_seq: "effective share of sequences in the updates",
  staleness_kl_k3: "KL of the updates",
  temperature_corr: "log-ratio follows the log-prob (correlation)",
  temperature_slope: "log-ratio follows the log-prob (slope)",
  turn_mask_rate: "masked turns",
  turn_mask_rate_tokens: "tokens of masked turns",
  version_lag_max: "versions behind",
  version_lag_mean: "age of the sampling weights",
  version_span_max: "versions within a response",
  version_span_rise: "trend of versions within a response",
  zero_variance_groups: "groups of equal rewards",
  zero_variance_groups_least: "groups of equal rewards",
};

/** Return a signal in plain words: "KL per token"; one without words is its name with spaces. */
export const signalWords = (name) => WORDS[name] ?? WORDS[stem(name)] ?? name.replaceAll("_", " ");
