"""A run of a lake or an archive, and the what-ifs and the history that are read from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from trmon.domain.analysis.whatif import CoveredRange, WhatIfEffect
from trmon.domain.backtest.stored_history import PolicyMaskRate, StoredHistory, mask_rate_of
from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.identity import BatchKey, RunKey
from trmon.domain.model.messages import AnyReport, decode_reports
from trmon.domain.runs.run import Run
from trmon_client.core.policies.policy import Policy
from trmon_client.core.wire import unpack_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfSteps:
    """The newest steps of a run from a first to a last one, both included; by default all of them."""

    from_step: int | None = None
    to_step: int | None = None
    max_steps: int | None = None


class RunSource(Protocol):
    """A run that can be read in any process: it is small, and sent to the workers of a cluster."""

    @property
    def key(self) -> RunKey:
        """Its project and name."""

    def run(self) -> Run:
        """Return the run as it was when it was stored."""

    def rows(self) -> Iterator[BatchRow]:
        """Yield its batches in the order of their ordinals, a page in memory at a time."""

    def gauge_keys(self, steps: WhatIfSteps) -> list[BatchKey]:
        """Return the key of the batch that gauges show for each step: the rollout, or else the last update."""

    def reports(self, keys: Collection[BatchKey]) -> Iterator[AnyReport]:
        """Yield the reports of some batches, a few in memory at a time."""


def effects_on(
    stored: RunSource, policies: Sequence[Policy], steps: WhatIfSteps
) -> tuple[list[WhatIfEffect], CoveredRange]:
    """Return what policies would have masked of a run's steps, and the steps that have reports; reads each once."""
    keys = stored.gauge_keys(steps)
    effects = [WhatIfEffect(policy) for policy in policies]
    found: set[BatchKey] = set()
    for stored_report in stored.reports(keys):
        for report in decode_reports([stored_report])[0]:
            columns = report.columns()
            accepted = unpack_bits(report.accepted, columns.n_sequences)
            for effect in effects:
                effect.add(columns, accepted=accepted)
            found.add(report.key.batch)
    covered = CoveredRange()
    for key in keys:
        covered.add(key.step, stored=key in found)
    return effects, covered


def backtest_history(stored: RunSource) -> StoredHistory:
    """Return a run as a backtest reads it."""
    return StoredHistory(run=stored.run(), rows=stored.rows, apply_policy=partial(_mask_rate, stored))


def _mask_rate(stored: RunSource, policy: Policy) -> PolicyMaskRate:
    [effect], _ = effects_on(stored, [policy], WhatIfSteps())
    return mask_rate_of(effect)
