"""The catalogue of signals: name, unit, description, formula and healthy range of each signal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trmon_client.core.column_schema import PAIRS, Pair

REGISTRY_VERSION = 1
"""Incremented when a signal changes its name or meaning; stored with each batch of signals."""


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """A signal: `stem` is its name without the pair, `core` marks the signals that Prometheus exposes.

    `words` name it within a sentence, without the pair. `healthy` is the range outside which a finding or a preset
    reacts; empty if a run is compared with itself.
    """

    name: str
    stem: str
    pair: Pair | None
    unit: str
    words: str
    description: str
    formula: str
    healthy: str
    core: bool

    @classmethod
    def of(
        cls,
        stem: str,
        unit: str,
        description: str,
        formula: str,
        healthy: str = "",
        *,
        pair: Pair | None = None,
        words: str = "",
    ) -> SignalSpec:
        """Return the entry of a signal; without words, its name is used."""
        name = stem if pair is None else f"{pair}_{stem}"
        words = words or stem.replace("_", " ")
        return cls(name, stem, pair, unit, words, description, formula, healthy, core=stem in _CORE)


_Row = tuple[str, ...]
"""The stem, the unit, the description, the formula and, if there is one, the healthy range."""

_PAIR_ROWS: tuple[_Row, ...] = (
    ("kl_k1", "nats", "KL per token by the signed, unbiased estimator k1", "-(sum d)/n", "|x| < 0.02"),
    ("kl_k2", "nats", "KL per token by k2; grows before a collapse that rewards hide", "(sum d^2)/(2n)"),
    ("kl_k3", "nats", "KL per token by the non-negative estimator k3", "(sum rho - 1 - d)/n", "< 0.005"),
    ("ratio_mean", "ratio", "Mean importance ratio; away from 1, the supports differ", "mean rho", "0.995 to 1.005"),
    ("k3_k1_ratio", "ratio", "k3 over k1; large when log-probs are corrupt", "kl_k3/kl_k1 if |kl_k1| > 1e-6"),
    ("abs_log_ratio_mean", "nats", "Mean absolute token log-ratio", "(sum |d|)/n"),
    ("abs_log_ratio_max", "nats", "Largest absolute token log-ratio", "max |d|"),
    ("abs_log_ratio_p99", "nats", "99th percentile of |d|, from the histogram", "p99 |d|"),
    ("abs_log_ratio_p999", "nats", "99.9th percentile of |d|, from the histogram", "p99.9 |d|"),
    ("chi2_token", "chi2", "Token chi-squared; can be negative on a sample", "mean rho^2 - 1", "< 0.3"),
    ("chi2_token_sn", "chi2", "Token chi-squared, self-normalised", "n sum rho^2/(sum rho)^2 - 1", "< 0.3"),
    ("chi2_token_p95", "chi2", "95th percentile of the sequences' chi-squared", "p95_i mean_t rho^2 - 1", "< 0.3"),
    ("chi2_seq_log1p", "nats", "Log of 1 + sequence chi-squared", "log mean_i exp(2 S_i)"),
    ("chi2_seq", "chi2", "Sequence chi-squared, capped at 1e12", "mean_i exp(2 S_i) - 1"),
    ("ess_token", "fraction", "Effective share of tokens under raw weights", "(sum rho)^2/(n sum rho^2)", ">= 0.5"),
    ("ess_seq", "fraction", "Effective share of sequences; falls with length", "(sum w)^2/(N sum w^2), w = e^S_i"),
    ("ess_truncated", "fraction", "Effective share of tokens, ratios cut at 2: hides outliers", "of min(rho, 2)"),
    ("is_weight_std", "ratio", "Standard deviation of token importance ratios", "std rho"),
    ("is_weight_min", "ratio", "Smallest token importance ratio", "min rho", ">= 1e-4"),
    ("is_weight_max", "ratio", "Largest token importance ratio", "max rho"),
    ("tv", "fraction", "Total variation per token, unbiased", "(sum max(0, 1 - rho))/n"),
    ("tv_seq_max", "fraction", "Largest total variation of a sequence", "max_i mean_t max(0, 1 - rho)"),
    ("geo_ratio_mean", "ratio", "Mean geometric mean ratio of sequences", "mean_i exp(S_i/T_i)", "0.99 to 1.01"),
    ("geo_ratio_min", "ratio", "Smallest geometric mean ratio of a sequence", "min_i exp(S_i/T_i)", ">= 0.99"),
    ("geo_ratio_max", "ratio", "Largest geometric mean ratio of a sequence", "max_i exp(S_i/T_i)", "<= 1.01"),
    (
        "drift_spread",
        "nats^2",
        "Spread of the sequences' log-ratios per token; unknown below 32 sequences",
        "((q84 - q16)/2)^2 of (S_i - T_i sum S/sum T)/sqrt(T_i)",
    ),
    ("seq_log_ratio_mean", "nats", "Mean log-ratio of whole sequences", "mean_i S_i"),
    ("seq_log_ratio_min", "nats", "Smallest log-ratio of a whole sequence", "min_i S_i"),
    ("seq_log_ratio_max", "nats", "Largest log-ratio of a whole sequence", "max_i S_i"),
    ("band_fraction", "fraction", "Tokens whose ratio leaves [0.5, 5]", "#(rho < 0.5 or rho > 5)/n", "< 0.01"),
    ("trunc_fraction", "fraction", "Tokens whose ratio exceeds 2", "#(rho > 2)/n"),
    ("prob_pearson", "ratio", "Correlation of the two policies' token probabilities", "corr(p, q)", ">= 0.99"),
    ("prob_diff_mean", "probability", "Mean gap of token probabilities", "mean |p - q|"),
    ("prob_diff_std", "probability", "Standard deviation of the gap of token probabilities", "std |p - q|"),
    ("prob_diff_max", "probability", "Largest gap of token probabilities; bounds TV below", "max |p - q|"),
    ("ppl_ratio", "ratio", "Perplexity of numerator over denominator", "mean_i exp(-S_i/T_i)", "0.99 to 1.01"),
    ("log_ppl_diff_mean", "nats", "Mean gap of log-perplexities", "mean_i -S_i/T_i"),
    ("log_ppl_diff_abs_mean", "nats", "Mean absolute gap of log-perplexities", "mean_i |S_i/T_i|"),
    ("log_ppl_diff_min", "nats", "Smallest gap of log-perplexities", "min_i -S_i/T_i"),
    ("log_ppl_diff_max", "nats", "Largest gap of log-perplexities", "max_i -S_i/T_i"),
    ("binary_kl_mean", "nats", "Mean certified lower bound of the token KL", "mean binary KL"),
    ("binary_kl_max", "nats", "Largest certified lower bound of a token's KL", "max binary KL", "<= 0.05"),
    ("logp_slope_q", "ratio", "Slope of d on the denominator's log-prob", "cov(d, log q)/var(log q)", "|x| < 0.012"),
    ("logp_slope_p", "ratio", "Slope of d on the numerator's log-prob", "cov(d, log p)/var(log p)", "|x| < 0.012"),
    ("logp_corr_q", "ratio", "Correlation of d with the denominator's log-prob", "corr(d, log q)", "|x| < 0.3"),
    ("temperature_near", "ratio", "End of the temperature ratio nearer to 1", "1 + logp_slope_q"),
    ("temperature_far", "ratio", "End of the temperature ratio farther from 1", "1 + var(d)/cov(d, log q)"),
    ("ln_e_value", "nats", "Evidence that the denominator did not sample", "log mean_l prod 1 + l (rho - 1)", "< 13.8"),
)

_BATCH_ROWS: tuple[_Row, ...] = (
    ("staleness_tv_is", "fraction", "Unbiased TV of staleness", "sum |rho_total - rho_mismatch|/(2n)"),
    ("ppl_rollout", "perplexity", "Perplexity under the rollout engine", "mean_i exp(-sum log mu/T_i)"),
    ("ppl_old", "perplexity", "Perplexity of the trainer at rollout weights", "mean_i exp(-sum log pi_old/T_i)"),
    ("ppl", "perplexity", "Perplexity of the trainer at current weights", "mean_i exp(-sum log pi/T_i)"),
    ("response_length_mean", "tokens", "Mean number of valid tokens of a response", "mean_i T_i"),
    (
        "sampled_entropy",
        "nats",
        "Entropy of the sampler, estimated from its samples",
        "-(sum log mu)/n, else of pi_old, else of pi",
    ),
    ("mu_zero_saturated_share", "fraction", "Saturated share of the tokens with log mu = 0", "n_saturated/n_mu_zero"),
    ("n_mu_zero", "tokens", "Tokens that are certain to the sampler", "#(log mu = 0)"),
    ("n_mu_zero_unlikely", "tokens", "Those that are unlikely to the trainer", "#(log mu = 0, p < 0.5)"),
    ("n_unlikely", "tokens", "Tokens that are unlikely to the trainer", "#(p < 0.5), p of pi_old, else of pi"),
    ("n_prob_diff_half", "tokens", "Tokens whose probabilities differ by more than a half", "#(|p - mu| > 0.5)"),
    ("n_zero_tail", "tokens", "Tokens with log mu = 0 at the ends of sequences", "#(trailing log mu = 0)"),
    ("n_positive", "tokens", "Tokens with an impossible log-prob", "#(a log-prob > 1e-4)"),
    (
        "positive_fraction",
        "fraction",
        "Share of the tokens with an impossible log-prob",
        "n_positive/(valid + invalid)",
    ),
    ("positive_max", "nats", "Largest impossible log-prob; above 1 no probability", "max of log-probs > 1e-4"),
    ("mu_logprob_mean", "nats", "Mean log-prob of the sampler", "(sum log mu)/n"),
    (
        "logp_unit",
        "ratio",
        "Slope through 0 of log p on log mu; 0.69 if mu is in log2",
        "1 + (sum d log mu)/(sum log^2 mu)",
    ),
    (
        "logp_unit_residual",
        "fraction",
        "Share of the squared log-ratios that another unit does not explain",
        "1 - (sum d log mu)^2/(sum log^2 mu sum d^2)",
    ),
    (
        "seq_shift_share",
        "fraction",
        "Share of log-ratios left in the sequences' sums; small if shifted",
        "(sum |S_i|)/(sum |d|)",
    ),
    ("response_length_median", "tokens", "Median number of valid tokens of a response", "median_i T_i"),
    ("response_length_p95", "tokens", "95th percentile of response lengths", "p95_i T_i"),
    ("response_length_max", "tokens", "Longest response", "max_i T_i"),
    (
        "length_limit_share",
        "fraction",
        "Responses cut at the length limit",
        "mean truncated, else by reason, else share at cap",
    ),
    ("finish_stop_share", "fraction", "Responses that ended by themselves", "of those with a finish reason"),
    ("finish_abort_share", "fraction", "Responses that were aborted", "of those with a finish reason"),
    ("finish_other_share", "fraction", "Responses that ended otherwise", "of those with a finish reason"),
    (
        "repeated_share",
        "fraction",
        "4-grams of tokens that occurred earlier in the same response",
        "n_repeated_four_grams/n_four_grams",
    ),
    (
        "repeated_share_p95",
        "fraction",
        "95th percentile of the responses' share of repeated 4-grams",
        "p95_i n_repeated_four_grams/n_four_grams",
    ),
    ("clip_fraction", "fraction", "Tokens on PPO's clipped branch", "n_clipped/n", "<= 0.2"),
    ("leak_fraction", "fraction", "Tokens beyond the clip range that PPO does not clip", "n_leaked/n"),
    ("leak_high_fraction", "fraction", "Unclipped tokens of unbounded loss: rho high, A < 0", "n_leaked_high/n"),
    ("dual_clip_fraction", "fraction", "Tokens that dual clip bounds: rho > 3, A < 0", "n_dual_clipped/n"),
    ("clip_fraction_positive", "fraction", "Of the tokens with A > 0, those clipped: rho > 1.2", "by their number"),
    ("clip_fraction_negative", "fraction", "Of the tokens with A < 0, those clipped: rho < 0.8", "by their number"),
    ("leak_fraction_positive", "fraction", "Of the tokens with A > 0, those of rho < 0.8", "by their number"),
    ("leak_fraction_negative", "fraction", "Of the tokens with A < 0, those of rho > 1.2", "by their number"),
    ("reward_mean", "reward", "Mean reward", "mean_i R_i"),
    ("reward_std", "reward", "Standard deviation of rewards", "std_i R_i"),
    ("reward_min", "reward", "Smallest reward", "min_i R_i"),
    ("reward_q01", "reward", "1st percentile of rewards", "p1_i R_i"),
    ("reward_q05", "reward", "5th percentile of rewards", "p5_i R_i"),
    ("reward_q25", "reward", "25th percentile of rewards", "p25_i R_i"),
    ("reward_median", "reward", "Median reward", "median_i R_i"),
    ("reward_q75", "reward", "75th percentile of rewards", "p75_i R_i"),
    ("reward_q95", "reward", "95th percentile of rewards", "p95_i R_i"),
    ("reward_q99", "reward", "99th percentile of rewards", "p99_i R_i"),
    ("reward_max", "reward", "Largest reward", "max_i R_i"),
    ("reward_invalid_share", "fraction", "Sequences whose reward is not finite", "#(R_i not finite)/N"),
    ("advantage_max", "reward", "Largest advantage of a sequence", "max_i A_i"),
    ("advantage_min", "reward", "Smallest advantage of a sequence", "min_i A_i"),
    ("advantage_invalid_share", "fraction", "Sequences whose advantage is not finite", "#(A_i not finite)/N"),
    ("reward_length_corr", "ratio", "Correlation of reward and response length", "corr_i(R_i, T_i)", "<= 0.5"),
    ("zero_variance_groups", "fraction", "Groups whose rewards are equal", "of groups of two or more", "<= 0.9"),
    ("all_solved_groups", "fraction", "Groups with the better of two rewards only", "of groups of two or more"),
    ("none_solved_groups", "fraction", "Groups with the worse of two rewards only", "of groups of two or more"),
    ("effective_signal", "reward", "Mean squared deviation of rewards in a group", "mean_g sum (R - mean)^2/(g - 1)"),
    ("group_ratio_variance", "ratio", "Variance of geometric ratios in a group", "mean_g var_g exp(S_i/T_i)"),
    ("distinct_prompts", "prompts", "Distinct group ids of the batch", "#{g_i}"),
    ("distinct_prompt_share", "fraction", "Distinct group ids of the batch for each sequence", "#{g_i}/N"),
    (
        "sampled_entropy_positive",
        "nats",
        "Entropy of the sampler in responses of positive advantage",
        "sampled_entropy where A_i > 0",
    ),
    (
        "sampled_entropy_negative",
        "nats",
        "Entropy of the sampler in responses of negative advantage",
        "sampled_entropy where A_i < 0",
    ),
    (
        "ratio_mean_positive",
        "ratio",
        "Mean ratio that PPO clips, in responses of positive advantage",
        "mean rho where A_i > 0",
    ),
    (
        "ratio_mean_negative",
        "ratio",
        "Mean ratio that PPO clips, in responses of negative advantage",
        "mean rho where A_i < 0",
    ),
    ("version_lag_mean", "versions", "Mean age of the sampling weights", "mean_i trainer - version_min_i"),
    ("version_lag_max", "versions", "Largest age of the sampling weights", "max_i trainer - version_min_i"),
    ("version_span_max", "versions", "Most versions within a response", "max_i version_max_i - version_min_i"),
    ("invalid_fraction", "fraction", "Tokens without usable log-probs", "n_invalid/(valid + invalid)", "<= 0.01"),
    ("saturated_fraction", "fraction", "Tokens of padded log-probs", "n_saturated/(valid + invalid)"),
    ("clamped_fraction", "fraction", "Tokens with |d| > 20", "n_clamped/(valid + invalid)"),
    ("kl_max", "nats", "Largest token KL, from logits", "max KL(p||q)", "<= 0.05"),
    ("kl_mean", "nats", "Mean token KL, from logits", "mean_t KL(p||q)", "<= 0.001"),
    ("kl_seq", "nats", "Mean KL of whole sequences, from logits", "mean_i sum_t KL(p||q)"),
    ("reverse_kl_max", "nats", "Largest reverse token KL, from logits", "max KL(q||p)"),
    ("tv_max", "fraction", "Largest token total variation, from logits", "max 1/2 sum |p - q|"),
    ("tv_mean", "fraction", "Mean token total variation, from logits", "mean_t 1/2 sum |p - q|"),
    ("mismatch_exact_tv_max", "fraction", "Largest TV of mismatch, from logits", "max 1/2 sum |pi_old - mu|"),
    ("mismatch_exact_tv_mean", "fraction", "Mean TV of mismatch, from logits", "mean_t 1/2 sum |pi_old - mu|"),
    ("staleness_exact_tv_max", "fraction", "Largest TV of staleness, from logits", "max 1/2 sum |pi - pi_old|"),
    ("staleness_exact_tv_mean", "fraction", "Mean TV of staleness, from logits", "mean_t 1/2 sum |pi - pi_old|"),
    ("ref_kl_k1", "nats", "KL to the reference policy by k1, signed", "-(sum d)/n, d = log ref - log policy"),
    ("ref_kl_k2", "nats", "KL to the reference policy by k2", "(sum d^2)/(2n)"),
    ("ref_kl_k3", "nats", "KL to the reference policy by k3", "(sum e^d - 1 - d)/n"),
    ("ref_kl_k3_max", "nats", "Largest k3 of a token to the reference policy", "max e^d - 1 - d"),
    (
        "ref_kl_k3_is",
        "nats",
        "KL to the reference policy by k3 under importance weights, unbiased under mu",
        "(sum (policy/mu) k3)/n",
    ),
    (
        "proxy2_total_power_low",
        "power",
        "Mean squared gradient of a sequence by its logits, at least",
        "mean_i A_i^2 W_i, W >= sum_t (1 - pi)^2",
    ),
    (
        "proxy2_total_power_high",
        "power",
        "Mean squared gradient of a sequence by its logits, at most",
        "mean_i A_i^2 W_i, W <= 2 sum_t (1 - pi)^2",
    ),
    (
        "logp_advantage_cov",
        "covariance",
        "Covariance of log-prob and advantage: above 0 updates lower the entropy",
        "cov_t(log pi, A_i)",
    ),
    (
        "leak_share",
        "fraction",
        "Of the tokens beyond the clip range, those that PPO does not clip",
        "n_leaked/(n_clipped + n_leaked)",
    ),
    ("token_mask_rate", "fraction", "Tokens that the policy's token rules mask", "n_token_masked/n"),
    ("token_trunc_rate", "fraction", "Tokens whose weight the token rules cut", "n_token_truncated/n"),
    ("token_weight_mean", "ratio", "Mean weight of a token under the token rules", "(sum w)/n"),
    ("token_weight_ess", "fraction", "Effective share of tokens under these weights", "(sum w)^2/(n sum w^2)"),
)

_SCALAR_ROWS: tuple[_Row, ...] = (
    (
        "clip_fraction_high",
        "fraction",
        "Tokens clipped as their ratio is above the range",
        "as the trainer counts them",
    ),
    ("clip_fraction_low", "fraction", "Tokens clipped as their ratio is below the range", "as the trainer counts them"),
    ("entropy", "nats", "Entropy of the policy", "as the trainer computes it"),
    ("eos_tokens", "tokens", "Tokens that end a response", "as the trainer counts them"),
    ("eval_reward", "reward", "Mean reward of an evaluation", "as the trainer evaluates"),
    ("grad_cosine", "cosine", "Cosine with the gradient of the update before", "formulas, section 5"),
    ("grad_norm", "norm", "Norm of the gradient before clipping", "|g|"),
    ("grad_variance", "power", "Variance of the gradient over microbatches", "formulas, section 5"),
    ("lr", "rate", "Learning rate", "as the trainer sets it"),
    ("max_vio", "ratio", "Load of the busiest expert over the mean load, minus 1", "max_i load_i/mean load - 1"),
    ("new_baseline", "0 or 1", "1 at a declared change, which begins the run's start anew", "log_scalars"),
    ("reference_kl", "nats", "KL per token to the reference model", "by the trainer's estimator"),
    ("reference_kl_sum", "nats", "KL of a response to the reference model", "sum_t by the trainer's estimator"),
    ("router_flip_rate", "fraction", "Routings that differ between rollout and training", "flips/routings"),
    ("vf_explained_var", "fraction", "Variance of the returns that the critic explains", "1 - var(R - V)/var(R)"),
)

_CORE = frozenset(
    (
        *("kl_k1", "kl_k2", "kl_k3", "ratio_mean", "abs_log_ratio_mean", "abs_log_ratio_max"),
        *("chi2_token", "chi2_token_p95", "chi2_seq_log1p", "ess_token", "ess_seq", "tv"),
        *("prob_pearson", "prob_diff_max", "ppl_ratio", "binary_kl_max", "band_fraction"),
        *("response_length_mean", "reward_mean", "clip_fraction", "invalid_fraction"),
        *("saturated_fraction", "zero_variance_groups", "version_lag_mean"),
    )
)


_WORDS = {
    "advantage_invalid_share": "advantages that are not finite",
    "advantage_max": "largest advantage",
    "advantage_min": "smallest advantage",
    "abs_log_ratio_mean": "mean absolute log-ratio",
    "abs_log_ratio_max": "largest log-ratio of a token",
    "chi2_token": "spread of token weights (χ²)",
    "chi2_token_p95": "spread of token weights",
    "clip_fraction": "clipped tokens",
    "clip_fraction_high": "tokens clipped above",
    "clip_fraction_low": "tokens clipped below",
    "distinct_prompt_share": "distinct prompts for each response",
    "drift_spread": "spread of the sequences' drift",
    "effective_signal": "learning signal",
    "ess_seq": "effective share of sequences",
    "ess_token": "effective share of tokens",
    "eos_tokens": "end tokens",
    "eval_reward": "reward of evaluations",
    "finish_abort_share": "aborted responses",
    "finish_other_share": "responses that ended otherwise",
    "finish_stop_share": "responses that ended by themselves",
    "grad_cosine": "cosine with the gradient before",
    "grad_norm": "gradient norm",
    "invalid_fraction": "tokens without usable log-probs",
    "grad_variance": "variance of the gradient",
    "kl_k1": "KL per token, signed",
    "kl_k2": "KL per token by k2",
    "kl_k3": "KL per token",
    "length_limit_share": "responses cut at the limit",
    "ln_e_value": "evidence against the log-probs",
    "logp_unit": "slope of the log-probs through 0",
    "logp_unit_residual": "what another unit does not explain",
    "logp_corr_q": "correlation of log-ratio and log-prob",
    "logp_slope_p": "slope of the log-ratio on the trainer's log-prob",
    "logp_slope_q": "slope of the log-ratio on the sampler's log-prob",
    "logp_advantage_cov": "covariance of log-prob and advantage",
    "lr": "learning rate",
    "mu_logprob_mean": "mean log-prob of the sampler",
    "n_mu_zero": "tokens certain to the sampler",
    "n_mu_zero_unlikely": "tokens certain to the sampler and unlikely to the trainer",
    "n_positive": "tokens with a positive log-prob",
    "n_prob_diff_half": "tokens whose probabilities differ by more than a half",
    "n_unlikely": "tokens unlikely to the trainer",
    "n_zero_tail": "zeros at the ends of sequences",
    "positive_fraction": "share of positive log-probs",
    "positive_max": "largest positive log-prob",
    "ppl_ratio": "ratio of perplexities",
    "prob_diff_max": "largest gap of a token's probability",
    "prob_diff_mean": "mean gap of token probabilities",
    "prob_pearson": "agreement of token probabilities",
    "proxy2_total_power_high": "mean squared gradient, at most",
    "proxy2_total_power_low": "mean squared gradient, at least",
    "ratio_mean": "mean importance ratio",
    "reference_kl": "KL to the reference model",
    "reference_kl_sum": "KL of a response to the reference model",
    "ratio_mean_negative": "mean ratio, negative advantage",
    "ratio_mean_positive": "mean ratio, positive advantage",
    "ref_kl_k1": "KL to the reference, signed",
    "ref_kl_k3": "KL to the reference",
    "ref_kl_k3_is": "KL to the reference, weighted",
    "repeated_share": "repeated 4-grams",
    "repeated_share_p95": "repeated 4-grams, 95th percentile",
    "response_length_mean": "response length",
    "reward_length_corr": "correlation of reward and length",
    "reward_invalid_share": "rewards that are not finite",
    "reward_max": "largest reward",
    "reward_mean": "reward",
    "reward_std": "spread of rewards",
    "router_flip_rate": "tokens with other experts",
    "sampled_entropy": "entropy",
    "sampled_entropy_negative": "entropy, negative advantage",
    "sampled_entropy_positive": "entropy, positive advantage",
    "saturated_fraction": "tokens with padded log-probs",
    "seq_shift_share": "log-ratios left in the sums over sequences",
    "staleness_abs_log_ratio_max": "largest log-ratio of the updates",
    "staleness_ess_seq": "effective share of sequences in the updates",
    "staleness_kl_k1": "KL of the updates, signed",
    "staleness_kl_k3": "KL of the updates",
    "version_lag_max": "versions behind",
    "version_lag_mean": "age of the sampling weights",
    "version_span_max": "versions within a response",
    "zero_variance_groups": "groups of equal rewards",
}
"""The words of signals, by name or stem: what they mean, rather than how they are computed."""


def _specs(rows: Iterable[_Row], pair: Pair | None = None) -> Iterator[SignalSpec]:
    for stem, *fields in rows:
        words = _WORDS.get(f"{pair}_{stem}") or _WORDS.get(stem, "")
        yield SignalSpec.of(stem, *fields, pair=pair, words=words)


SIGNALS: dict[str, SignalSpec] = {
    spec.name: spec for spec in (*(spec for pair in PAIRS for spec in _specs(_PAIR_ROWS, pair)), *_specs(_BATCH_ROWS))
}
"""The signals by name: first those of each pair, then those of the batch. Source: formulas, section 5."""

TRAINER_SCALARS: dict[str, SignalSpec] = {spec.name: spec for spec in _specs(_SCALAR_ROWS)}
"""The scalars of a trainer that have a common name. Source: formulas, section 5."""


def signal_words(name: str) -> str:
    """Return the words of a signal or scalar by its name or its stem, such as `KL per token`."""
    spec = SIGNALS.get(name) or TRAINER_SCALARS.get(name) or SIGNALS.get(f"{PAIRS[0]}_{name}")
    return name.replace("_", " ") if spec is None else spec.words
