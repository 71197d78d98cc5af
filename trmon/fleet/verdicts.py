"""The verdicts on active runs, as the fleet shows them, and how far the judging is behind."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trmon.domain.access import Access
from trmon.domain.alerts.alert import ListedAlert
from trmon.domain.health.judgement import RunVerdict, Urgency, counted_as
from trmon.domain.health.verdict import VerdictInputs, standing_incident, urgency_of, verdict_of
from trmon.domain.incidents.incident import Incident, leading_alerts
from trmon.domain.pipeline.publish import Outlook, RunView
from trmon.domain.runs.run import Run
from trmon.store import Store
from trmon.store.repositories.judging import JudgingProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """The verdict on a run, how soon to investigate it, and its incident, if one is open or stood at its end.

    `newest` is its newest incident, open or not, `outlook` what its worker last stored.
    `alerts` are the firing alerts that count: an open incident once, without the alerts that joined it.
    """

    verdict: RunVerdict
    need: Urgency
    outlook: Outlook
    newest: ListedAlert | None = None
    incident: Incident | None = None
    is_acked: bool = False
    alerts: tuple[ListedAlert, ...] = ()

    @property
    def counts_as(self) -> str:
        """The words under which the run is counted."""
        return counted_as(self.verdict.kind.value, self.need.value)

    @property
    def since_step(self) -> int | None:
        """The step at which the illness began; None where a run is well, and where it only stopped."""
        return self.verdict.since_step if self.verdict.cause else None


class RunVerdicts:
    """Gives verdicts on runs from their stored alerts and outlooks; may be called from any thread."""

    def __init__(self, store: Store, *, health_rules: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._health_rules = health_rules

    def of(
        self, runs: Sequence[Run], *, access: Access, now: float, outlooks: Mapping[int, Outlook] | None = None
    ) -> Mapping[int, JudgedRun]:
        """Return the verdict on each run, by its id. Args: outlooks: by run id, if they are known."""
        ids = [run.id for run in runs]
        outlooks = outlooks or self._store.run_snapshots.outlooks(ids)
        firing = self._store.alerts.firing(ids, access=access)
        incidents = self._store.alerts.newest_incidents(ids, access=access)
        rules = self._health_rules()
        return {
            run.id: judged_run(
                run, firing[run.id], incidents.get(run.id), outlooks[run.id], health_rules=rules, now=now
            )
            for run in runs
        }

    def of_views(self, views: Sequence[RunView], *, access: Access, now: float) -> Mapping[int, JudgedRun]:
        """Return the verdict on the run of each view, by its id."""
        outlooks = {view.run.id: view for view in views}
        return self.of([_at_newest_step(view) for view in views], access=access, now=now, outlooks=outlooks)


def judged_run(
    run: Run,
    firing: Sequence[ListedAlert],
    newest: ListedAlert | None,
    outlook: Outlook,
    *,
    health_rules: Collection[str],
    now: float,
) -> JudgedRun:
    """Return the verdict on a run. Args: newest: its newest incident, open or not."""
    inputs = VerdictInputs(
        run=run,
        alerts=[listed.alert for listed in firing],
        incident=None if newest is None else Incident(alert=newest.alert),
        judgement=outlook.judgement,
        expected_step_seconds=outlook.expected_step_seconds,
    )
    verdict = verdict_of(inputs, now=now)
    leading = leading_alerts(inputs.alerts, health_rules=health_rules)
    acked = frozenset(listed.alert.episode for listed in firing if listed.ack is not None)
    return JudgedRun(
        verdict=verdict,
        need=urgency_of(verdict, alerts=leading, acked=acked),
        outlook=outlook,
        newest=newest,
        incident=standing_incident(run, inputs.incident),
        is_acked=newest is not None and newest.ack is not None,
        alerts=tuple(listed for listed in firing if listed.alert in leading),
    )


def _at_newest_step(view: RunView) -> Run:
    """Return the run with its last step, which a run that was loaded before its first step lacks."""
    if view.row is None:
        return view.run
    step = view.row.key.step
    return replace(view.run, last_step=max(step, view.run.last_step or step))


POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingDelay:
    """How long ago a worker made progress, infinite without one, and the age of the oldest report not processed."""

    beat_age_seconds: float
    oldest_unprocessed_seconds: float


class BeatingWorker(Protocol):
    """A worker in this process or in its child."""

    @property
    def beat_age_seconds(self) -> float:
        """How long ago it made progress."""


class JudgingWatch:
    """Polls the database; the ages grow by themselves while it cannot be read. May be read from any thread."""

    def __init__(self, judging: JudgingProgress, *, worker: BeatingWorker | None) -> None:
        """Args: worker: this process's or its child; None if workers are other processes."""
        self._judging = judging
        self._worker = worker
        self._beaten_at = time.monotonic()
        self._oldest_at = math.inf

    def poll(self) -> None:
        """Read the oldest report that no pass has processed, and when the workers of a fleet were last seen."""
        if self._worker is None:
            self._beaten_at = time.monotonic() - (self._judging.beat_age_seconds() or 0.0)
        else:
            self._judging.record_beat(age_seconds=self._worker.beat_age_seconds)
        self._oldest_at = self._judging.oldest_unprocessed_at()

    def delay(self) -> JudgingDelay:
        """Return the delay now."""
        worker = self._worker
        return JudgingDelay(
            beat_age_seconds=time.monotonic() - self._beaten_at if worker is None else worker.beat_age_seconds,
            oldest_unprocessed_seconds=max(0.0, time.time() - self._oldest_at),
        )
