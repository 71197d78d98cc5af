"""An incident: its onset and its words follow the finding that leads, and its members joined while it was open."""

from __future__ import annotations

from dataclasses import replace

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.ruleruns import run
from trmon.domain.alerts.alert import SINCE_LABEL, Alert, AlertState
from trmon.domain.findings.verdict import PREDICTION
from trmon.domain.incidents.incident import CAUSE_LABEL, Incident, is_member
from trmon.domain.severity import Severity

HEALTH = frozenset({"stale_rollouts", "mask_rate", "weak_learning_signal"})
OPENED = replace(
    ALERT,
    identity="1/incident",
    rule="incident",
    step=70,
    since_at=70.0,
    updated_at=70.0,
    labels={CAUSE_LABEL: "stale_rollouts", SINCE_LABEL: "62"},
)
ENDED = replace(OPENED, state=AlertState.RESOLVED, updated_at=120.0)
STALE = {"engine_lag": 2.0, "mismatch_kl_k3": 0.2}


def member(rule: str, *, at: float, until: float | None = None, severity: Severity = Severity.WARN) -> Alert:
    """Return an alert with an onset long before the incident, found at a time and resolved at another one."""
    state = AlertState.FIRING if until is None else AlertState.RESOLVED
    return replace(
        ALERT, rule=rule, step=3, since_at=at, updated_at=until or at, state=state, severity=severity, labels={}
    )


def test_alerts_of_health_that_fired_while_it_was_open_are_members_whenever_they_began() -> None:
    assert is_member(member("stale_rollouts", at=60.0), OPENED, health_rules=HEALTH)
    assert is_member(member("mask_rate", at=90.0, until=95.0), ENDED, health_rules=HEALTH)
    assert not is_member(member("mask_rate", at=50.0, until=69.0), OPENED, health_rules=HEALTH)
    assert not is_member(member("mask_rate", at=121.0), ENDED, health_rules=HEALTH)
    assert not is_member(member("two_trainers", at=80.0), OPENED, health_rules=HEALTH)
    info = member("weak_learning_signal", at=80.0, severity=Severity.INFO)
    assert not is_member(info, OPENED, health_rules=HEALTH)


def test_it_is_since_the_onset_and_a_prediction_has_no_last_good_step() -> None:
    assert Incident(alert=OPENED).since_step == 62
    predicted = replace(OPENED, labels={CAUSE_LABEL: PREDICTION})
    assert (Incident(alert=predicted).is_prediction, Incident(alert=predicted).last_good_step) == (True, None)


def test_it_is_recorded_that_a_run_finished_while_it_stood() -> None:
    ill = run(STALE, steps=30).finish().incident
    assert (ill.is_open, ill.ended_with_run) == (False, True)
    healed = run(STALE, steps=30, after=100).incident
    assert (healed.is_open, healed.ended_with_run) == (False, False)


def test_it_is_over_when_the_run_finishes_after_its_alerts_have_ended() -> None:
    quiet = run({"mask_rate": 0.6}, steps=30, after=20)
    assert (quiet.firing, quiet.incident.is_open) == ({"incident"}, True)
    ended = quiet.finish().incident
    assert (ended.is_open, ended.ended_with_run) == (False, False)
