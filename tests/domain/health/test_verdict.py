"""The verdict on a run, with what to do first; its summary in few points; and how to read its worst answers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.findings.judgements import KL_OUTSIDE, found, judged
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import ENDED_LABEL, SINCE_LABEL, Alert, AlertState
from trmon.domain.collapse_risk.risk_reading import OUTSIDE, RISK
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.configuration import IMPORTED
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.verdict import Course, Judgement, Word
from trmon.domain.health.judgement import RunVerdict, Urgency, VerdictKind, duration
from trmon.domain.health.problems import remedy_of
from trmon.domain.health.runbook import answers_of
from trmon.domain.health.verdict import KINDS, REVIEW_SECONDS, VerdictInputs, urgency_of, verdict_of
from trmon.domain.incidents.incident import (
    CAUSE_LABEL,
    LAST_GOOD_LABEL,
    OPEN_WARNING,
    REMEDY_LABEL,
    TITLE_LABEL,
    Incident,
    incident_identity,
    leading_alerts,
)
from trmon.domain.pipeline.publish import POINTS, Sparkline, summary_of
from trmon.domain.runs.run import Run, RunEnding, RunState
from trmon.domain.severity import Severity

NOW = 10_000.0
RUN = replace(MemoryLog().stored_run, last_step=40, last_report_at=NOW - 30.0)
PAGE = replace(ALERT, rule="variance_blowup", step=30)
WARN = replace(PAGE, rule="stale_rollouts", severity=Severity.WARN, step=20)
DUPLICATES = replace(WARN, rule="two_trainers", step=35)
QUARANTINE = replace(WARN, rule="batch_quarantined", step=36)
STALLED = replace(PAGE, rule="stalled")
HEALTHY = judged()
FELL = Course(signal="reward_mean", first=1.08, last=0.59)
ILL = judged(found("step_too_large"), found("clip_saturation", since=30))
FALLEN = judged(found("reward_collapse"))
COLLAPSE = replace(
    PAGE,
    identity=incident_identity(1),
    rule="incident",
    step=31,
    labels={
        CAUSE_LABEL: "reward_collapse",
        TITLE_LABEL: "reward collapse",
        REMEDY_LABEL: "reward_collapse",
        SINCE_LABEL: "22",
        LAST_GOOD_LABEL: "21",
    },
)
ENDED_ILL = replace(
    COLLAPSE, state=AlertState.RESOLVED, labels={**COLLAPSE.labels, ENDED_LABEL: OPEN_WARNING}, updated_at=NOW
)
BY_RULE = replace(COLLAPSE, labels={CAUSE_LABEL: "mask_rate", SINCE_LABEL: "22"}, runbook="filter")
BY_RULE_TO_THE_END = replace(ENDED_ILL, labels={**BY_RULE.labels, ENDED_LABEL: OPEN_WARNING})
HEALED = replace(COLLAPSE, state=AlertState.RESOLVED)
SYMPTOM = replace(WARN, rule="mask_rate", step=25)


def verdict_on(
    run: Run = RUN,
    *alerts: Alert,
    incident: Alert | None = None,
    judgement: Judgement | None = HEALTHY,
    expected_step_seconds: float | None = 10.0,
) -> RunVerdict:
    inputs = VerdictInputs(
        run=run,
        alerts=alerts,
        incident=None if incident is None else Incident(alert=incident),
        judgement=judgement,
        expected_step_seconds=expected_step_seconds,
    )
    return verdict_of(inputs, now=NOW)


def in_state(state: RunState, *, silent_seconds: float = 30.0) -> Run:
    return replace(RUN, state=state, last_report_at=NOW - silent_seconds)


CRASHED, SILENT, JUST_ENDED = map(in_state, (RunState.CRASHED, RunState.STALLED, RunState.FINISHED))
LONG_ENDED = in_state(RunState.FINISHED, silent_seconds=REVIEW_SECONDS + 1)
COLLAPSED_AT = "reward collapse since step 22 (last good step 21)"
TOO_LARGE_AT = "step too large since step 22 (last good step 21)"
VERDICTS = {
    VerdictKind.ACT: [
        ("an open page", verdict_on(RUN, PAGE, WARN), "variance blow-up since step 30; also stale"),
        ("a finding with a page", verdict_on(RUN, PAGE, judgement=ILL), TOO_LARGE_AT),
        (
            "an open incident whose cause the newest steps no longer show",
            verdict_on(RUN, COLLAPSE, SYMPTOM, incident=COLLAPSE),
            f"{COLLAPSED_AT}; also mask rate",
        ),
        (
            "an open incident before a second trainer and before another finding",
            verdict_on(RUN, COLLAPSE, DUPLICATES, incident=COLLAPSE, judgement=ILL),
            f"{COLLAPSED_AT}; also two trainers",
        ),
    ],
    VerdictKind.WATCH: [
        ("an open warning", verdict_on(RUN, WARN), "stale rollouts since step 20"),
        (
            "findings without an alert, as in the first steps",
            verdict_on(judgement=ILL),
            f"{TOO_LARGE_AT}; also clip saturation",
        ),
        (
            "a second trainer before a finding",
            verdict_on(RUN, DUPLICATES, judgement=ILL),
            "two trainers since step 35; also step too large",
        ),
        ("a second trainer alone", verdict_on(RUN, DUPLICATES), "two trainers since step 35"),
        (
            "quarantined parts after the leading finding",
            verdict_on(RUN, QUARANTINE, judgement=ILL),
            f"{TOO_LARGE_AT}; also batch quarantined, clip saturation",
        ),
        ("a quarantine alone", verdict_on(RUN, QUARANTINE), "batch quarantined since step 36"),
        (
            "an illness from the start",
            verdict_on(judgement=judged(found("cut_at_limit", since=0))),
            "since step 0 (from the start)",
        ),
        (
            "a reward that fell before the finding that leads",
            verdict_on(judgement=judged(found("step_too_large"), since=Place(1, 18), last_good=Place(1, 17))),
            "step too large since step 18 (last good step 17)",
        ),
        (
            "an open incident that warns",
            verdict_on(
                RUN, replace(COLLAPSE, severity=Severity.WARN), incident=replace(COLLAPSE, severity=Severity.WARN)
            ),
            COLLAPSED_AT,
        ),
    ],
    VerdictKind.HEALTHY: [
        ("a page not yet due", verdict_on(RUN, replace(PAGE, state=AlertState.PENDING)), "reward rose"),
        ("an informational alert", verdict_on(RUN, replace(PAGE, severity=Severity.INFO)), "rose"),
        ("nothing found", verdict_on(), "reward rose"),
        ("a pause", verdict_on(in_state(RunState.PAUSED)), "reward rose, paused"),
        ("a healed incident", verdict_on(RUN, incident=HEALED), "reward rose"),
    ],
    VerdictKind.OUTSIDE: [
        (
            "a value outside its healthy range",
            verdict_on(judgement=judged(word=Word.OUTSIDE, outside=(KL_OUTSIDE,))),
            "KL per token 0.21 (healthy < 0.005); reward rose",
        ),
    ],
    VerdictKind.LEARNT_NOTHING: [
        ("a reward at its lowest", verdict_on(judgement=judged(word=Word.LEARNT_NOTHING, reward=None)), ""),
    ],
    VerdictKind.TOO_FEW_ROWS: [
        (
            "few steps",
            verdict_on(judgement=judged(word=Word.TOO_FEW_ROWS, rows=7, reward=FELL)),
            "(7 of 20); reward 1.08 to 0.59",
        ),
        ("a first step that no other follows", verdict_on(judgement=None), "(0 of 20)"),
    ],
    VerdictKind.TRAINING_HEALTHY: [
        (
            "no agreement",
            verdict_on(judgement=judged(word=Word.TRAINING_HEALTHY)),
            "agreement not measured; reward rose",
        ),
    ],
    VerdictKind.NO_DRIFT_FOUND: [
        ("no training", verdict_on(judgement=judged(word=Word.NOT_JUDGED, reward=None)), "training not judged"),
    ],
    VerdictKind.UNKNOWN: [
        (
            "nothing of which trmon knows",
            verdict_on(judgement=judged(word=Word.NOTHING_KNOWN, reward=None)),
            "nothing here that trmon knows",
        ),
        ("no step", verdict_on(replace(RUN, last_step=None), judgement=None), "no step has closed yet"),
    ],
    VerdictKind.ENDED_ILL: [
        (
            "an end with a fallen reward",
            verdict_on(JUST_ENDED, incident=ENDED_ILL, judgement=FALLEN),
            f"{COLLAPSED_AT}; ended at step 40",
        ),
        (
            "an end with a page",
            verdict_on(JUST_ENDED, judgement=judged(found("step_too_large", severity=Severity.PAGE))),
            f"{TOO_LARGE_AT}; ended at step 40",
        ),
        (
            "an end with an incident of a page that a rule leads",
            verdict_on(JUST_ENDED, incident=BY_RULE_TO_THE_END),
            "mask rate since step 22; ended at step 40",
        ),
        (
            "an end with a fallen reward, long ago",
            verdict_on(LONG_ENDED, incident=ENDED_ILL, judgement=FALLEN),
            COLLAPSED_AT,
        ),
    ],
    VerdictKind.FINISHED: [
        (
            "an end with a page at the top of the reward",
            verdict_on(JUST_ENDED, judgement=judged(found("step_too_large", severity=Severity.PAGE), at_top=True)),
            f"ended at step 40 with an open warning: {TOO_LARGE_AT}",
        ),
        (
            "an end after an incident that healed",
            verdict_on(JUST_ENDED, incident=HEALED),
            "ended at step 40, healthy; reward rose",
        ),
        (
            "a healthy end of a later start",
            verdict_on(
                replace(RUN, state=RunState.FINISHED, attempt_id=4, last_report_at=NOW + 60.0), incident=ENDED_ILL
            ),
            "ended at step 40, healthy",
        ),
        ("an end without findings", verdict_on(JUST_ENDED), "ended at step 40, healthy; reward rose"),
        (
            "an end outside the healthy range",
            verdict_on(JUST_ENDED, judgement=judged(word=Word.OUTSIDE, outside=(KL_OUTSIDE,))),
            "ended at step 40, outside the healthy range: KL per token 0.21",
        ),
        (
            "an end with a warning",
            verdict_on(JUST_ENDED, judgement=ILL),
            f"ended at step 40 with an open warning: {TOO_LARGE_AT}",
        ),
    ],
    VerdictKind.CRASHED: [
        (
            "a crash of an ill run, with its error",
            verdict_on(
                replace(CRASHED, ending=RunEnding(at=NOW, reason="exception", error="ValueError: x")),
                COLLAPSE,
                incident=COLLAPSE,
                judgement=FALLEN,
            ),
            f"ValueError: x at step 40; before: {COLLAPSED_AT}",
        ),
        (
            "a crash after a warning",
            verdict_on(CRASHED, WARN),
            "the trainer ended with an error at step 40; before: stale rollouts since step 20",
        ),
        ("a crash after a page", verdict_on(CRASHED, PAGE), "; before: variance"),
    ],
    VerdictKind.STALLED: [
        (
            "a silent trainer with the alert of its state",
            verdict_on(in_state(RunState.STALLED, silent_seconds=840.0), STALLED),
            "no report for 14 min, expected one every 10 s",
        ),
        (
            "a silent trainer whose steps took no time",
            verdict_on(SILENT, expected_step_seconds=0.0002),
            "no report for 30 s",
        ),
        ("a silent trainer without a usual step", verdict_on(SILENT, expected_step_seconds=None), "no report for 30 s"),
    ],
}


@pytest.mark.parametrize(
    ("verdict", "kind", "why"),
    [pytest.param(verdict, kind, why, id=case) for kind, cases in VERDICTS.items() for case, verdict, why in cases],
)
def test_the_verdict_is_the_most_urgent_one(verdict: RunVerdict, kind: VerdictKind, why: str) -> None:
    assert verdict.kind is kind
    assert why in verdict.why


@pytest.mark.parametrize("word", [word for word in Word if word is not Word.FINDING])
def test_the_sentence_says_the_word_of_the_judge_once(word: Word) -> None:
    sentence = verdict_on(judgement=judged(word=word, outside=(KL_OUTSIDE,), reward=None)).sentence.lower()
    for part in word.value.split("; "):
        assert sentence.count(part) == 1
    assert KINDS[word].words in sentence


def test_a_verdict_names_the_onset() -> None:
    assert verdict_on(RUN, WARN, PAGE).since_step == PAGE.step
    assert verdict_on(judgement=ILL).since_step == 22
    assert verdict_on(RUN, COLLAPSE, SYMPTOM, incident=COLLAPSE).since_step == 22, "not that of the opening"
    assert verdict_on().since_step is None


def test_healthy_never_stands_beside_a_firing_alert_or_outside_the_ranges() -> None:
    ill = [verdict_on(RUN, alert) for alert in (PAGE, WARN, DUPLICATES, QUARANTINE)]
    outside = verdict_on(judgement=judged(word=Word.OUTSIDE, outside=(KL_OUTSIDE,), reward=None))
    for verdict in (*ill, outside):
        assert not verdict.sentence.lower().startswith("healthy")
        assert "healthy; " not in verdict.why


def action(key: str, *, has_ended: bool = False) -> str:
    return remedy_of(key, RUN, last_good_step=21, has_ended=has_ended).first


ACTIONS = [
    ("the runbook of the alert", verdict_on(RUN, replace(PAGE, runbook="filter")), "filter"),
    ("the remedy of the incident", verdict_on(RUN, COLLAPSE, incident=COLLAPSE), action("reward_collapse")),
    ("the runbook of the rule that leads an incident", verdict_on(RUN, BY_RULE, incident=BY_RULE), "filter"),
    ("the remedy of the finding that leads", verdict_on(RUN, PAGE, judgement=ILL), action("step_too_large")),
    (
        "the remedy for the next run",
        verdict_on(JUST_ENDED, judgement=ILL),
        action("step_too_large", has_ended=True),
    ),
    ("a second trainer first", verdict_on(RUN, replace(DUPLICATES, runbook="end one"), judgement=ILL), "end one"),
    ("a silent trainer", verdict_on(SILENT, replace(STALLED, runbook="look at its log")), "look at its log"),
    ("a crash without an alert", verdict_on(CRASHED), None),
    ("a healthy run", verdict_on(), None),
    ("an end long ago", verdict_on(LONG_ENDED, incident=ENDED_ILL, judgement=FALLEN), None),
]


@pytest.mark.parametrize(("verdict", "todo"), [pytest.param(*case, id=sentence) for sentence, *case in ACTIONS])
def test_a_verdict_has_the_first_action(verdict: RunVerdict, todo: str | None) -> None:
    assert verdict.todo == todo


def test_a_run_whose_alerts_are_all_acknowledged_is_not_urgent() -> None:
    verdict = verdict_on(RUN, PAGE, WARN)
    assert urgency_of(verdict, alerts=(PAGE, WARN), acked=frozenset()) is Urgency.NOW
    assert urgency_of(verdict, alerts=(PAGE, WARN), acked=frozenset({PAGE.episode})) is Urgency.NOW
    assert urgency_of(verdict, alerts=(PAGE, WARN), acked=frozenset({PAGE.episode, WARN.episode})) is Urgency.NONE
    assert urgency_of(verdict_on(judgement=ILL), alerts=(), acked=frozenset()) is Urgency.SOON


def test_an_acknowledged_incident_stands_for_its_symptoms() -> None:
    verdict = verdict_on(RUN, COLLAPSE, SYMPTOM, incident=COLLAPSE)
    leading = leading_alerts([COLLAPSE, SYMPTOM, DUPLICATES], health_rules=frozenset({"mask_rate"}))
    assert leading == [COLLAPSE, DUPLICATES]
    acked = frozenset({COLLAPSE.episode})
    assert urgency_of(verdict, alerts=leading, acked=acked) is Urgency.NOW
    assert urgency_of(verdict, alerts=leading[:1], acked=acked) is Urgency.NONE


def test_a_run_that_ended_ill_is_to_be_investigated_for_a_day() -> None:
    recent, past = (verdict_on(run, incident=ENDED_ILL, judgement=FALLEN) for run in (JUST_ENDED, LONG_ENDED))
    assert [recent.urgency, past.urgency] == [Urgency.SOON, Urgency.NONE]


def test_a_value_outside_its_range_is_to_be_investigated_after_20_steps_while_the_run_lives() -> None:
    outside = {"word": Word.OUTSIDE, "outside": (KL_OUTSIDE,)}
    assert verdict_on(judgement=judged(**outside)).urgency is Urgency.SOON
    assert verdict_on(judgement=judged(rows=19, **outside)).urgency is Urgency.NONE
    assert verdict_on(JUST_ENDED, judgement=judged(**outside)).urgency is Urgency.NONE


def test_kinds_are_ordered_by_urgency() -> None:
    urgencies = [kind.urgency for kind in VerdictKind]
    assert urgencies == sorted(urgencies, key=list(Urgency).index)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, "0 s"), (0.25, "0.2 s"), (45.0, "45 s"), (840.0, "14 min"), (7_300.0, "2 h"), (200_000.0, "2 d")],
)
def test_durations_use_their_largest_unit(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


JUDGE = Judge(builtin_catalogue())


def state_after(
    rewards: Iterable[float], *, attempt: int = 1, first: int = 0, since: JudgeState | None = None
) -> JudgeState:
    """Return the state after rows with these rewards, and a KL of a hundredth of each; NaN is not logged."""
    state = since or JudgeState()
    for step, reward in enumerate(rewards, first):
        values = {} if math.isnan(reward) else {"reward_mean": reward, "mismatch_kl_k3": reward / 100.0}
        state = JUDGE.fold(state, Row(place=Place(attempt, step), values=values, facts={}))
    return state


def line(state: JudgeState) -> Sparkline | None:
    return summary_of({}, state).reward


def test_few_rows_are_drawn_as_they_are() -> None:
    state = state_after([1.0, math.nan, 0.123456], first=3)
    found = summary_of({}, state)
    assert found.reward == Sparkline(first_step=3, last_step=5, values=(1.0, None, 0.1235))
    assert found.kl == Sparkline(first_step=3, last_step=5, values=(0.01, None, 0.001235))


def test_many_rows_are_drawn_by_the_mean_of_what_is_known() -> None:
    found = line(state_after([1.0, 3.0, math.nan, 2.0] * POINTS))
    assert found == Sparkline(first_step=0, last_step=4 * POINTS - 1, values=(2.0,) * POINTS)


def test_a_long_run_shows_its_newest_rows() -> None:
    found = line(state_after(float(step) for step in range(500)))
    assert found is not None
    assert (found.first_step, found.last_step, len(found.values)) == (300, 499, POINTS)
    assert found.values[0] == pytest.approx(302.0, abs=0.5)


def test_an_attempt_that_goes_back_shows_its_own_rows() -> None:
    state = state_after([5.0, 6.0], attempt=2, first=40, since=state_after([1.0] * 60))
    assert line(state) == Sparkline(first_step=40, last_step=41, values=(5.0, 6.0))


def test_a_signal_that_is_logged_seldom_has_gaps_and_one_that_is_not_has_no_line() -> None:
    found = summary_of({}, state_after([0.5] + [math.nan] * 99))
    assert found.reward is not None
    assert found.reward.values == (0.5, *[None] * (POINTS - 1))
    assert summary_of({}, state_after([math.nan])).reward is None
    assert summary_of({}, JudgeState()).kl is None


def test_the_mask_rate_and_the_risk_are_those_of_the_newest_row() -> None:
    found = summary_of({"mask_rate": 0.25, RISK: 0.4, OUTSIDE: 0.0}, JudgeState())
    assert found.mask_rate == 0.25
    assert found.collapse_risk is not None
    assert found.collapse_risk.probability == 0.4
    assert summary_of({"mask_rate": math.nan}, JudgeState()) == summary_of({}, JudgeState())


def test_a_run_without_recorder_is_told_how_to_turn_it_on_and_a_log_is_not() -> None:
    run = MemoryLog().stored_run
    told = answers_of(run, cause="reward_collapse", sends_tokens=True)
    assert (told.command, told.are_recorded) == ("export TRMON_RECORD_DIR=recordings", False)
    log = replace(run, config={IMPORTED: {"format": "jsonl"}})
    assert answers_of(log, cause="reward_collapse", sends_tokens=False) is None
