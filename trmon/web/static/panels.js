// The chart panels: which ones a run has, which of its signals each draws, and their healthy ranges.

import { get } from "./api.js";
import { capital } from "./words.js";

const PRIMARY = ["total", "mismatch", "staleness"];
const ENGINES = ["mismatch", "total"];

const MOST_LINES = 6; // Of a chart: more could not be told apart.
const MOST_CHARTS = 3; // Of one kind of part: the service takes so many names at once.

/** A panel with a `floor` has a logarithmic scale: smaller values count as zero, and estimates may be negative. One with a
 *  `part` also draws the scalars that are such a part of the run, by name; one that is `sparse` connects its points. */
const PANELS = [
  { title: "Reward", note: "mean", lines: [own("reward_mean", "mean")], reference: "peak", stays: true },
  { title: "Reward by function", note: "mean", lines: [], part: "reward" },
  { title: "Evaluation", note: "reward", lines: [own("eval_reward", "reward")], part: "evaluation", sparse: true },
  {
    title: "KL",
    note: "k3, nats per token",
    lines: [
      pair("kl_k3", ["mismatch"], "engines"),
      pair("kl_k3", ["staleness"], "staleness"),
      pair("kl_k3", ["total"], "total"),
    ],
    floor: 1e-6,
  },
  {
    title: "Effective samples",
    note: "by raw weights",
    lines: [pair("ess_token", PRIMARY, "tokens"), pair("ess_seq", PRIMARY, "sequences")],
    from: 0,
  },
  {
    title: "χ²",
    note: "per token",
    lines: [pair("chi2_token", PRIMARY, "mean"), pair("chi2_token_p95", PRIMARY, "p95 of sequences")],
    floor: 1e-3,
  },
  { title: "Masked, by reason", lines: [own("mask_rate", "")], kind: "reasons" },
  {
    title: "Engines agree",
    note: "Pearson, token probabilities",
    lines: [pair("prob_pearson", ENGINES, "")],
  },
  {
    title: "Version lag",
    note: "updates",
    lines: [own("engine_lag", "engine"), own("version_lag_mean", "mean"), own("version_lag_max", "largest")],
    from: 0,
  },
  {
    title: "Response length",
    note: "tokens",
    lines: [own("response_length_mean", "mean"), own("response_length_p95", "p95")],
  },
  {
    title: "How responses end",
    note: "share",
    lines: [
      own("length_limit_share", "at the limit"),
      own("finish_stop_share", "by themselves"),
      own("finish_abort_share", "aborted"),
      own("finish_other_share", "otherwise"),
    ],
    part: "finish",
    from: 0,
  },
  {
    title: "Repetition",
    note: "share of 4-grams, within a response",
    lines: [own("repeated_share", "mean"), own("repeated_share_p95", "p95 of responses")],
    from: 0,
  },
  { title: "Distinct prompts", note: "of a batch", lines: [own("distinct_prompts", "")], from: 0 },
  {
    title: "Gradient norm",
    note: "before clipping",
    lines: [own("grad_norm", "")],
    from: 0,
  },
  {
    title: "Risk of collapse",
    note: "within 200 steps",
    lines: [own("collapse_risk", "")],
    from: 0,
    to: 1,
    kind: "risk",
  },
  {
    title: "Gradient noise",
    note: "proxy 3, a band",
    lines: [own("proxy3_pure_noise_low", "at least"), own("proxy3_pure_noise_high", "at most")],
    from: 0,
  },
  {
    title: "Gradient direction",
    note: "cosine with the update before",
    lines: [own("grad_cosine", "")],
  },
  {
    title: "Entropy",
    note: "nats per token",
    lines: [own("entropy", "of the trainer"), own("sampled_entropy", "of the samples")],
  },
  {
    title: "Entropy by advantage",
    note: "nats per token",
    lines: [own("sampled_entropy_positive", "above 0"), own("sampled_entropy_negative", "below 0")],
  },
  {
    title: "Ratio by advantage",
    note: "mean, as PPO clips it",
    lines: [own("ratio_mean_positive", "above 0"), own("ratio_mean_negative", "below 0")],
  },
  {
    title: "Pull on the entropy",
    note: "covariance of log-prob and advantage",
    lines: [own("logp_advantage_cov", "")],
  },
  {
    title: "KL to the reference",
    note: "nats per token",
    lines: [
      own("ref_kl_k3", "k3"),
      own("ref_kl_k3_is", "k3, weighted"),
      own("ref_kl_k1", "k1"),
      own("reference_kl", "of the trainer"),
    ],
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
  },
  {
    title: "Minorizer",
    note: "gain beyond the error bound, reward",
    lines: [own("minorizer", "")],
  },
];

function own(name, label) {
  return { names: [name], label };
}

function pair(stem, pairs, label) {
  return { names: pairs.map((of) => `${of}_${stem}`), label };
}

/** Return a signal's name without its pair. */
const stem = (name) => name.replace(/^(mismatch|staleness|total)_/, "");

/** Return the panels for which a run has signals, each with the full names that it draws, and in `means` also the signals
 *  that these are; first those that draw what is evidence, in its order. Args: scalars: what its other names mean. */
export function signalsOf(names, evidence, scalars = []) {
  const given = (name) => (names.has(name) ? name : scalars.find((one) => one.part === "signal" && one.signal === name)?.name);
  const draw = ({ names: of, label }) => {
    const signal = of.find((name) => evidence.includes(name) && given(name)) ?? of.find(given);
    return signal && { name: given(signal), signal, label };
  };
  const evaluations = scalars.filter(({ part, signal }) => part === "evaluation" && signal);
  const taken = new Set();
  const evaluated = (lines) =>
    evaluations.filter(({ name, signal }) => lines.some((line) => line.signal === signal) && !taken.has(name) && taken.add(name));
  const panels = PANELS.flatMap((panel) => {
    const lines = panel.lines.map(draw).filter(Boolean);
    const parts = scalars.filter(({ part, signal }) => part === panel.part && !signal);
    const others = [...parts, ...evaluated(lines)].map(({ name, words }) => ({ name, signal: name, label: words }));
    return charts(panel, [...lines, ...others]);
  });
  const others = evaluations.filter(({ name }) => !taken.has(name)).slice(0, 2 * MOST_LINES).map(ofEvaluation);
  const shown = evidence.filter(given).map((name) => panels.find((panel) => panel.means.includes(name)) ?? ofOne(given(name), name));
  return [...new Set([...shown, ...panels, ...others])];
}

/** Return a panel for so many lines, or several whose titles count. */
function charts(panel, lines) {
  const n = Math.min(Math.ceil(lines.length / MOST_LINES), MOST_CHARTS);
  return Array.from({ length: n }, (_, i) => {
    const some = lines.slice(i * MOST_LINES, (i + 1) * MOST_LINES);
    const names = some.map(({ name }) => name);
    const means = some.flatMap(({ name, signal }) => [name, signal]);
    return { ...panel, title: i ? `${panel.title}, ${i + 1}` : panel.title, lines: some, names, means };
  });
}

const ofOne = (name, signal, panel = { title: capital(signalWords(signal)) }) => charts(panel, [{ name, signal, label: "" }])[0];

const ofEvaluation = ({ name, signal }) => ofOne(name, name, { title: `Evaluation: ${signalWords(signal)}`, sparse: true });

const FORMS = [
  [/^< (\S+)$/, ([, most]) => [-Infinity, Number(most)]],
  [/^> (\S+)$/, ([, least]) => [Number(least), Infinity]],
  [/^(\S+) to (\S+)$/, ([, least, most]) => [Number(least), Number(most)]],
];

/** Return [lower, upper], or null for a signal that is compared with its own run. */
export function range(words) {
  for (const [form, bounds] of FORMS) {
    const found = form.exec(words ?? "");
    if (found) return bounds(found);
  }
  return null;
}

const WORDS = new Map();

/** Read the catalogue of signals, by name, and keep their words. */
export async function catalogueOfSignals() {
  const specs = await get("/signals");
  for (const { name, words } of specs) {
    WORDS.set(name, words);
    if (!WORDS.has(stem(name))) WORDS.set(stem(name), words);
  }
  return new Map(specs.map((spec) => [spec.name, spec]));
}

/** Return a signal in plain words: "KL per token"; one of another version is its name with spaces. */
export const signalWords = (name) => WORDS.get(name) ?? WORDS.get(stem(name)) ?? name.replaceAll("_", " ");
