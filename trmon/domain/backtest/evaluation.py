"""Backtest of one stored run: its rows are read once, and every rule set is evaluated over each."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from trmon.domain.alerts.alert import AlertState
from trmon.domain.analysis.collapse import SPAN, WITHIN, CollapseSearch
from trmon.domain.analysis.whatif import WhatIfEffect
from trmon.domain.backtest.rule_replay import RuleReplay, RuleSetOutcome
from trmon.domain.batches.batch import BatchRow
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.framework_names.translation import canonical_value
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.rules.rule import RuleSet
from trmon.domain.runs.run import Run
from trmon_client.core.policies.policy import Policy

HAS_FIRED = frozenset({AlertState.FIRING.value, AlertState.RESOLVED.value})
"""The states of an alert that fired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """A stored run: `rows` reads it in order by pages, `apply_policy` returns what a policy would have masked.

    `raised` returns the rule and the step of each alert that fired live; None where that is not stored.
    """

    run: Run
    rows: Callable[[], Iterator[BatchRow]]
    apply_policy: Callable[[Policy], PolicyMaskRate]
    raised: Callable[[], Collection[tuple[str, int]]] | None = None

    @property
    def name(self) -> str:
        """The run as PROJECT/RUN."""
        return str(self.run.key)


class PolicyMaskRate(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the stored sequences that a policy rejects, and that was rejected then; NaN if skipped."""

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


class OnsetSource(Enum):
    """Where an onset comes from; without a label and a reward, it is unknown whether a run collapses."""

    LABEL = "label"
    REWARD = "reward"
    UNKNOWN = "unknown"


class CollapseOnset(msgspec.Struct, frozen=True, kw_only=True):
    """The step at which a run's collapse begins, None without one, and where that comes from."""

    step: int | None
    source: OnsetSource
    reason: str = ""


class OnsetSearch:
    """Follows the reward of a run's steps, a step in memory for each of the 151 newest."""

    def __init__(self) -> None:
        self._search = CollapseSearch()
        self._newest: tuple[int, float, float] | None = None
        self._n_rewards = 0
        self._has_negative = False

    def add(self, closing: ClosingRow) -> None:
        """Add a row; of a step its last gauge row counts."""
        if not closing.folded or not closing.is_gauge:
            return
        if closing.began_step:
            self._pass_on()
        row = closing.row
        reward = canonical_value("reward_mean", signals=row.signals, scalars=row.scalars)
        grad_norm = canonical_value("grad_norm", signals=row.signals, scalars=row.scalars)
        self._newest = (row.key.step, reward, grad_norm)

    @property
    def is_open(self) -> bool:
        """Whether the reward is down at the last row, and too few rows follow to call it a collapse."""
        return self._search.is_down and self._search.found is None

    def onset(self) -> CollapseOnset:
        """Return the onset after the last row."""
        self._pass_on()
        if self._has_negative:
            return CollapseOnset(step=None, source=OnsetSource.UNKNOWN, reason="some rewards are below 0")
        if self._search.found is not None:
            return CollapseOnset(step=self._search.found.step, source=OnsetSource.REWARD)
        if self._n_rewards < SPAN + WITHIN:
            reason = f"{self._n_rewards} of the {SPAN + WITHIN} rewards that a collapse takes to show"
            return CollapseOnset(step=None, source=OnsetSource.UNKNOWN, reason=reason)
        return CollapseOnset(step=None, source=OnsetSource.REWARD)

    def _pass_on(self) -> None:
        if self._newest is None:
            return
        step, reward, grad_norm = self._newest
        self._newest = None
        self._n_rewards += not math.isnan(reward)
        self._has_negative |= reward < 0
        self._search.add(step, reward if math.isfinite(reward) else math.nan, grad_norm=grad_norm)


DAY_SECONDS = 86_400.0


class RunBacktest(msgspec.Struct, frozen=True, kw_only=True):
    """A run, its collapse, and what each rule set raises over it; `days` by the trainer's clock, None without one."""

    run: str
    n_steps: int
    days: float | None
    onset: CollapseOnset
    outcomes: tuple[RuleSetOutcome, ...]
    policies: tuple[PolicyMaskRate, ...]


def backtest_run(
    history: StoredHistory,
    rule_sets: Mapping[str, RuleSet],
    *,
    policies: Sequence[Policy] = (),
    model: RiskModel | None = None,
) -> RunBacktest:
    """Return what rule sets would have raised over a stored run, and what policies would have masked.

    Args: rule_sets: at least one, by name; model: predicts the risk of a collapse in place of the shipped model.
    """
    live = None if history.raised is None else history.raised()
    replays = {name: RuleReplay(rules, history.run, model=model, live=live) for name, rules in rule_sets.items()}
    onset, n_steps, seconds = OnsetSearch(), 0, 0.0
    for row in history.rows():
        closing, *_ = [replay.add(row) for replay in replays.values()]
        onset.add(closing)
        if closing.folded and closing.began_step:
            n_steps += 1
            step_seconds = closing.row.signals.get("step_seconds", math.nan)
            seconds += step_seconds if step_seconds > 0 else 0.0
    found = onset.onset()
    for replay in replays.values():
        replay.finish()
    return RunBacktest(
        run=history.name,
        n_steps=n_steps,
        days=seconds / DAY_SECONDS if seconds else None,
        onset=found,
        outcomes=tuple(replay.outcome(name, onset=found.step) for name, replay in replays.items()),
        policies=tuple(history.apply_policy(policy) for policy in policies),
    )
