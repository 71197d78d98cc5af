"""Counts the worker's passes."""

from __future__ import annotations

from trmon.metrics.counters import Counters
from trmon.runner.pass_changes import PassTally


class CountingObserver:
    """Adds up the worker's tallies; implements trmon.runner.scheduler.PassObserver."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def pass_committed(self, tally: PassTally) -> None:
        """Count a pass that was committed."""
        for seconds in tally.close_lags_seconds:
            self._counters.close_lag_seconds.observe(seconds)
        self._counters.decision_mismatch.inc(tally.mismatches)
        self._counters.unreplayed.inc(tally.unreplayed_reports)
        self._counters.late.inc(tally.late_reports)
        for part, n in tally.quarantined.items():
            self._counters.quarantined.labels(part.value).inc(n)
        if tally.unplaced_scalars:
            self._counters.dropped.labels("unplaced_scalar").inc(tally.unplaced_scalars)

    def pass_failed(self, error: Exception) -> None:  # noqa: ARG002 - the log has the error
        """Count a pass that failed and will be retried."""
        self._counters.worker_failures.inc()
