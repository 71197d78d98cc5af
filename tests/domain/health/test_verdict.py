"""The verdict on a run: who needs somebody, why, and since when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.domain.diagnosis.runs import run as history
from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.remedies import REMEDIES
from trmon.domain.finding import Finding, Severity

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import Alert, AlertState
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
PAGE = replace(ALERT, rule="variance_blowup", step=30)
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


CRASHED, SILENT, JUST_ENDED = map(in_state, (RunState.CRASHED, RunState.STALLED, RunState.FINISHED))
LONG_ENDED = in_state(RunState.FINISHED, silent_seconds=REVIEW_SECONDS + 1)
COLLAPSED_AT = "reward collapse since step 22 (last good step 21)"
VERDICTS = [
    ("an open page", verdict_on(RUN, PAGE, WARN), VerdictKind.ACT, "variance blowup since step 30"),
    ("an open warning", verdict_on(RUN, WARN), VerdictKind.WATCH, "stale rollouts since step 20"),
    ("a finding without an alert", verdict_on(diagnosis=ILL), VerdictKind.WATCH, "step too large since step"),
    ("the cause before its alert", verdict_on(RUN, PAGE, diagnosis=ILL), VerdictKind.ACT, "step too large"),
    (
        "a second trainer before a finding",
        verdict_on(RUN, DUPLICATES, diagnosis=ILL),
        VerdictKind.WATCH,
        "two trainers since step 35; also step too large",
    ),
    ("a second trainer alone", verdict_on(RUN, DUPLICATES), VerdictKind.WATCH, "two trainers since step 35"),
    (
        "quarantined parts after the finding",
        verdict_on(RUN, QUARANTINE, diagnosis=ILL),
        VerdictKind.WATCH,
        "; also batch quarantined",
    ),
    ("a quarantine alone", verdict_on(RUN, QUARANTINE), VerdictKind.WATCH, "batch quarantined since step 36"),
    ("a page not yet due", verdict_on(RUN, replace(PAGE, state=AlertState.PENDING)), VerdictKind.HEALTHY, "no finding"),
    (
        "an informational alert",
        verdict_on(RUN, replace(PAGE, severity=Severity.INFO)),
        VerdictKind.HEALTHY,
        "no finding",
    ),
    ("all findings known, none holds", verdict_on(), VerdictKind.HEALTHY, "no finding in "),
    ("a pause", verdict_on(in_state(RunState.PAUSED)), VerdictKind.HEALTHY, ", paused"),
    ("a run without a diagnosis", verdict_on(diagnosis=None), VerdictKind.UNKNOWN, "not diagnosed yet"),
    ("no step", verdict_on(replace(RUN, last_step=None), diagnosis=None), VerdictKind.UNKNOWN, "no step has closed"),
    (
        "too early",
        verdict_on(diagnosis=EARLY),
        VerdictKind.NO_DRIFT_FOUND,
        "mismatch_kl_k3 0.0001, mismatch_prob_pearson 0.999, mismatch_ppl_ratio 1 in 120 steps so far; "
        "the other checks need more steps",
    ),
    (
        "a missing argument",
        verdict_on(diagnosis=UNSURE),
        VerdictKind.NO_DRIFT_FOUND,
        "; not measured: clip saturation (pass advantages to log_batch",
    ),
    (
        "too early, and a missing argument",
        verdict_on(diagnosis=EARLY_AND_UNSURE),
        VerdictKind.NO_DRIFT_FOUND,
        "in 120 steps so far; not measured: clip saturation (pass advantages to log_batch",
    ),
    (
        "scalars only",
        verdict_on(diagnosis=diagnose(History.of_signals(SCALARS))),
        VerdictKind.TRAINING_HEALTHY,
        "agreement not measured (pass rollout_logprobs and old_logprobs to log_batch); reward_ema 0.5",
    ),
    (
        "neither agreement nor scalars to judge",
        verdict_on(diagnosis=diagnose(History.of_signals({"nonfinite_steps": 0.0}))),
        VerdictKind.UNKNOWN,
        "no agreement of log-probs, reward, entropy, length or grad_norm is known",
    ),
    (
        "between the limits",
        verdict_on(diagnosis=diagnose(history(mismatch_prob_pearson=0.97))),
        VerdictKind.UNKNOWN,
        "no finding, but mismatch_prob_pearson is 0.97",
    ),
    (
        "an open incident whose cause the newest steps no longer show",
        verdict_on(RUN, COLLAPSE, SYMPTOM, incident=COLLAPSE),
        VerdictKind.ACT,
        f"{COLLAPSED_AT}; also mask rate",
    ),
    (
        "an open incident that warns",
        verdict_on(RUN, replace(COLLAPSE, severity=Severity.WARN), incident=replace(COLLAPSE, severity=Severity.WARN)),
        VerdictKind.WATCH,
        "reward collapse since step 22",
    ),
    (
        "an open incident before a second trainer and before another finding",
        verdict_on(RUN, COLLAPSE, DUPLICATES, incident=COLLAPSE, diagnosis=ILL),
        VerdictKind.ACT,
        f"{COLLAPSED_AT}; also two trainers",
    ),
    ("a healed incident", verdict_on(RUN, incident=HEALED), VerdictKind.HEALTHY, "no finding in "),
    (
        "an end with an incident, though the newest steps look healthy",
        verdict_on(JUST_ENDED, incident=ENDED_ILL),
        VerdictKind.ENDED_ILL,
        f"{COLLAPSED_AT}; ended at step 40",
    ),
    (
        "an end with an incident, long ago",
        verdict_on(LONG_ENDED, incident=ENDED_ILL),
        VerdictKind.ENDED_ILL,
        "reward collapse since step 22",
    ),
    (
        "an end after an incident that healed",
        verdict_on(JUST_ENDED, incident=HEALED),
        VerdictKind.FINISHED,
        "ended at step 40, healthy",
    ),
    (
        "a healthy end of a later start",
        verdict_on(replace(RUN, state=RunState.FINISHED, attempt_id=4, last_report_at=NOW + 60.0), incident=ENDED_ILL),
        VerdictKind.FINISHED,
        "ended at step 40, healthy",
    ),
    (
        "a crash of an ill run, with its error",
        verdict_on(
            replace(CRASHED, ending=RunEnding(at=NOW, reason="exception", error="ValueError: x")),
            COLLAPSE,
            incident=COLLAPSE,
        ),
        VerdictKind.CRASHED,
        "ValueError: x at step 40; before: reward collapse since step 22 (last good step 21)",
    ),
    (
        "a silent trainer with the alert of its state",
        verdict_on(in_state(RunState.STALLED, silent_seconds=840.0), STALLED),
        VerdictKind.STALLED,
        "no report for 14 min, expected one every 10 s",
    ),
    (
        "a silent trainer whose steps took no time",
        verdict_on(SILENT, expected_step_seconds=0.0002),
        VerdictKind.STALLED,
        "no report for 30 s",
    ),
    (
        "a silent trainer without a usual step",
        verdict_on(SILENT, expected_step_seconds=None),
        VerdictKind.STALLED,
        "no report for 30 s",
    ),
    (
        "a crash after a warning",
        verdict_on(CRASHED, WARN),
        VerdictKind.CRASHED,
        "the trainer ended with an error at step 40; before: stale rollouts since step 20",
    ),
    ("a crash after a page", verdict_on(CRASHED, PAGE), VerdictKind.CRASHED, "; before: variance"),
    ("an end without findings", verdict_on(JUST_ENDED), VerdictKind.FINISHED, "ended at step 40, healthy"),
    (
        "an end without a diagnosis",
        verdict_on(JUST_ENDED, diagnosis=None),
        VerdictKind.UNKNOWN,
        "ended at step 40, not diagnosed yet",
    ),
    ("an end with a finding", verdict_on(JUST_ENDED, diagnosis=ILL), VerdictKind.WATCH, "; ended at step 40"),
    (
        "an end with a finding, long ago",
        verdict_on(LONG_ENDED, diagnosis=ILL),
        VerdictKind.FINISHED,
        "step too large since step 0; ended at step 40",
    ),
]


@pytest.mark.parametrize(("found", "kind", "why"), [pytest.param(*case, id=sentence) for sentence, *case in VERDICTS])
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


ACTIONS = [
    ("the runbook of the alert", verdict_on(RUN, replace(PAGE, runbook="filter")), "filter"),
    ("the remedy of the incident", verdict_on(RUN, COLLAPSE, incident=COLLAPSE), REMEDIES[Finding.REWARD_COLLAPSE].fix),
    ("the cause's remedy", verdict_on(RUN, PAGE, diagnosis=ILL), REMEDIES[ILL.primary].fix),
    ("a second trainer first", verdict_on(RUN, replace(DUPLICATES, runbook="end one"), diagnosis=ILL), "end one"),
    ("a silent trainer", verdict_on(SILENT, replace(STALLED, runbook="look at its log")), "look at its log"),
    ("a crash without an alert", verdict_on(CRASHED), None),
    ("a healthy run", verdict_on(), None),
    ("no finding", verdict_on(diagnosis=UNSURE), None),
]


@pytest.mark.parametrize(("found", "todo"), [pytest.param(*case, id=sentence) for sentence, *case in ACTIONS])
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
    recent = verdict_on(JUST_ENDED, incident=ENDED_ILL)
    past = verdict_on(LONG_ENDED, incident=ENDED_ILL)
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
