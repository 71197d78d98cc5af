"""The verdicts on active runs, as the fleet shows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from trmon.domain.access import Access
from trmon.domain.alerts.alert import ListedAlert
from trmon.domain.health.judgement import RunVerdict, Urgency
from trmon.domain.health.run_summary import RunSummary
from trmon.domain.health.verdict import VerdictInputs, judge_run, urgency_of
from trmon.domain.incidents.incident import Incident, notifying_alerts
from trmon.domain.pipeline.run_update import RunView
from trmon.domain.runs.run import Run
from trmon.fleet.summaries import RunSummaries
from trmon.store import Store

BUDGET_SECONDS = 0.02
"""How long a reading may refresh summaries: the worker stores them too, and a scrape must be quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """The verdict on a run, how soon to investigate it, and its incident, if one is open or stood at its end."""

    verdict: RunVerdict
    need: Urgency
    incident: Incident | None = None
    is_acked: bool = False


class RunVerdicts:
    """Judges runs from their stored alerts and their summaries; may be called from any thread."""

    def __init__(self, store: Store, summaries: RunSummaries, *, health_rules: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._summaries = summaries
        self._health_rules = health_rules

    def of(self, views: Sequence[RunView], *, access: Access, now: float) -> Mapping[int, JudgedRun]:
        """Return the verdict on each run, by its id."""
        runs = [_at_newest_step(view) for view in views]
        ids = [run.id for run in runs]
        firing = self._store.alerts.firing(ids, access=access)
        incidents = self._store.alerts.newest_incidents(ids, access=access)
        summaries = self._summaries.of(runs, access=access, now=now, budget_seconds=BUDGET_SECONDS)
        rules = self._health_rules()
        return {
            run.id: judged_run(
                run, firing[run.id], incidents.get(run.id), summaries.get(run.id), health_rules=rules, now=now
            )
            for run in runs
        }


def judged_run(
    run: Run,
    firing: Sequence[ListedAlert],
    newest: ListedAlert | None,
    summary: RunSummary | None,
    *,
    health_rules: Collection[str],
    now: float,
) -> JudgedRun:
    """Return the verdict on a run. Args: newest: its newest incident, open or not."""
    inputs = VerdictInputs(
        run=run,
        alerts=[listed.alert for listed in firing],
        incident=None if newest is None else Incident(alert=newest.alert),
        diagnosis=None if summary is None else summary.diagnosis,
        expected_step_seconds=None if summary is None else summary.expected_step_seconds,
    )
    verdict = judge_run(inputs, now=now)
    notifying = notifying_alerts(inputs.alerts, health_rules=health_rules)
    acked = frozenset(listed.alert.episode for listed in firing if listed.ack is not None)
    return JudgedRun(
        verdict=verdict,
        need=urgency_of(verdict, alerts=notifying, acked=acked),
        incident=inputs.standing_incident,
        is_acked=newest is not None and newest.ack is not None,
    )


def _at_newest_step(view: RunView) -> Run:
    """Return the run with its last step, which a run that was loaded before its first step lacks."""
    if view.row is None:
        return view.run
    step = view.row.key.step
    return replace(view.run, last_step=max(step, view.run.last_step or step))
