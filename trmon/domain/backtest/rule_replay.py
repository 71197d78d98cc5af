"""Rule replay: evaluates a rule set over the stored rows of a run, by the stages of the pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState
from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.batch import QUARANTINED_PARTS, BatchRow
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.collapse_risk.risk_reading import risk_signals
from trmon.domain.incidents.incident import CAUSE_LABEL
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import detect_findings, fold_row
from trmon.domain.pipeline.publish import transition_deliveries
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.pipeline.transition import apply_run_end, apply_transitions
from trmon.domain.policies import PolicyRegistry, default_version
from trmon.domain.rules.condition import signals_of
from trmon.domain.rules.rule import RuleSet
from trmon.domain.runs.run import Run, RunState
from trmon.domain.severity import Severity

RECEIVER = "backtest"


@dataclass(frozen=True, slots=True)
class RaisedTransition:
    """A transition of an alert or an incident, and whether it would be sent as a notification that something fires."""

    transition: Transition
    is_sent: bool


class RuleReplay:
    """Evaluates a rule set over one run, row by row, in the order of the rows' ordinals.

    While rows come the run is a running one, as it was when they were written.
    """

    def __init__(self, rules: RuleSet, run: Run, *, model: RiskModel | None = None) -> None:
        """Args: model: predicts the risk of a collapse in place of the shipped model."""
        self._run = run
        self._context = PassContext(
            run=replace(run, state=RunState.RUNNING),
            policies=PolicyRegistry.of(default_version(now=0.0)),
            rules=rules,
            receivers=(RECEIVER,),
            public_url=None,
            now=0.0,
        )
        self._model = model
        self.pipeline_state = PipelineState()

    def add(self, row: BatchRow) -> ClosingRow:
        """Return the row with the findings that it makes final and the transitions that follow."""
        folded = fold_row(ClosingRow(context=self._context, pipeline_state=self.pipeline_state, row=row))
        if self._model is not None and folded.is_gauge:
            risk = risk_signals(folded.pipeline_state.features.after.risk_inputs, self._model)
            folded = replace(folded, row=structs.replace(folded.row, signals={**folded.row.signals, **risk}))
        closing = apply_transitions(detect_findings(folded))
        self.pipeline_state = closing.pipeline_state
        return closing

    def finish(self, *, now: float) -> tuple[RaisedTransition, ...]:
        """Return what the end of the run raises; nothing while it continues, as its last step may have more rows.

        Args: now: the time of the end.
        """
        if not self._run.state.ended:
            return ()
        self._context = replace(self._context, run=self._run)
        last, self.pipeline_state = apply_run_end(context=self._context, pipeline_state=self.pipeline_state, now=now)
        return self.raised(last)

    def raised(self, transitions: tuple[Transition, ...]) -> tuple[RaisedTransition, ...]:
        """Return transitions of the newest row with whether each would be sent."""
        sent = [transition_deliveries(transition, self._context) for transition in transitions]
        return tuple(
            RaisedTransition(transition, any(delivery.told_state is AlertState.FIRING for delivery in deliveries))
            for transition, deliveries in zip(transitions, sent, strict=True)
        )


MAX_ALERTS = 200
"""Alerts of a run that are listed; further ones are counted."""
ARRIVAL_SIGNALS = frozenset(
    {"missing_ranks", "incomplete", "decision_mismatches", "client_spooled_bytes", QUARANTINED_PARTS}
)
"""Signals of how reports arrived; a rule over these alone says nothing of the run's health."""


class BacktestAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fires once the row of `step` has closed, or an incident that opens or changes then.

    Its condition holds since `since`. `at` is when that row closed, in seconds since the epoch, None if unknown.
    `is_sent`: a receiver would be notified; alerts of health are not sent themselves, their incident is. `is_alarm`: it
    is sent, and not only about how reports arrive. `cause` is the rule that leads an incident. `lead_steps` before the
    collapse, below 0 after it.
    """

    rule: str
    severity: Severity
    reason: str
    step: int
    since: int
    at: float | None
    is_sent: bool
    is_alarm: bool
    summary: str
    cause: str = ""
    lead_steps: int | None = None


class RaisedAlerts:
    """Collects what a rule set raises over one run: counts, first steps, and the first alerts themselves."""

    def __init__(self, rules: RuleSet) -> None:
        self.n_raised = self.n_sent = self.n_pages = 0
        self.first_alarm: int | None = None
        self.first_page: int | None = None
        self.first_steps: dict[str, int] = {}
        self._alerts: list[BacktestAlert] = []
        self._about_arrival = {
            rule.name
            for rule in rules.rules
            if rule.reads_batches and ARRIVAL_SIGNALS.issuperset(signals_of(rule.when))
        }

    def add(self, raised: Iterable[RaisedTransition], *, step: int, at: float | None) -> None:
        """Add the transitions of a row; only those count that say that something begins to fire or has changed."""
        for each in raised:
            alert, event = each.transition.alert, each.transition.event
            if alert is not None and event is not None and event.state is AlertState.FIRING:
                self._add(self._alert_of(each, alert, event, step=step, at=at))

    def with_leads(self, onset: int | None) -> tuple[BacktestAlert, ...]:
        """Return the listed alerts with their lead to a collapse."""
        if onset is None:
            return tuple(self._alerts)
        return tuple(structs.replace(alert, lead_steps=onset - alert.step) for alert in self._alerts)

    def _add(self, alert: BacktestAlert) -> None:
        self.n_raised += 1
        self.n_sent += alert.is_sent
        self.first_steps.setdefault(alert.rule, alert.step)
        if alert.is_alarm:
            self.first_alarm = alert.step if self.first_alarm is None else self.first_alarm
            if alert.severity is Severity.PAGE:
                self.n_pages += 1
                self.first_page = alert.step if self.first_page is None else self.first_page
        if len(self._alerts) < MAX_ALERTS:
            self._alerts.append(alert)

    def _alert_of(
        self, raised: RaisedTransition, alert: Alert, event: AlertEvent, *, step: int, at: float | None
    ) -> BacktestAlert:
        return BacktestAlert(
            rule=alert.rule,
            severity=alert.severity,
            reason=raised.transition.reason.name.lower(),
            step=step,
            since=alert.step,
            at=at,
            is_sent=raised.is_sent,
            is_alarm=raised.is_sent and alert.rule not in self._about_arrival,
            summary=event.summary,
            cause=alert.labels.get(CAUSE_LABEL, "") if alert.is_incident else "",
        )
