"""A set of rules, with what follows from all of them together: worked out once, asked for at every batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from trmon.domain.rules.measures import RememberedHistory
from trmon.domain.rules.rule import RowSelection, Rule


@dataclass(frozen=True, slots=True)
class RememberedSignals:
    """The signals of which a run's memory holds something, in the order of their names."""

    windows: tuple[str, ...]
    baselines: tuple[str, ...]


@dataclass(frozen=True)
class RuleSet:
    """The rules that runs are watched with, in their order."""

    rules: tuple[Rule, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Rule]:
        """Every rule by its name."""
        return {rule.name: rule for rule in self.rules}

    @cached_property
    def over_signals(self) -> tuple[Rule, ...]:
        """The rules that read batches."""
        return tuple(rule for rule in self.rules if rule.reads_batches)

    @cached_property
    def over_states(self) -> tuple[Rule, ...]:
        """The rules that read the run's state, or who speaks for it."""
        return tuple(rule for rule in self.rules if not rule.reads_batches)

    @cached_property
    def kept(self) -> Mapping[RowSelection, RememberedSignals]:
        """What must be remembered, by the rows that it is of."""
        return {
            reads: RememberedSignals(
                self._kept(reads, RememberedHistory.WINDOW), self._kept(reads, RememberedHistory.BASELINE)
            )
            for reads in RowSelection
        }

    def _kept(self, reads: RowSelection, keeps: RememberedHistory) -> tuple[str, ...]:
        rules = (rule for rule in self.over_signals if rule.reads is reads)
        return tuple(sorted({signal for rule in rules for signal in rule.kept[keeps]}))
