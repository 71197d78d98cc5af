"""The service's pipeline in this process: reports of one run in, rows and alerts out, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.batches.assembly import ClosedBatch, Completeness
from trmon.domain.batches.batch import BatchRow
from trmon.domain.identity import BatchKey, ReportKey, RunKey
from trmon.domain.incidents.incident import CAUSE_LABEL
from trmon.domain.messages import StoredReport
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.pipeline.merge import ClosingBatch
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.policies import PolicyRegistry, default_version
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon_client.core import wire
from trmon_research.sweep.unstored_run import ATTEMPT_ID, RUN_ID, unstored_run


class RaisedAlert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert that fired after `step`, whose condition has held since `since`; `cause` names what leads an incident.

    The rule `incident` means the incident that notifies: once for its opening, and for each change of it.
    """

    rule: str
    severity: Severity
    step: int
    since: int
    cause: str = ""


class ServicePipeline:
    """Passes the reports of one run, each a whole batch, through the stages of the service with the built-in rules.

    Bounds stay as the run's default policy has them: the service calibrates them outside the pipeline.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        """Args: config: what the trainer declared of the run."""
        self._context = _context(dict(config))
        self._pipeline_state = PipelineState()
        self._reports = 0
        self._seen: set[tuple[str, Severity, str]] = set()

    @property
    def context(self) -> PassContext:
        """The context of every pass."""
        return self._context

    @property
    def state(self) -> PipelineState:
        """The state after the newest report."""
        return self._pipeline_state

    def close(self, report: wire.Report, *, scalars: Mapping[str, float]) -> tuple[BatchRow, tuple[RaisedAlert, ...]]:
        """Return the row that the service stores of a report and its step's scalars, and the alerts that it raises.

        Args: reports come in the order of their steps, of a step the rollout's first.
        """
        self._reports += 1
        key = BatchKey(ATTEMPT_ID, report.step, report.update)
        batch = ClosedBatch(
            key=key,
            reports=(in_memory_report(report, key, id_=self._reports),),
            completeness=Completeness.COMPLETE,
            missing_ranks=(),
        )
        closing = ClosingBatch(
            context=self._context, pipeline_state=self._pipeline_state, batch=batch, scalars=dict(scalars)
        )
        changes = close_batch(closing)
        assert changes.row is not None
        self._pipeline_state = changes.pipeline_state
        return changes.row, tuple(self._newly_raised(changes.alerts, step=report.step))

    def _newly_raised(self, alerts: Iterable[Alert], *, step: int) -> Iterator[RaisedAlert]:
        """Yield the alerts of health that began to fire, or whose cause or severity changed."""
        for alert in alerts:
            is_of_health = alert.is_incident or alert.rule in self._context.rules.of_health
            if alert.state is not AlertState.FIRING or alert.severity is Severity.INFO or not is_of_health:
                continue
            cause = alert.labels.get(CAUSE_LABEL, "")
            raised = RaisedAlert(
                rule=alert.rule, severity=alert.severity, step=step, since=alert.since_step, cause=cause
            )
            seen = (alert.episode, alert.severity, cause)
            if seen not in self._seen:
                self._seen.add(seen)
                yield raised


def in_memory_report(report: wire.Report, key: BatchKey, *, id_: int) -> StoredReport:
    """Return a report as the store returns it."""
    columns = wire.unpack_columns(report)
    accepted = report.accepted or wire.pack_bits(np.ones(columns.n_sequences, bool))
    return StoredReport(
        id=id_,
        run_id=RUN_ID,
        key=ReportKey(key, report.rank, report.chunk),
        received_at=report.sent_at,
        accepted=accepted,
        n_sequences=columns.n_sequences,
        n_tokens=int(columns["n_tokens"].sum()),
        report=report,
        columns=lambda: columns,
    )


def _context(config: dict[str, object]) -> PassContext:
    return PassContext(
        run=unstored_run(RunKey("lab", "sweep"), state=RunState.RUNNING, config=config),
        policies=PolicyRegistry.of(default_version(now=0.0)),
        rules=builtin_rules(),
        receivers=(),
        public_url=None,
        now=0.0,
    )
