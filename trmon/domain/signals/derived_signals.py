"""The signals that the service derives from decisions, from the history of a run, and for its rules."""

from __future__ import annotations

from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES
from trmon.domain.collapse_risk.risk_reading import DRIVER_PREFIX, OUTSIDE, RISK
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SignalSpec

SHADOW_PREFIX = "mask_rate:"


_ROWS: tuple[tuple[str, str, str, str], ...] = (
    ("mask_rate", "fraction", "Sequences that the active policy rejects", "rejected/(accepted + rejected)"),
    ("mask_rate_tokens", "fraction", "Tokens in rejected sequences", "rejected tokens/valid tokens"),
    ("mask_rate_long", "fraction", "Rejected among the longest quarter of responses", "T_i >= 75th percentile"),
    ("mask_rate_short", "fraction", "Rejected among the shortest quarter of responses", "T_i <= 25th percentile"),
    ("mask_rate_positive", "fraction", "Rejected among sequences of positive advantage", "A_i > 0"),
    ("mask_rate_negative", "fraction", "Rejected among sequences of negative advantage", "A_i < 0"),
    (
        "sequence_weight_mean",
        "ratio",
        "Mean weight of sequences under the active policy, 0 where rejected; absent without weights",
        "(1/N) sum_i M_i sum_t w_t/T_i",
    ),
    (
        "sequence_weight_ess",
        "fraction",
        "Effective share of sequences under those weights",
        "(sum_i w_i)^2/(N sum_i w_i^2), w_i = M_i sum_t w_t/T_i",
    ),
    (
        "turn_mask_rate",
        "fraction",
        "Turns that the active policy rejects; absent without turn criteria",
        "rejected turns/turns with valid tokens",
    ),
    (
        "turn_mask_rate_tokens",
        "fraction",
        "Tokens in rejected turns; absent without turn criteria",
        "tokens of rejected turns/tokens of turns",
    ),
    ("policy_versions", "policies", "Distinct policies that the batch's reports were decided by", "distinct hashes"),
    ("bound_adaptive", "reward", "Error bound, the tighter of two; nan unless KL is exact", "formulas, section 7"),
    ("bound_trpo", "reward", "Classical error bound; nan unless KL is exact", "T(T - 1) D"),
    ("bound_vacuous", "0 or 1", "Whether the error bound exceeds the range of rewards; nan if unknown", "adaptive > 1"),
    (
        "minorizer",
        "reward",
        "Gain of the sequences in the loss that the error bound leaves; absent unless advantages are declared centred",
        "L - adaptive, both with the weights of a soft policy",
    ),
    (
        "minorizer_vacuous",
        "0 or 1",
        "Whether the bound within minorizer certifies nothing",
        "adaptive > range of rewards",
    ),
    (
        "alpha_mismatch_share",
        "fraction",
        "Share of engine mismatch in the drift's lower bounds; nan without three policies or with an engine_lag",
        "alpha_1/(alpha_0 + alpha_1), alpha >= exact_tv_max, else prob_diff_max",
    ),
    ("engine_lag", "versions", "Versions between the two sides of the pair rules read; 0 is one", "pi_old - mu"),
    (
        "staleness_lag",
        "versions",
        "Versions between pi and pi_old; 0 if none are named",
        "version_lag_max - engine_lag",
    ),
    ("missing_ranks", "ranks", "Ranks that did not report before the batch closed", "world size - ranks"),
    ("incomplete", "0 or 1", "Whether the batch closed without a rank or a chunk that was known", "lacks data"),
    (
        "quarantined_parts",
        "parts",
        "Reports, rules or whole batches that could not be processed and were set aside",
        "count",
    ),
    ("decision_mismatches", "sequences", "Sequences that the trainer decided otherwise than the replay", "count"),
    ("client_spooled_bytes", "bytes", "What waited on the trainers' disks when they reported", "sum over ranks"),
    ("proxy1_signal_strength", "power", "Squared norm of the step's gradient, by the parameters", "grad_norm^2"),
    (
        "proxy3_pure_noise_low",
        "power",
        "Variance of the mean gradient, at least; by the logits, so its course tells, not its size",
        "(proxy2_total_power_low - proxy1)/(N - 1), at least 0",
    ),
    (
        "proxy3_pure_noise_high",
        "power",
        "Variance of the mean gradient, at most; by the logits, so its course tells, not its size",
        "(proxy2_total_power_high - proxy1)/(N - 1), at least 0",
    ),
    (RISK, "probability", "Chance that a collapse begins within 200 steps", "docs/collapse-risk.md"),
    (
        OUTSIDE,
        "bits",
        "Inputs of the risk beyond the runs that its model was fitted to, and the noise of the reward",
        "one bit each",
    ),
    *(
        (f"{DRIVER_PREFIX}{name}", "log-odds", f"What {name} adds to the risk of collapse", "docs/collapse-risk.md")
        for name in INPUT_NAMES
    ),
    ("baseline", "count", "Changes of the run's configuration so far, each of which begins its start anew", "count"),
    ("step_seconds", "seconds", "Time since the step before, on the trainer's clock", "first report to first report"),
)

_PAIR_ROWS: tuple[tuple[str, str, str, str], ...] = (
    (
        "k3_excess",
        "ratio",
        "kl_k3 over what honest log-probs can show; above 1 they look corrupt",
        "kl_k3/(10 max(|kl_k1|, 3 sd(d)/sqrt(n), 1e-6))",
    ),
)

_WORDS = {
    "engine_lag": "versions behind at the engine",
    "k3_excess": "KL against the most that is possible",
    "mask_rate": "masked sequences",
    "minorizer": "gain beyond the error bound",
    "proxy1_signal_strength": "squared gradient norm",
    "proxy3_pure_noise_high": "gradient variance, at most",
    "proxy3_pure_noise_low": "gradient variance, at least",
    "sequence_weight_ess": "effective share of weighted sequences",
    "sequence_weight_mean": "mean weight of sequences",
    "staleness_lag": "updates since the rollout",
    "turn_mask_rate": "masked turns",
    "turn_mask_rate_tokens": "tokens of masked turns",
}

DERIVED: dict[str, SignalSpec] = {
    spec.name: spec
    for spec in (
        *(SignalSpec.of(*row, words=_WORDS.get(row[0], "")) for row in _ROWS),
        *(SignalSpec.of(*row, pair=pair, words=_WORDS.get(row[0], "")) for row in _PAIR_ROWS for pair in PAIRS),
    )
}
"""All derived signals by name, except the mask rates of shadows. Source: formulas, sections 5 to 9."""
