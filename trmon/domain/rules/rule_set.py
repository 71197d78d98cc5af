"""A set of rules with values derived from all of them, computed once instead of at each batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from trmon.domain.rules.measures import RememberedHistory
from trmon.domain.rules.rule import RowSelection, Rule


@dataclass(frozen=True, slots=True)
class RememberedSignals:
    """The signals whose history a run must keep, in the order of their names."""

    windows: tuple[str, ...]
    baselines: tuple[str, ...]


@dataclass(frozen=True)
class RuleSet:
    """The active rules, in their order."""

    rules: tuple[Rule, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Rule]:
        """All rules by name."""
        return {rule.name: rule for rule in self.rules}

    @cached_property
    def of_health(self) -> frozenset[str]:
        """The names of the rules whose alerts join the run's incident."""
        return frozenset(rule.name for rule in self.rules if rule.is_of_health)

    @cached_property
    def over_signals(self) -> tuple[Rule, ...]:
        """The rules over signals of batches."""
        return tuple(rule for rule in self.rules if rule.reads_batches)

    @cached_property
    def over_every_update(self) -> tuple[Rule, ...]:
        """The rules over signals of every row; the others read gauge rows only."""
        return tuple(rule for rule in self.over_signals if rule.reads is RowSelection.EVERY_UPDATE)

    @cached_property
    def over_states(self) -> tuple[Rule, ...]:
        """The rules over the state of the run or its live launches."""
        return tuple(rule for rule in self.rules if not rule.reads_batches)

    @cached_property
    def remembered(self) -> Mapping[RowSelection, RememberedSignals]:
        """The signals whose history must be kept, by the rows that rules read."""
        return {
            reads: RememberedSignals(
                self._names(reads, RememberedHistory.WINDOW), self._names(reads, RememberedHistory.BASELINE)
            )
            for reads in RowSelection
        }

    def _names(self, reads: RowSelection, history: RememberedHistory) -> tuple[str, ...]:
        rules = (rule for rule in self.over_signals if rule.reads is reads)
        return tuple(sorted({signal for rule in rules for signal in rule.remembered[history]}))
