"""The comparison of monitors in Markdown, and what was approximated to make it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trmon.domain.severity import Severity
from trmon_research.collapse.markdown import table
from trmon_research.collapse.rivals.monitor_alerts import CRITICAL, MonitorAlerts
from trmon_research.collapse.rivals.rule_alerts import AlertsByRun, incident_alerts, rule_alerts
from trmon_research.collapse.rivals.scoring import EARLIEST_ONSET, MonitorScore, score_alerts, with_severity
from trmon_research.sweep.run_file import RunRecord

HEAD = (
    "monitor",
    "collapses found",
    "before the onset",
    "median lead (updates)",
    "other runs alarmed",
    "alerts a run",
    f"found of those that begin before update {EARLIEST_ONSET}",
)
DOCUMENTED = {
    "all": "trainer_log",
    "rlwatch": "rlwatch_replay",
    "rldoctor": "rldoctor_replay",
    "rlprobe": "rlprobe_replay",
}
"""The module whose docstring lists the approximations for all monitors, and for each."""
BULLET = "\n- "


def comparison_table(found: MonitorAlerts, records: Iterable[RunRecord]) -> list[str]:
    """Return the lines of the table, its head included.

    Args: found: alerts of the other monitors on at least these runs. Errors: KeyError naming a run that is not in them.
    """
    return table(HEAD, [_cells(monitor, score) for monitor, score in monitor_scores(found, records).items()])


def monitor_scores(found: MonitorAlerts, records: Iterable[RunRecord]) -> dict[str, MonitorScore]:
    """Return the score of each monitor and of its highest severity alone, then of trmon's rules and incidents."""
    records = list(records)
    onsets = {record.config.run_name: record.outcome.label.onset for record in records}
    return {monitor: score_alerts(alerts, onsets) for monitor, alerts in _monitors(found, records)}


def approximations() -> list[str]:
    """Return a Markdown list of what was approximated, for all monitors and for each."""
    lines = []
    for subject, module in DOCUMENTED.items():
        source = Path(__file__).with_name(f"{module}.py").read_text()  # to import it, the monitor must be installed
        docstring = ast.get_docstring(ast.parse(source)) or ""
        lines += [f"- {subject}: {' '.join(bullet.split())}" for bullet in docstring.split(BULLET)[1:]]
    return lines


def _monitors(found: MonitorAlerts, records: list[RunRecord]) -> Iterator[tuple[str, AlertsByRun]]:
    for name, record in found.monitors.items():
        yield f"{name} {record.version}", record.runs
        yield f"{name} {record.version}, critical only", with_severity(record.runs, CRITICAL)
    by_kind: Mapping[str, AlertsByRun] = {"rules": rule_alerts(records), "incident": incident_alerts(records)}
    for kind, alerts in by_kind.items():
        yield f"trmon {kind} (any)", alerts
        yield f"trmon {kind} (page)", with_severity(alerts, Severity.PAGE.value)


def _cells(monitor: str, score: MonitorScore) -> tuple[str, ...]:
    return (
        monitor,
        f"{score.found} of {score.collapses}",
        f"{score.found_before} of {score.collapses}",
        "-" if score.median_lead is None else f"{score.median_lead:g}",
        f"{score.others_alarmed} of {score.others}",
        f"{score.alerts_a_run:.1f}",
        f"{score.early_found} of {score.early_collapses}",
    )
