"""The comparison of monitors in Markdown, and what was approximated to make it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from trmon.domain.severity import Severity
from trmon_research.collapse.markdown import table
from trmon_research.collapse.rivals.monitor_alerts import CRITICAL, MonitorAlert, MonitorAlerts
from trmon_research.collapse.rivals.scoring import EARLIEST_ONSET, MonitorScore, score_alerts, with_severity

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
AlertsByRun = Mapping[str, tuple[MonitorAlert, ...]]


def comparison_table(found: MonitorAlerts, told: AlertsByRun, onsets: Mapping[str, int | None]) -> list[str]:
    """Return the lines of the table, its head included.

    Args: found: alerts of the other monitors on at least these runs; told: those of trmon. Errors: KeyError naming a
    run that is not in them.
    """
    return table(HEAD, [_cells(monitor, score_alerts(alerts, onsets)) for monitor, alerts in _monitors(found, told)])


def approximations() -> list[str]:
    """Return a Markdown list of what was approximated, for all monitors and for each."""
    lines = []
    for subject, module in DOCUMENTED.items():
        source = Path(__file__).with_name(f"{module}.py").read_text()  # to import it, the monitor must be installed
        docstring = ast.get_docstring(ast.parse(source)) or ""
        lines += [f"- {subject}: {' '.join(bullet.split())}" for bullet in docstring.split(BULLET)[1:]]
    return lines


def _monitors(found: MonitorAlerts, told: AlertsByRun) -> Iterator[tuple[str, AlertsByRun]]:
    for name, record in found.monitors.items():
        yield f"{name} {record.version}", record.runs
        yield f"{name} {record.version}, critical only", with_severity(record.runs, CRITICAL)
    yield "trmon, messages", told
    yield "trmon, pages", with_severity(told, Severity.PAGE.value)


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
