"""Differences between two rule sets: what one raises over runs and the other does not, and which is earlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

import msgspec

from trmon.domain.backtest.rule_set_outcome import RuleSetOutcome


class RuleDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that two sets raise at different steps of a run, first; None if a set does not raise it."""

    rule: str
    step: int | None
    against_step: int | None


class RuleDifferenceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """In how many runs one set, the other or both raise a rule, and how much earlier the first one does.

    `median_steps_earlier` is over the runs in which both raise it, below 0 if the first set is later; None without any.
    """

    rule: str
    n_only: int
    n_only_against: int
    n_both: int
    median_steps_earlier: float | None


def rule_differences(outcome: RuleSetOutcome, against: RuleSetOutcome) -> tuple[RuleDifference, ...]:
    """Return the rules that two sets do not first raise at the same step of a run, by name."""
    pairs = ((rule, outcome.first_steps.get(rule), against.first_steps.get(rule)) for rule in _names(outcome, against))
    return tuple(
        RuleDifference(rule=rule, step=step, against_step=other) for rule, step, other in pairs if step != other
    )


@dataclass(slots=True)
class _RuleCounts:
    n_only: int = 0
    n_only_against: int = 0
    earlier: list[int] = field(default_factory=list)


class RuleDifferenceSum:
    """Adds up the differences of two rule sets; it keeps a number for each rule that both raise in a run."""

    def __init__(self) -> None:
        self._counts: dict[str, _RuleCounts] = {}

    def add(self, outcome: RuleSetOutcome, against: RuleSetOutcome) -> None:
        """Add a run."""
        for rule in _names(outcome, against):
            counts = self._counts.setdefault(rule, _RuleCounts())
            step, other = outcome.first_steps.get(rule), against.first_steps.get(rule)
            if step is None:
                counts.n_only_against += 1
            elif other is None:
                counts.n_only += 1
            else:
                counts.earlier.append(other - step)

    def totals(self) -> Iterator[RuleDifferenceTotals]:
        """Yield the sums, by rule, of the rules that any of the two raises."""
        for rule, counts in sorted(self._counts.items()):
            yield RuleDifferenceTotals(
                rule=rule,
                n_only=counts.n_only,
                n_only_against=counts.n_only_against,
                n_both=len(counts.earlier),
                median_steps_earlier=median(counts.earlier) if counts.earlier else None,
            )


def _names(outcome: RuleSetOutcome, against: RuleSetOutcome) -> list[str]:
    return sorted({*outcome.first_steps, *against.first_steps})
