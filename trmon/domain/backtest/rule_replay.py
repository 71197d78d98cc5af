"""Rule replay: judges the stored rows of a run by a rule set, by the stages of the pipeline, and lists its alerts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertState, Transition
from trmon.domain.batches.batch import QUARANTINED_PARTS, BatchRow
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.collapse_risk.risk_reading import risk_signals
from trmon.domain.incidents.incident import CAUSE_LABEL
from trmon.domain.pipeline.close_batch import evaluate_row
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import fold_row, with_signals
from trmon.domain.pipeline.publish import transition_deliveries
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.pipeline.transition import apply_run_end
from trmon.domain.policies import PolicyRegistry, default_version
from trmon.domain.rules.condition import signals_of
from trmon.domain.rules.rule import RuleSet
from trmon.domain.runs.run import Run, RunState
from trmon.domain.severity import Severity

RECEIVER = "backtest"
MAX_ALERTS = 200
"""Alerts of a run that are listed; further ones are counted."""
ARRIVAL_SIGNALS = frozenset(
    {"missing_ranks", "incomplete", "decision_mismatches", "client_spooled_bytes", QUARANTINED_PARTS}
)
"""Signals of how reports arrived; a rule over these alone says nothing of the run's health."""


Began = tuple[str, int]
"""An alert that fired: its rule and the step since which."""


class BacktestAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fires once the row of `step` has closed, or an incident that opens or changes then.

    It began at `since`, a finding with its onset. `at` is when that row closed, in seconds since the epoch, None if
    unknown. `is_sent`: a receiver would be notified; alerts of health are not sent themselves, their incident is.
    `is_alarm`: it is sent, and not only about how reports arrive. `cause` is the finding or rule that leads an
    incident. `lead_steps` before the collapse, below 0 after it.
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


class RuleSetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts that one rule set raises over a run.

    `n_raised` alerts fire and incidents open or change, of which `n_sent` notify and `n_pages` notify as a page.
    `first_alarm` and `first_page` are steps; `first_steps` the first step of each rule. `alerts` are the first 200.
    `unlike_live` names each alert that only one of the live run and the replay raised; None where that is not stored.
    """

    rules: str
    n_raised: int
    n_sent: int
    n_pages: int
    first_alarm: int | None
    first_page: int | None
    first_steps: dict[str, int]
    alerts: tuple[BacktestAlert, ...]
    unlike_live: tuple[str, ...] | None = None


class RuleReplay:
    """Judges one run, as a running one, by a rule set, row by row, in the order of the rows' ordinals."""

    def __init__(
        self, rules: RuleSet, run: Run, *, model: RiskModel | None = None, live: Collection[Began] | None = None
    ) -> None:
        """Args: model: predicts in place of the shipped one; live: what fired live, None if that is unknown."""
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
        self._newest: BatchRow | None = None
        self._raised = _RaisedAlerts(rules, live)

    def add(self, row: BatchRow) -> ClosingRow:
        """Return the row with the findings of rules that it makes final and the transitions that follow."""
        folded = fold_row(
            ClosingRow(context=self._context, pipeline_state=self.pipeline_state, row=row, is_stored=True)
        )
        if self._model is not None and folded.is_gauge:
            folded = with_signals(folded, risk_signals(folded.pipeline_state.features.after.risk_inputs, self._model))
        closing = evaluate_row(folded)
        self.pipeline_state, self._newest = closing.pipeline_state, row
        self._raised.add(closing.transitions, context=self._context, row=row)
        return closing

    def finish(self) -> tuple[Transition, ...]:
        """Return the transitions at the end of the run; none while it continues: its last step may have more rows."""
        if not self._run.state.ended or self._newest is None:
            return ()
        context, now = replace(self._context, run=self._run), self._newest.closed_at
        last, self.pipeline_state = apply_run_end(context=context, pipeline_state=self.pipeline_state, now=now)
        self._raised.add(last, context=context, row=self._newest)
        return last

    def outcome(self, name: str, *, onset: int | None) -> RuleSetOutcome:
        """Return what the rule set of this name raised. Args: onset: the step of the run's collapse, if it has one."""
        return self._raised.outcome(name, onset=onset)


class _RaisedAlerts:
    """Collects what a rule set raises over one run: counts, first steps, and the first alerts themselves."""

    def __init__(self, rules: RuleSet, live: Collection[Began] | None) -> None:
        of_state = {rule.name for rule in rules.over_states}
        self._live = None if live is None else {one for one in live if one[0] not in of_state}
        self._most_replayed = 0 if self._live is None else len(self._live) + MAX_ALERTS
        self._replayed: dict[str, Began] = {}
        """What fires here where it is known what fired live, by its episode: an incident may turn out to have begun
        earlier than it said first. At most so many more than live as alerts are listed."""
        read = {rule.name: frozenset(signals_of(rule.when)) for rule in rules.over_signals}
        self._about_arrival = {name for name, signals in read.items() if signals and signals <= ARRIVAL_SIGNALS}
        self._n_raised = self._n_sent = self._n_pages = 0
        self._first_alarm: int | None = None
        self._first_page: int | None = None
        self._first_steps: dict[str, int] = {}
        self._alerts: list[BacktestAlert] = []

    def add(self, transitions: tuple[Transition, ...], *, context: PassContext, row: BatchRow) -> None:
        """Add the transitions of a row; only those count that say that something begins to fire or has changed."""
        for transition in transitions:
            alert, event = transition.alert, transition.event
            if alert is not None and alert.state is AlertState.FIRING:
                self._note_begin(alert)
            if alert is not None and event is not None and event.state is AlertState.FIRING:
                is_sent = bool(transition_deliveries(transition, context))
                raised = BacktestAlert(
                    rule=alert.rule,
                    severity=alert.severity,
                    reason=transition.reason.name.lower(),
                    step=row.key.step,
                    since=alert.since_step,
                    at=row.closed_at,
                    is_sent=is_sent,
                    is_alarm=is_sent and alert.rule not in self._about_arrival,
                    summary=event.summary,
                    cause=alert.labels.get(CAUSE_LABEL, "") if alert.is_incident else "",
                )
                self._add(raised)

    def outcome(self, name: str, *, onset: int | None) -> RuleSetOutcome:
        """Return what was raised, with the lead of each listed alert to a collapse."""
        leads = (None if onset is None else onset - alert.step for alert in self._alerts)
        replayed, live = set(self._replayed.values()), self._live or set()
        unlike = [
            (step, f"{rule} at step {step} only {'replayed' if (rule, step) in replayed else 'live'}")
            for rule, step in replayed ^ live
        ]
        return RuleSetOutcome(
            rules=name,
            n_raised=self._n_raised,
            n_sent=self._n_sent,
            n_pages=self._n_pages,
            first_alarm=self._first_alarm,
            first_page=self._first_page,
            first_steps=self._first_steps,
            alerts=tuple(
                structs.replace(alert, lead_steps=lead) for alert, lead in zip(self._alerts, leads, strict=True)
            ),
            unlike_live=None if self._live is None else tuple(words for _, words in sorted(unlike)),
        )

    def _note_begin(self, alert: Alert) -> None:
        if alert.episode in self._replayed or len(self._replayed) < self._most_replayed:
            self._replayed[alert.episode] = alert.rule, alert.since_step

    def _add(self, alert: BacktestAlert) -> None:
        self._n_raised += 1
        self._n_sent += alert.is_sent
        self._first_steps.setdefault(alert.rule, alert.step)
        if alert.is_alarm:
            self._first_alarm = alert.step if self._first_alarm is None else self._first_alarm
            if alert.severity is Severity.PAGE:
                self._n_pages += 1
                self._first_page = alert.step if self._first_page is None else self._first_page
        if len(self._alerts) < MAX_ALERTS:
            self._alerts.append(alert)
