"""The service's calibration of a run's bounds, over rows and reports in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trmon.domain.batches.batch import BatchRow
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredReport
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.policies import PolicyVersion
from trmon.worker.adaptation import Calibrator
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy
from trmon_research.sweep.service_pipeline import in_memory_report


@dataclass(slots=True)
class _VersionMemory:
    """The policy versions of one run."""

    made: list[PolicyVersion] = field(default_factory=list)

    def history(self, run_id: int) -> list[PolicyVersion]:
        """Return the versions, oldest first."""
        return list(self.made)


@dataclass(slots=True)
class _RunMemory:
    """What calibration reads of a run."""

    reports: dict[BatchKey, wire.Report] = field(default_factory=dict)
    policies: _VersionMemory = field(default_factory=_VersionMemory)
    rows: list[BatchRow] = field(default_factory=list)

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        """Return the rows with a larger ordinal."""
        return self.rows[ordinal : ordinal + limit]

    def reports_of(self, key: BatchKey) -> list[StoredReport]:
        """Return the report of one batch."""
        return [in_memory_report(self.reports[key], key, id_=0)]


class LiveCalibration:
    """Calibrates the default policy of one run as the service does; the rows' own decisions keep their bounds."""

    def __init__(self, context: PassContext) -> None:
        self._context = context
        self._memory = _RunMemory()
        self._calibrator = Calibrator(self._memory)
        self._current = context.policies.current
        self._calibrator.configure(context.run, self._current, ordinal=0)

    @property
    def policy(self) -> Policy:
        """The policy in force: its bounds are their ceilings until they are calibrated."""
        return self._current.policy

    def add_step(self, rows: Sequence[BatchRow], reports: Sequence[wire.Report], *, state: PipelineState) -> None:
        """Add the rows of a step and the reports that they are of; calibrate if it is due."""
        self._memory.rows += rows
        self._memory.reports |= {row.key: report for row, report in zip(rows, reports, strict=True)}
        self._calibrator.add_rows(rows)
        version = self._calibrator.next_version(state=state, now=self._context.now)
        if version is not None:
            self._memory.policies.made.append(version)
            self._current = version
            self._calibrator.configure(self._context.run, version, ordinal=state.ordinal)
