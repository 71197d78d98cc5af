"""How well the alerts of a monitor separate runs that collapse from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from trmon.domain.analysis.collapse import WITHIN
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert

EARLIEST_ONSET = 20
"""A run whose collapse begins before this update is counted apart: no monitor has seen it healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorScore:
    """Counts over runs that collapse, over the others, and over those that collapse too early to be foreseen.

    A collapse is found by any alert from update 0 to WITHIN updates after its onset, and before the onset by one that
    comes earlier than it. `median_lead` is in updates, over those found before, None without one. `alerts_a_run` is the
    mean over all runs, after a collapse to WITHIN updates after its onset; NaN without a run.
    """

    collapses: int
    found: int
    found_before: int
    median_lead: float | None
    others: int
    others_alarmed: int
    early_collapses: int
    early_found: int
    alerts_a_run: float


def score_alerts(alerts: Mapping[str, Sequence[MonitorAlert]], onsets: Mapping[str, int | None]) -> MonitorScore:
    """Return the score of a monitor.

    Args: alerts, onsets: by the name of the run; onset: None without a collapse. Errors: KeyError naming a run that has
    an onset and no list of alerts.
    """
    steps = {run: _counted_steps(alerts[run], onset) for run, onset in onsets.items()}
    early = [run for run, onset in onsets.items() if onset is not None and onset < EARLIEST_ONSET]
    leads = {run: _lead(steps[run], onset) for run, onset in onsets.items() if onset is not None and run not in early}
    found = [lead for lead in leads.values() if lead is not None]
    before = [lead for lead in found if lead > 0]
    others = [run for run, onset in onsets.items() if onset is None]
    return MonitorScore(
        collapses=len(leads),
        found=len(found),
        found_before=len(before),
        median_lead=median(before) if before else None,
        others=len(others),
        others_alarmed=sum(bool(steps[run]) for run in others),
        early_collapses=len(early),
        early_found=sum(bool(steps[run]) for run in early),
        alerts_a_run=fmean(map(len, steps.values())) if steps else float("nan"),
    )


def with_severity(alerts: Mapping[str, Sequence[MonitorAlert]], severity: str) -> dict[str, tuple[MonitorAlert, ...]]:
    """Return the alerts of one severity."""
    return {run: tuple(alert for alert in raised if alert.severity == severity) for run, raised in alerts.items()}


def _counted_steps(alerts: Sequence[MonitorAlert], onset: int | None) -> list[int]:
    return sorted(alert.step for alert in alerts if onset is None or alert.step <= onset + WITHIN)


def _lead(steps: Sequence[int], onset: int) -> int | None:
    """Return how many updates before the onset the first alert came, negative after it; None without an alert."""
    return onset - steps[0] if steps else None
