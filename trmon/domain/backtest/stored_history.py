"""A stored run as a backtest reads it, and the rules that its rows cannot evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from trmon.domain.analysis.whatif import WhatIfEffect
from trmon.domain.batches.batch import BatchRow, QuarantinePart
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.rules.condition import AllOf, AnyOf, SignalAbsent, Truth, signals_of
from trmon.domain.rules.rule import RowSelection, RuleSet
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.runs.run import Run
from trmon_client.core.policies.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """A stored run. `rows` reads its rows in the order of their ordinals, a page in memory at a time.

    `apply_policy` returns what a policy would have masked of the stored sequences.
    """

    run: Run
    rows: Callable[[], Iterator[BatchRow]]
    apply_policy: Callable[[Policy], PolicyMaskRate]

    @property
    def name(self) -> str:
        """The run as PROJECT/RUN."""
        return str(self.run.key)


RUN_STATES = "the run's heartbeats and silences, which rows do not record"
HISTORY = "more steps"


class RuleGap(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that could not be evaluated over a run, or, if `in_part`, not all of its conditions, and what it needs."""

    rule: str
    needs: tuple[str, ...]
    in_part: bool = False

    def __str__(self) -> str:
        said = "was evaluated in part: lacks" if self.in_part else "could not be evaluated: needs"
        return f"{self.rule} {said} {', '.join(self.needs)}"


def split_rules(rules: RuleSet) -> tuple[RuleSet, tuple[RuleGap, ...]]:
    """Return the rules that stored rows may decide, and a gap for each of the others."""
    gaps = tuple(RuleGap(rule=rule.name, needs=(RUN_STATES,)) for rule in rules.rules if not rule.reads_batches)
    return RuleSet(tuple(rule for rule in rules.rules if rule.reads_batches)), gaps


class RuleGapSearch:
    """Finds the rules whose signals no row of a run has, or whose history is too short."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules.over_signals
        self._missing = {
            reads: {name for rule in self._rules if rule.reads is reads for name in signals_of(rule.when)}
            for reads in RowSelection
        }
        self._decided: set[str] = set()
        self._failed: dict[str, str] = {}

    def add(self, closing: ClosingRow, *, stored: BatchRow) -> None:
        """Add a row that the rules have read, as it was stored."""
        if not closing.folded:
            return
        reader = SignalReader(closing.row.numbers, closing.row.primary_pair)
        for reads in RowSelection if closing.is_gauge else (RowSelection.EVERY_UPDATE,):
            missing = self._missing[reads]
            missing -= {name for name in missing if reader[name] == reader[name]}
        self._decided |= {rule.name for rule, found in closing.findings if found.raised.truth is not Truth.UNKNOWN}
        failed = [
            part
            for part in closing.row.quarantined
            if part.part is QuarantinePart.RULE and part not in stored.quarantined
        ]
        self._failed |= {part.place: part.reason for part in failed}

    def gaps(self) -> Iterator[RuleGap]:
        """Yield the gaps, in the order of the rules."""
        for rule in self._rules:
            missing = frozenset(signals_of(rule.when)) & self._missing[rule.reads]
            blocking = _blocking(rule.when, missing)
            if rule.name in self._failed:
                yield RuleGap(rule=rule.name, needs=(f"a correction: {self._failed[rule.name]}",))
            elif blocking:
                yield RuleGap(rule=rule.name, needs=tuple(sorted(blocking)))
            elif rule.name not in self._decided:
                yield RuleGap(rule=rule.name, needs=tuple(sorted(missing)) or (HISTORY,))
            elif lacking := missing - set(absences_of(rule.when)):
                yield RuleGap(rule=rule.name, needs=tuple(sorted(lacking)), in_part=True)


def absences_of(when: object) -> Iterator[str]:
    """Yield the signals whose absence a condition names."""
    match when:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from absences_of(part)
        case SignalAbsent(signal):
            yield signal


def _blocking(when: object, missing: frozenset[str]) -> frozenset[str]:
    """Return the missing signals without which a condition can never be true; none if it can."""
    match when:
        case AllOf(parts):
            return _union(_blocking(part, missing) for part in parts)
        case AnyOf(parts):
            blocked = [_blocking(part, missing) for part in parts]
            return _union(blocked) if all(blocked) else frozenset()
        case SignalAbsent():
            return frozenset()
    return frozenset(signals_of(when)) & missing


def _union(names: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*names)


class PolicyMaskRate(msgspec.Struct, frozen=True, kw_only=True):
    """The fraction of the stored sequences that a policy rejects, and the fraction that was rejected at the time.

    Both are NaN if it was skipped, and `skipped` says why.
    """

    policy: str
    n_sequences: int = 0
    mask_rate: float = math.nan
    original_mask_rate: float = math.nan
    skipped: str = ""


def mask_rate_of(effect: WhatIfEffect) -> PolicyMaskRate:
    """Return the mask rates of a what-if over all stored sequences of a run."""
    if not effect.total.n:
        return PolicyMaskRate(policy=effect.policy.name, skipped=why_skipped(effect.undecided))
    return PolicyMaskRate(
        policy=effect.policy.name,
        n_sequences=effect.total.n,
        mask_rate=effect.total.mask_rate,
        original_mask_rate=effect.original.mask_rate,
    )


def why_skipped(undecided: dict[str, int]) -> str:
    """Return why no sequence was decided. Args: undecided: reports by what they lack."""
    return "; ".join(undecided) or "no sequences are stored"
