"""The onset of a run's collapse: as it was labelled, or as its stored reward shows it."""

from __future__ import annotations

import math
from enum import Enum

import msgspec

from trmon.domain.analysis.collapse import SPAN, WITHIN, CollapseSearch
from trmon.domain.backtest.stored_history import CollapseLabel
from trmon.domain.pipeline.stages.fold import FoldedRow
from trmon.domain.signals.scalar_names import canonical_value


class OnsetSource(Enum):
    """Where an onset comes from; where neither a label nor the reward tells, it is unknown whether a run collapses."""

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

    def add(self, folded: FoldedRow) -> None:
        """Add a row; of a step its last gauge row counts."""
        if not folded.folded or not folded.is_gauge:
            return
        if folded.began_step:
            self._pass_on()
        row = folded.row
        reward = canonical_value("reward_mean", signals=row.signals, scalars=row.scalars)
        grad_norm = canonical_value("grad_norm", signals=row.signals, scalars=row.scalars)
        self._newest = (row.key.step, reward, grad_norm)

    def onset(self, label: CollapseLabel | None) -> CollapseOnset:
        """Return the onset after the last row. Args: label: takes precedence over the reward."""
        self._pass_on()
        if label is not None:
            return CollapseOnset(step=label.onset, source=OnsetSource.LABEL)
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
