"""What trmon's built-in rules raised in stored runs, as the alerts of further monitors."""

from __future__ import annotations

from collections.abc import Iterable

from trmon.domain.alerts.alert import INCIDENT_RULE
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert
from trmon_research.sweep.run_file import RunRecord

AlertsByRun = dict[str, tuple[MonitorAlert, ...]]


def rule_alerts(records: Iterable[RunRecord]) -> AlertsByRun:
    """Return the alerts of single rules, by the name of the run."""
    return {record.config.run_name: _alerts(record, of_incident=False) for record in records}


def incident_alerts(records: Iterable[RunRecord]) -> AlertsByRun:
    """Return the notifications of incidents: one for the opening of each, and one for each change of it."""
    return {record.config.run_name: _alerts(record, of_incident=True) for record in records}


def _alerts(record: RunRecord, *, of_incident: bool) -> tuple[MonitorAlert, ...]:
    return tuple(
        MonitorAlert(alert.step, alert.rule, alert.severity.value)
        for alert in record.alerts
        if (alert.rule == INCIDENT_RULE) is of_incident
    )
