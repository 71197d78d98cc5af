"""The conditions of findings about the collapse itself. Source: formulas, section 10."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trmon.domain.diagnosis.conditions import (
    HOLDING,
    LASTING,
    ONCE,
    HistoryAllOf,
    HistoryAnyOf,
    HistoryCondition,
    HistoryLimit,
    HistoryUnless,
)
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.model.finding import Finding
from trmon.domain.rules.condition import ThresholdSide

above = partial(HistoryLimit, bound=ThresholdSide.ABOVE)
below = partial(HistoryLimit, bound=ThresholdSide.BELOW)


def collapse_conditions(
    limits: Thresholds, *, drift: tuple[HistoryCondition, ...]
) -> Mapping[Finding, HistoryCondition]:
    """Return the conditions of N, S, L, H, V and R.

    Args: drift: the conditions that explain an unusual entropy, so that it is no finding of its own.
    """
    return {
        Finding.NOT_A_NUMBER: _not_a_number(limits),
        Finding.ENTROPY: HistoryAllOf((_entropy(limits), *map(HistoryUnless, drift))),
        Finding.LENGTH: _length(limits),
        Finding.NO_LEARNING_SIGNAL: _no_learning_signal(limits),
        Finding.VERSION_SPAN: HistoryAllOf(
            (
                above(signal="version_span_max", threshold=limits.version_span, optional=True),
                above(signal="version_span_rise", threshold=0.0, optional=True),
            )
        ),
        Finding.REWARD_COLLAPSE: HistoryAnyOf(
            (
                above(signal="reward_collapse", threshold=limits.reward_fall, quorum=HOLDING),
                above(signal="reward_decline", threshold=limits.reward_fall, quorum=LASTING),
            )
        ),
    }


def _not_a_number(limits: Thresholds) -> HistoryCondition:
    both = HistoryAllOf(
        (
            above(signal="nonfinite_steps", threshold=0.0, quorum=ONCE),
            above(signal="invalid_fraction", threshold=0.0, quorum=ONCE, optional=True),
        )
    )
    return HistoryAnyOf((above(signal="nonfinite_steps", threshold=limits.nonfinite_steps, quorum=ONCE), both))


def _entropy(limits: Thresholds) -> HistoryCondition:
    fallen = HistoryAllOf(
        (
            below(signal="entropy_relative", threshold=limits.entropy_collapse),
            below(signal="entropy_rise", threshold=0.0),
        )
    )
    falling = above(signal="reward_decline", threshold=limits.reward_falling, optional=True)
    with_reward = HistoryAllOf((above(signal="entropy_relative", threshold=limits.entropy_rising), falling))
    risen = HistoryAllOf(
        (
            HistoryAnyOf((above(signal="entropy_relative", threshold=limits.entropy_explosion), with_reward)),
            above(signal="entropy_rise", threshold=0.0),
        )
    )
    return HistoryAnyOf((fallen, risen))


def _length(limits: Thresholds) -> HistoryCondition:
    hacked = HistoryAllOf(
        (
            above(signal="reward_length_corr_ema", threshold=limits.reward_length_corr, optional=True),
            above(signal="response_length_growth", threshold=limits.length_growth),
        )
    )
    capped = HistoryAllOf(
        (
            above(signal="length_limit_ema", threshold=limits.length_limit, optional=True),
            above(signal="length_limit_rise", threshold=0.0, optional=True),
        )
    )
    return HistoryAnyOf((below(signal="response_length_relative", threshold=limits.length_collapse), hacked, capped))


def _no_learning_signal(limits: Thresholds) -> HistoryCondition:
    equal = above(signal="zero_variance_groups_least", threshold=limits.zero_variance_groups)
    weak = below(signal="effective_signal_relative", threshold=limits.effective_signal, quorum=LASTING)
    return HistoryAnyOf((equal, weak))
