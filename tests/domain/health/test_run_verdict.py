"""The verdict on a run: who needs somebody, why, and since when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.diagnosis.runs import run as history
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.diagnosis import REMEDIES, Diagnosis, diagnose
from trmon.domain.health.run_verdict import (
    REVIEW_SECONDS,
    RunVerdict,
    Urgency,
    VerdictInputs,
    VerdictKind,
    duration,
    judge_run,
    urgency_of,
)
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState

NOW = 10_000.0
RUN = replace(MemoryLog().stored_run, last_step=40, last_report_at=NOW - 30.0)
PAGE = Alert(
    identity="1/variance_blowup",
    run_id=1,
    rule="variance_blowup",
    severity=Severity.PAGE,
    state=AlertState.FIRING,
    attempt_id=3,
    step=30,
    update=None,
    since_at=NOW - 60.0,
    updated_at=NOW,
    value=0.4,
    threshold=0.5,
    summary="importance weights blow up",
    labels={},
)
WARN = replace(PAGE, rule="stale_rollouts", severity=Severity.WARN, step=20)
DUPLICATES = replace(WARN, rule="two_trainers", step=35)
QUARANTINE = replace(WARN, rule="batch_quarantined", step=36)
STALLED = replace(PAGE, rule="stalled")
HEALTHY = diagnose(history())
ILL = diagnose(history(staleness_kl_k3=0.2))
EARLY = diagnose(history(without=("response_length_growth",)))
UNSURE = diagnose(history(without=("clip_fraction",)))


def verdict_on(
    run: Run = RUN, *alerts: Alert, diagnosis: Diagnosis | None = HEALTHY, expected_step_seconds: float | None = 10.0
) -> RunVerdict:
    inputs = VerdictInputs(run=run, alerts=alerts, diagnosis=diagnosis, expected_step_seconds=expected_step_seconds)
    return judge_run(inputs, now=NOW)


def in_state(state: RunState, *, silent_seconds: float = 30.0) -> Run:
    return replace(RUN, state=state, last_report_at=NOW - silent_seconds)


@pytest.mark.parametrize(
    ("found", "kind", "why"),
    [
        pytest.param(verdict_on(RUN, PAGE, WARN), VerdictKind.ACT, "variance blowup since step 30", id="an open page"),
        pytest.param(verdict_on(RUN, WARN), VerdictKind.WATCH, "stale rollouts since step 20", id="an open warning"),
        pytest.param(
            verdict_on(diagnosis=ILL), VerdictKind.WATCH, "step too large since step", id="a finding without an alert"
        ),
        pytest.param(
            verdict_on(RUN, PAGE, diagnosis=ILL), VerdictKind.ACT, "step too large", id="the cause before its alert"
        ),
        pytest.param(
            verdict_on(RUN, DUPLICATES, diagnosis=ILL),
            VerdictKind.WATCH,
            "two trainers since step 35, step too large since",
            id="a second trainer before a finding",
        ),
        pytest.param(
            verdict_on(RUN, DUPLICATES), VerdictKind.WATCH, "two trainers since step 35", id="a second trainer alone"
        ),
        pytest.param(
            verdict_on(RUN, QUARANTINE, diagnosis=ILL),
            VerdictKind.WATCH,
            ", batch quarantined since 36",
            id="quarantined parts after the finding",
        ),
        pytest.param(
            verdict_on(RUN, QUARANTINE), VerdictKind.WATCH, "batch quarantined since step 36", id="a quarantine alone"
        ),
        pytest.param(
            verdict_on(RUN, replace(PAGE, state=AlertState.PENDING)),
            VerdictKind.HEALTHY,
            "no finding",
            id="a page not yet due",
        ),
        pytest.param(
            verdict_on(RUN, replace(PAGE, severity=Severity.INFO)),
            VerdictKind.HEALTHY,
            "no finding",
            id="an informational alert",
        ),
        pytest.param(verdict_on(), VerdictKind.HEALTHY, "no finding in ", id="all findings known, none holds"),
        pytest.param(verdict_on(in_state(RunState.PAUSED)), VerdictKind.HEALTHY, ", paused", id="a pause"),
        pytest.param(
            verdict_on(diagnosis=None), VerdictKind.UNKNOWN, "not diagnosed yet", id="a run without a diagnosis"
        ),
        pytest.param(
            verdict_on(replace(RUN, last_step=None), diagnosis=None),
            VerdictKind.UNKNOWN,
            "no step has closed",
            id="no step",
        ),
        pytest.param(
            verdict_on(diagnosis=EARLY), VerdictKind.UNKNOWN, "; the full diagnosis needs more steps", id="too early"
        ),
        pytest.param(
            verdict_on(diagnosis=UNSURE), VerdictKind.UNKNOWN, "pass advantages to log_batch", id="a missing argument"
        ),
        pytest.param(
            verdict_on(in_state(RunState.STALLED, silent_seconds=840.0), STALLED),
            VerdictKind.STALLED,
            "no report for 14 min, expected one every 10 s",
            id="a silent trainer with the alert of its state",
        ),
        pytest.param(
            verdict_on(in_state(RunState.STALLED), expected_step_seconds=None),
            VerdictKind.STALLED,
            "no report for 30 s",
            id="a silent trainer without a usual step",
        ),
        pytest.param(
            verdict_on(in_state(RunState.CRASHED), WARN),
            VerdictKind.CRASHED,
            "the trainer ended with an error at step 40; before: stale rollouts since step 20",
            id="a crash after a warning",
        ),
        pytest.param(
            verdict_on(in_state(RunState.CRASHED), PAGE), VerdictKind.ACT, "variance", id="a crash after a page"
        ),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED)),
            VerdictKind.FINISHED,
            "ended at step 40, no finding",
            id="an end without findings",
        ),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED), diagnosis=None),
            VerdictKind.UNKNOWN,
            "ended at step 40, not diagnosed yet",
            id="an end without a diagnosis",
        ),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED), diagnosis=ILL),
            VerdictKind.WATCH,
            "; ended at step 40",
            id="an end with a finding",
        ),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED, silent_seconds=REVIEW_SECONDS + 1), diagnosis=ILL),
            VerdictKind.FINISHED,
            "ended at step 40 with step too large since step",
            id="an end with a finding, long ago",
        ),
    ],
)
def test_the_verdict_is_the_most_urgent_one(found: RunVerdict, kind: VerdictKind, why: str) -> None:
    assert found.kind is kind
    assert why in found.why
    assert found.sentence == f"{kind.value.capitalize()}: {found.why}"


def test_a_verdict_names_its_first_step() -> None:
    assert verdict_on(RUN, WARN, PAGE).since_step == PAGE.step
    assert verdict_on(diagnosis=ILL).since_step == ILL.observed[0].since_step
    assert verdict_on().since_step is None


@pytest.mark.parametrize(
    ("found", "todo"),
    [
        pytest.param(verdict_on(RUN, replace(PAGE, runbook="filter")), "filter", id="the runbook of the alert"),
        pytest.param(verdict_on(RUN, PAGE, diagnosis=ILL), REMEDIES[ILL.primary].fix, id="the cause's remedy"),
        pytest.param(
            verdict_on(RUN, replace(DUPLICATES, runbook="end one"), diagnosis=ILL),
            "end one",
            id="a second trainer first",
        ),
        pytest.param(
            verdict_on(in_state(RunState.STALLED), replace(STALLED, runbook="look at its log")),
            "look at its log",
            id="a silent trainer",
        ),
        pytest.param(verdict_on(in_state(RunState.CRASHED)), None, id="a crash without an alert"),
        pytest.param(verdict_on(), None, id="a healthy run"),
        pytest.param(verdict_on(diagnosis=UNSURE), None, id="no finding"),
    ],
)
def test_a_verdict_has_the_first_action(found: RunVerdict, todo: str | None) -> None:
    assert found.todo == todo


def test_a_run_whose_alerts_are_all_acknowledged_is_not_urgent() -> None:
    found = verdict_on(RUN, PAGE, WARN)
    assert urgency_of(found, alerts=(PAGE, WARN), acked=frozenset()) is Urgency.NOW
    assert urgency_of(found, alerts=(PAGE, WARN), acked=frozenset({PAGE.episode})) is Urgency.NOW
    assert urgency_of(found, alerts=(PAGE, WARN), acked=frozenset({PAGE.episode, WARN.episode})) is Urgency.NONE
    assert urgency_of(verdict_on(diagnosis=ILL), alerts=(), acked=frozenset()) is Urgency.SOON


def test_kinds_are_ordered_by_urgency() -> None:
    urgencies = [kind.urgency for kind in VerdictKind]
    assert urgencies == sorted(urgencies, key=list(Urgency).index)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, "0 s"), (0.25, "0.2 s"), (45.0, "45 s"), (840.0, "14 min"), (7_300.0, "2 h"), (200_000.0, "2 d")],
)
def test_durations_use_their_largest_unit(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
