"""Adapts the bounds of one run's policy to the sequences of its closed batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trmon.domain.adaptation.calibration import calibrated_limits
from trmon.domain.adaptation.proposal import (
    AdaptationMode,
    AdaptationSetting,
    BoundProposal,
    PolicySample,
    SampleWindow,
    StepKey,
    policy_reads,
    sample_of_reports,
)
from trmon.domain.adaptation.target_mask_rate import anchor_of, run_controller, version_of_proposal
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import StoredReport, decode_reports
from trmon.domain.policies import PolicyVersion, default_version
from trmon.domain.ports import RunLog
from trmon.domain.runs.run import Run
from trmon_client.core.policies.policy import Policy


class BoundController:
    """Holds the newest sequences of a run in memory; does nothing if the mode is `off`."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._proposal: BoundProposal | None = None
        self._setting = AdaptationSetting()
        self._policy: Policy | None = None
        self._window_config: object = None
        self._window: SampleWindow | None = None
        self._steps: set[StepKey] = set()

    @property
    def proposed(self) -> Policy | None:
        """The policy it recommends in place of the current one; None where the bounds should stay."""
        return None if self._proposal is None else self._proposal.policy

    def configure(self, setting: AdaptationSetting, policy: Policy, *, gauge_keys: Sequence[BatchKey]) -> None:
        """Set the run's setting and policy; a window that does not fit them is read again from stored batches.

        Args: gauge_keys: the newest rows that gauges read, oldest first.
        """
        window_config = None if setting.mode is AdaptationMode.OFF else (policy_reads(policy), setting.window_sequences)
        if window_config is None or policy != self._policy:
            self._proposal = None
        self._setting, self._policy = setting, policy
        if window_config != self._window_config:
            self._window_config, self._steps, self._window = window_config, set(), None
            if window_config is not None:
                history = stored_samples(self._log, reversed(gauge_keys), policy=policy)
                self._window = SampleWindow.of(history, n_sequences=setting.window_sequences)

    def add_batch(self, key: BatchKey, reports: Iterable[StoredReport], *, policy: Policy) -> None:
        """Add a batch that gauges read."""
        if self._window is None:
            return
        place = (key.attempt_id, key.step)
        self._steps.add(place)
        sample = sample_of_reports((report.columns() for report in reports), policy)
        if sample is not None:
            self._window = self._window.with_sample(place, sample)

    def next_version(self, run: Run, *, current: PolicyVersion, is_stalled: bool, now: float) -> PolicyVersion | None:
        """Run the controller every `every_steps` steps; return the version to adopt, None where the bounds stay."""
        if self._window is None or len(self._steps) < self._setting.every_steps:
            return None
        self._steps.clear()
        versions = [default_version(now=run.created_at), *self._log.policies.history(run.id)]
        result = run_controller(
            self._setting,
            self._window.sample(),
            current=current,
            anchor=anchor_of(versions),
            is_stalled=is_stalled,
            calibrated=calibrated_limits(versions),
        )
        self._proposal = result if isinstance(result, BoundProposal) else None
        if self._proposal is None or self._setting.mode is not AdaptationMode.APPLY:
            return None
        return version_of_proposal(self._proposal, current=current, now=now)


def stored_samples(log: RunLog, keys: Iterable[BatchKey], *, policy: Policy) -> Iterator[tuple[StepKey, PolicySample]]:
    """Yield the sample of each stored batch that a policy reads, lazily; pruned and damaged batches are left out."""
    for key in keys:
        decoded, _ = decode_reports(log.reports.of_batch(key))
        sample = sample_of_reports((report.columns() for report in decoded), policy)
        if sample is not None:
            yield (key.attempt_id, key.step), sample
