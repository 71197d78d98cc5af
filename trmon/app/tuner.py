"""The tuner of one run: gathers what its policy reads of closed batches, and moves its bounds where the run says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trmon.domain.adaptation.control import anchor_of, control, version_of
from trmon.domain.adaptation.sample import Sample, reads
from trmon.domain.adaptation.setting import Mode, Setting
from trmon.domain.adaptation.verdict import Proposal
from trmon.domain.adaptation.window import Place, Window, sampled
from trmon.domain.identity import BatchKey
from trmon.domain.intake import StoredReport
from trmon.domain.policies import PolicyVersion, default_version
from trmon.domain.ports import RunLog
from trmon.domain.runs import Run
from trmon_client.core.acceptance import Policy


class Tuner:
    """Holds the newest sequences of a run in memory while its mode is `apply`; else it does nothing."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._setting = Setting()
        self._reads: object = None
        self._window: Window | None = None
        self._steps: set[Place] = set()

    def follow(self, setting: Setting, policy: Policy, *, gauge_keys: Sequence[BatchKey]) -> None:
        """Take up the run's setting and its policy; a window that does not fit them is read anew from stored batches.

        Args: gauge_keys: the newest rows that gauges read, oldest first.
        """
        wanted = (reads(policy), setting.window_sequences) if setting.mode is Mode.APPLY else None
        self._setting = setting
        if wanted != self._reads:
            self._reads, self._steps, self._window = wanted, set(), None
            if wanted is not None:
                history = stored_samples(self._log, reversed(gauge_keys), policy=policy)
                self._window = Window.of(history, n_sequences=setting.window_sequences)

    def take(self, key: BatchKey, reports: Iterable[StoredReport], *, policy: Policy) -> None:
        """Take in a batch that gauges read."""
        if self._window is None:
            return
        place = (key.attempt_id, key.step)
        self._steps.add(place)
        sample = sampled((report.columns() for report in reports), policy)
        if sample is not None:
            self._window = self._window.put(place, sample)

    def tuned(self, run: Run, *, current: PolicyVersion, is_stalled: bool, now: float) -> PolicyVersion | None:
        """Return the version to put in force, once every so many steps; None where the bounds stay."""
        if self._window is None or len(self._steps) < self._setting.every_steps:
            return None
        self._steps.clear()
        versions = [default_version(now=run.created_at), *self._log.policy_versions(run.id)]
        verdict = control(
            self._setting,
            self._window.sample(),
            current=current,
            anchor=anchor_of(versions),
            is_stalled=is_stalled,
        )
        return version_of(verdict, current=current, now=now) if isinstance(verdict, Proposal) else None


def stored_samples(log: RunLog, keys: Iterable[BatchKey], *, policy: Policy) -> Iterator[tuple[Place, Sample]]:
    """Yield what a policy reads of stored batches, each read when asked for; those that were pruned are left out."""
    for key in keys:
        sample = sampled((report.columns() for report in log.batch_reports(key)), policy)
        if sample is not None:
            yield (key.attempt_id, key.step), sample
