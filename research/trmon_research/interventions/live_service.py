"""What the service knows of a run while it trains: the rows of each step, the calibrated policy and the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.scalar_steps import scalar_numbers
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.collapse_risk.risk_reading import risk_signals
from trmon.domain.signals.run_features import FeatureState
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy
from trmon_research.interventions.live_calibration import LiveCalibration
from trmon_research.interventions.standing_cause import StandingCause, standing_cause
from trmon_research.sweep.service_pipeline import ServicePipeline
from trmon_research.sweep.spooled_signals import StepRows


class LiveService:
    """Takes the messages of one run, and closes each step when it is complete."""

    def __init__(self, config: Mapping[str, object], *, model: RiskModel | None = None) -> None:
        """Args: config: what the trainer declared of the run; model: predicts the risk in place of the shipped one."""
        self._model = model
        self._features = FeatureState()
        self._pipeline = ServicePipeline(config)
        self._calibration = LiveCalibration(self._pipeline.context)
        self._reports: list[wire.Report] = []
        self._scalars: dict[str, float] = {}

    def receive(self, message: wire.Message) -> None:
        """Take a message: reports and scalars belong to the open step."""
        if isinstance(message, wire.Report):
            self._reports.append(message)
        elif isinstance(message, wire.Scalars):
            self._scalars |= scalar_numbers(message.values)

    def close_step(self) -> StepRows:
        """Return the rows and alerts of the open step, whose messages have all come, and open the next one."""
        reports, scalars = self._reports, self._scalars
        self._reports, self._scalars = [], {}
        passed = [self._pipeline.close(report, scalars=scalars) for report in reports]
        rows = [row for row, _ in passed]
        self._calibration.add_step(rows, reports, state=self._pipeline.state)
        alerts = tuple(alert for _, raised in passed for alert in raised)
        return StepRows(rollout=self._with_risk(rows), last_update=rows[-1], alerts=alerts)

    def _with_risk(self, rows: Sequence[BatchRow]) -> BatchRow:
        """Return the row of the rollout with the risk that the given model predicts."""
        rollout, *updates = rows
        if self._model is None:
            return rollout
        self._features = self._features.with_row(
            rollout.numbers, rollout.scalars, begins_step=True, is_rollout=rollout.key.update is None
        )
        signals = {**rollout.signals, **risk_signals(self._features.after.risk_inputs, self._model)}
        for update in updates:
            self._features = self._features.with_update(update.numbers)
        return structs.replace(rollout, signals=signals)

    @property
    def policy(self) -> Policy:
        """The policy in force, calibrated on the run's own early steps once there were enough."""
        return self._calibration.policy

    def cause(self) -> StandingCause:
        """Return the cause that the judgement names after the newest step."""
        return standing_cause(self._pipeline.state, context=self._pipeline.context)
