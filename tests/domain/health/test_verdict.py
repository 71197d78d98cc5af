"""The verdict on a run: who needs somebody, why, and since when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.diagnosis.runs import run as history
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.remedies import REMEDIES
from trmon.domain.finding import Finding, Severity
from trmon.domain.health.judgement import RunVerdict, Urgency, VerdictKind, duration
from trmon.domain.health.verdict import REVIEW_SECONDS, VerdictInputs, judge_run, urgency_of
from trmon.domain.incidents.incident import (
    ENDED_LABEL,
    WITH_THE_RUN,
    Incident,
    incident_identity,
    incident_labels,
    notifying_alerts,
)
from trmon.domain.runs.run import Run, RunEnding, RunState

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
EARLY = diagnose(history(without=("response_length_growth",), response_length_mean=90.0))
UNSURE = diagnose(history(without=("clip_fraction",)))
EARLY_AND_UNSURE = diagnose(history(without=("response_length_growth", "clip_fraction"), response_length_mean=90.0))
COLLAPSE = replace(
    PAGE,
    identity=incident_identity(1),
    rule="incident",
    step=22,
    labels=incident_labels("reward_collapse", Finding.REWARD_COLLAPSE, 21),
)
ENDED_ILL = replace(
    COLLAPSE, state=AlertState.RESOLVED, labels={**COLLAPSE.labels, ENDED_LABEL: WITH_THE_RUN}, updated_at=NOW
)
HEALED = replace(COLLAPSE, state=AlertState.RESOLVED)
SYMPTOM = replace(WARN, rule="mask_rate", step=25)
SCALARS = {"reward_ema": 0.5, "reward_collapse": 0.0, "reward_decline": 0.0, "nonfinite_steps": 0.0, "grad_norm": 1.0}


def verdict_on(
    run: Run = RUN,
    *alerts: Alert,
    incident: Alert | None = None,
    diagnosis: Diagnosis | None = HEALTHY,
    expected_step_seconds: float | None = 10.0,
) -> RunVerdict:
    inputs = VerdictInputs(
        run=run,
        alerts=alerts,
        incident=None if incident is None else Incident(alert=incident),
        diagnosis=diagnosis,
        expected_step_seconds=expected_step_seconds,
    )
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
            "two trainers since step 35; also step too large",
            id="a second trainer before a finding",
        ),
        pytest.param(
            verdict_on(RUN, DUPLICATES), VerdictKind.WATCH, "two trainers since step 35", id="a second trainer alone"
        ),
        pytest.param(
            verdict_on(RUN, QUARANTINE, diagnosis=ILL),
            VerdictKind.WATCH,
            "; also batch quarantined",
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
            verdict_on(diagnosis=EARLY),
            VerdictKind.NO_DRIFT_FOUND,
            "mismatch_kl_k3 0.0001, mismatch_prob_pearson 0.999, mismatch_ppl_ratio 1 in 120 steps so far; "
            "the other checks need more steps",
            id="too early",
        ),
        pytest.param(
            verdict_on(diagnosis=UNSURE),
            VerdictKind.NO_DRIFT_FOUND,
            "; not measured: clip saturation (pass advantages to log_batch",
            id="a missing argument",
        ),
        pytest.param(
            verdict_on(diagnosis=EARLY_AND_UNSURE),
            VerdictKind.NO_DRIFT_FOUND,
            "in 120 steps so far; not measured: clip saturation (pass advantages to log_batch",
            id="too early, and a missing argument",
        ),
        pytest.param(
            verdict_on(diagnosis=diagnose(History.of_signals(SCALARS))),
            VerdictKind.TRAINING_HEALTHY,
            "agreement not measured (pass rollout_logprobs and old_logprobs to log_batch); reward_ema 0.5",
            id="scalars only",
        ),
        pytest.param(
            verdict_on(diagnosis=diagnose(History.of_signals({"nonfinite_steps": 0.0}))),
            VerdictKind.UNKNOWN,
            "no agreement of log-probs, reward, entropy, length or grad_norm is known",
            id="neither agreement nor scalars to judge",
        ),
        pytest.param(
            verdict_on(diagnosis=diagnose(history(mismatch_prob_pearson=0.97))),
            VerdictKind.UNKNOWN,
            "no finding, but mismatch_prob_pearson is 0.97",
            id="between the limits",
        ),
        pytest.param(
            verdict_on(RUN, COLLAPSE, SYMPTOM, incident=COLLAPSE),
            VerdictKind.ACT,
            "reward collapse since step 22 (last good step 21); also mask rate",
            id="an open incident whose cause the newest steps no longer show",
        ),
        pytest.param(
            verdict_on(
                RUN, replace(COLLAPSE, severity=Severity.WARN), incident=replace(COLLAPSE, severity=Severity.WARN)
            ),
            VerdictKind.WATCH,
            "reward collapse since step 22",
            id="an open incident that warns",
        ),
        pytest.param(
            verdict_on(RUN, COLLAPSE, DUPLICATES, incident=COLLAPSE, diagnosis=ILL),
            VerdictKind.ACT,
            "reward collapse since step 22 (last good step 21); also two trainers",
            id="an open incident before a second trainer and before another finding",
        ),
        pytest.param(verdict_on(RUN, incident=HEALED), VerdictKind.HEALTHY, "no finding in ", id="a healed incident"),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED), incident=ENDED_ILL),
            VerdictKind.ENDED_ILL,
            "reward collapse since step 22 (last good step 21); ended at step 40",
            id="an end with an incident, though the newest steps look healthy",
        ),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED, silent_seconds=REVIEW_SECONDS + 1), incident=ENDED_ILL),
            VerdictKind.ENDED_ILL,
            "reward collapse since step 22",
            id="an end with an incident, long ago",
        ),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED), incident=HEALED),
            VerdictKind.FINISHED,
            "ended at step 40, healthy",
            id="an end after an incident that healed",
        ),
        pytest.param(
            verdict_on(
                replace(RUN, state=RunState.FINISHED, attempt_id=4, last_report_at=NOW + 60.0), incident=ENDED_ILL
            ),
            VerdictKind.FINISHED,
            "ended at step 40, healthy",
            id="a healthy end of a later start",
        ),
        pytest.param(
            verdict_on(
                replace(
                    in_state(RunState.CRASHED), ending=RunEnding(at=NOW, reason="exception", error="ValueError: x")
                ),
                COLLAPSE,
                incident=COLLAPSE,
            ),
            VerdictKind.CRASHED,
            "ValueError: x at step 40; before: reward collapse since step 22 (last good step 21)",
            id="a crash of an ill run, with its error",
        ),
        pytest.param(
            verdict_on(in_state(RunState.STALLED, silent_seconds=840.0), STALLED),
            VerdictKind.STALLED,
            "no report for 14 min, expected one every 10 s",
            id="a silent trainer with the alert of its state",
        ),
        pytest.param(
            verdict_on(in_state(RunState.STALLED), expected_step_seconds=0.0002),
            VerdictKind.STALLED,
            "no report for 30 s",
            id="a silent trainer whose steps took no time",
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
            verdict_on(in_state(RunState.CRASHED), PAGE),
            VerdictKind.CRASHED,
            "; before: variance",
            id="a crash after a page",
        ),
        pytest.param(
            verdict_on(in_state(RunState.FINISHED)),
            VerdictKind.FINISHED,
            "ended at step 40, healthy",
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
            "step too large since step 0; ended at step 40",
            id="an end with a finding, long ago",
        ),
    ],
)
def test_the_verdict_is_the_most_urgent_one(found: RunVerdict, kind: VerdictKind, why: str) -> None:
    assert found.kind is kind
    assert why in found.why
    assert found.sentence == f"{kind.words.capitalize()}: {found.why}"


def test_a_verdict_names_its_first_step() -> None:
    assert verdict_on(RUN, WARN, PAGE).since_step == PAGE.step
    assert verdict_on(diagnosis=ILL).since_step == ILL.observed[0].since_step
    assert verdict_on(RUN, COLLAPSE, SYMPTOM, incident=COLLAPSE, diagnosis=ILL).since_step == COLLAPSE.step
    assert verdict_on().since_step is None


def test_nothing_was_found_never_stands_beside_a_firing_alert() -> None:
    for alert in (PAGE, WARN, DUPLICATES, QUARANTINE):
        assert "no finding" not in verdict_on(RUN, alert).why
        assert "healthy" not in verdict_on(RUN, alert).sentence.lower()


@pytest.mark.parametrize(
    ("found", "todo"),
    [
        pytest.param(verdict_on(RUN, replace(PAGE, runbook="filter")), "filter", id="the runbook of the alert"),
        pytest.param(
            verdict_on(RUN, COLLAPSE, incident=COLLAPSE),
            REMEDIES[Finding.REWARD_COLLAPSE].fix,
            id="the remedy of the incident",
        ),
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


def test_an_acknowledged_incident_stands_for_its_symptoms() -> None:
    found = verdict_on(RUN, COLLAPSE, SYMPTOM, incident=COLLAPSE)
    notifying = notifying_alerts([COLLAPSE, SYMPTOM, DUPLICATES], health_rules=frozenset({"mask_rate"}))
    assert notifying == [COLLAPSE, DUPLICATES]
    acked = frozenset({COLLAPSE.episode})
    assert urgency_of(found, alerts=notifying, acked=acked) is Urgency.NOW
    assert urgency_of(found, alerts=notifying[:1], acked=acked) is Urgency.NONE


def test_a_run_that_ended_ill_is_to_be_investigated_for_a_day() -> None:
    recent = verdict_on(in_state(RunState.FINISHED), incident=ENDED_ILL)
    past = verdict_on(in_state(RunState.FINISHED, silent_seconds=REVIEW_SECONDS + 1), incident=ENDED_ILL)
    assert [urgency_of(one, alerts=(), acked=frozenset()) for one in (recent, past)] == [Urgency.SOON, Urgency.NONE]


def test_kinds_are_ordered_by_urgency() -> None:
    urgencies = [kind.urgency for kind in VerdictKind]
    assert urgencies == sorted(urgencies, key=list(Urgency).index)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, "0 s"), (0.25, "0.2 s"), (45.0, "45 s"), (840.0, "14 min"), (7_300.0, "2 h"), (200_000.0, "2 d")],
)
def test_durations_use_their_largest_unit(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
