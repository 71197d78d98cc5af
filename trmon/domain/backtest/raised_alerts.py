"""The alerts and incidents that a rule set raises over one run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState
from trmon.domain.backtest.rule_replay import RaisedTransition
from trmon.domain.batches.batch import QUARANTINED_PARTS
from trmon.domain.incidents.incident import CAUSE_LABEL
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition import signals_of
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_set import RuleSet

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
        self._about_arrival = {rule.name for rule in rules.rules if _is_about_arrival(rule)}

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


def _is_about_arrival(rule: Rule) -> bool:
    return rule.reads_batches and ARRIVAL_SIGNALS.issuperset(signals_of(rule.when))
