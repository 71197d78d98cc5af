// The chart panels: which ones a run has, which of its signals each draws, and their healthy ranges.

import { get } from "./api.js";
import { capital } from "./words.js";

const PRIMARY = ["total", "mismatch", "staleness"];
const ENGINES = ["mismatch", "total"];

/** A panel with a `floor` has a logarithmic scale: smaller values count as zero, and estimates may be negative. */
const PANELS = [
  { title: "Reward", note: "mean", lines: [own("reward_mean", "mean")], reference: "peak", stays: true },
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
    title: "Pull on the entropy",
    note: "covariance of log-prob and advantage",
    lines: [own("logp_advantage_cov", "")],
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

/** Return the panels for which a run has signals, each with the full signal names; first those that draw what is evidence,
 *  in its order. */
export function signalsOf(names, evidence) {
  const first = (of) => evidence.find((name) => names.has(name) && of.includes(name)) ?? of.find((name) => names.has(name));
  const panels = PANELS.map((panel) => {
    const lines = panel.lines.map((line) => ({ name: first(line.names), label: line.label })).filter((line) => line.name);
    return { ...panel, lines, names: lines.map((line) => line.name) };
  }).filter((panel) => panel.lines.length);
  const shown = evidence
    .filter((name) => names.has(name))
    .map((name) => panels.find((panel) => panel.names.includes(name)) ?? ofOne(name));
  return [...new Set([...shown, ...panels])];
}

const ofOne = (name) => ({ title: capital(signalWords(name)), lines: [{ name, label: "" }], names: [name] });

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
