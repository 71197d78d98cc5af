"""Derives a panel's color thresholds from the built-in rules, so that charts and alerts agree."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import Threshold, ThresholdsMode

from trmon.domain.model.finding import Severity
from trmon.domain.rules.condition import AllOf, AnyOf, Comparison, NewestValue, ThresholdSide
from trmon.domain.rules.rule_yaml import builtin_rules

HEALTHY, WATCH, ACT = "green", "orange", "red"
COLORS = {Severity.PAGE: ACT, Severity.WARN: WATCH, Severity.INFO: WATCH}

JUDGES: dict[str, tuple[str, ...]] = {
    "kl_k1": ("engine_mismatch",),
    "kl_k3": ("stale_rollouts",),
    "chi2_token": ("stale_rollouts", "variance_blowup"),
    "ess_token": ("variance_blowup",),
    "ratio_mean": ("support_shift",),
    "prob_pearson": ("engine_mismatch",),
    "prob_diff_max": ("engine_mismatch",),
    "ppl_ratio": ("engine_mismatch",),
    "clip_fraction": ("clip_saturation",),
    "zero_variance_groups": ("no_learning_signal",),
    "invalid_fraction": ("invalid_logprobs", "corrupt_logprobs"),
    "saturated_fraction": ("corrupt_logprobs",),
    "mask_rate": ("mask_rate",),
    "collapse_risk": ("collapse_risk", "collapse_risk_high"),
}
"""The built-in rules whose limits define a signal's band, the milder one first."""

SMALLEST = 1e-9
"""A Grafana threshold includes its value, a rule's limit excludes it: `above 0` starts here."""

Step = tuple[float | None, str]
"""A value and the color from there on; None starts at the minimum."""


def band(signal: str) -> list[Step]:
    """Return the steps of a signal with rules, ascending; of two limits on one side, the milder one starts first."""
    edges = list(_edges(signal))
    below = sorted((value, color) for bound, value, color in edges if bound is ThresholdSide.BELOW)
    above = sorted((value or SMALLEST, color) for bound, value, color in edges if bound is ThresholdSide.ABOVE)
    starts = [None, *(value for value, _ in below)]
    colors = [*(color for _, color in below), HEALTHY]
    return [*zip(starts, colors, strict=True), *above]


def thresholds(steps: list[Step]) -> ThresholdsConfig:
    """Return steps in Grafana's format."""
    return (
        ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


def _edges(signal: str) -> Iterator[tuple[ThresholdSide, float, str]]:
    """Yield the side, the value and the color beyond it for each limit that a signal's rules set."""
    for rule in (rule for rule in builtin_rules() if rule.name in JUDGES[signal]):
        [limit] = [
            part for part in _comparisons(rule.when) if part.signal == signal and isinstance(part.measure, NewestValue)
        ]
        color = COLORS[rule.severity]
        if limit.away_from is None:
            yield limit.bound, limit.threshold, color
        else:
            yield ThresholdSide.BELOW, limit.away_from - limit.threshold, color
            yield ThresholdSide.ABOVE, limit.away_from + limit.threshold, color


def _comparisons(condition: object) -> Iterator[Comparison]:
    match condition:
        case Comparison():
            yield condition
        case AllOf(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from _comparisons(part)
