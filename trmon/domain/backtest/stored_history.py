"""The stored history of a run, as any source gives it to a backtest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trmon.domain.backtest.policy_mask_rate import PolicyMaskRate
from trmon.domain.batches.batch import BatchRow
from trmon.domain.runs.run import Run
from trmon_client.core.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class CollapseLabel:
    """What a source says of a run: the step at which its collapse begins, None if it does not collapse."""

    onset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """A stored run. `rows` reads its rows in the order of their ordinals, a page in memory at a time.

    `apply_policy` returns what a policy would have masked of the stored sequences. `held_signals` are the signals that
    the source can hold, None if it holds all that the service computes. Without `has_times` the rows have no clock, and
    `closed_at` is 0. `label` is None if nobody has labelled the run.
    """

    run: Run
    rows: Callable[[], Iterator[BatchRow]]
    apply_policy: Callable[[Policy], PolicyMaskRate]
    held_signals: frozenset[str] | None = None
    has_times: bool = True
    label: CollapseLabel | None = None

    @property
    def name(self) -> str:
        """The run as PROJECT/RUN."""
        return str(self.run.key)
