"""The diagnosis in the light of an incident: one cause, and a first step that does not move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.domain.diagnosis.runs import run
from trmon.domain.diagnosis.diagnosis import Assurance, diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.remedies import REMEDIES, remedy_of
from trmon.domain.finding import Finding, FindingForm

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.ruleruns import run as run_rules
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.incidents.incident import Incident, incident_labels, is_member, led_diagnosis
from trmon.domain.pipeline.transition import end_open_incident
from trmon.domain.rules.rule_yaml import builtin_rules

RULES = {rule.name: rule for rule in builtin_rules()}
HEALTH = frozenset(name for name, rule in RULES.items() if rule.is_of_health)


def alert(rule: str, step: int, *, labels: dict[str, str] | None = None) -> Alert:
    return replace(ALERT, identity=f"1/{rule}", rule=rule, step=step, labels=labels or {})


def incident(cause: str, finding: Finding | None, *, step: int = 62) -> Incident:
    labels = incident_labels(cause, finding, step - 1)
    return Incident(alert=alert("incident", step, labels=labels))


def ill_window(first_step: int) -> History:
    """Return the newest steps of a run that has been ill for longer than they show."""
    seen = run(staleness_kl_k3=0.2)
    return History(np.arange(first_step, first_step + len(seen)), seen.values)


@pytest.mark.parametrize("first_step", [100, 100_000])
def test_the_first_step_does_not_move_with_the_steps_that_are_read(first_step: int) -> None:
    found = diagnose(ill_window(first_step))
    assert found.observed[0].since_step == first_step
    led = led_diagnosis(found, incident("stale_rollouts", found.primary))
    assert (led.primary, led.observed[0].since_step) == (found.primary, 62)
    assert {item.since_step for item in led.observed[0].evidence} == {62}


def test_a_symptom_begins_where_its_alert_began() -> None:
    found = diagnose(ill_window(1_000))
    rule = next(name for name, rule in RULES.items() if rule.finding is found.primary)
    led = led_diagnosis(
        found, incident("reward_collapse", Finding.REWARD_COLLAPSE), firing=[alert(rule, 70)], rules=RULES
    )
    assert (led.primary, led.remedy) == (Finding.REWARD_COLLAPSE, REMEDIES[Finding.REWARD_COLLAPSE])
    assert led.observed[0].since_step == 70


@pytest.mark.parametrize("form", FindingForm)
def test_an_incident_of_entropy_keeps_its_side_when_the_newest_steps_no_longer_show_it(form: FindingForm) -> None:
    led = led_diagnosis(diagnose(run()), incident(form.value, Finding.ENTROPY))
    assert (led.form, led.remedy) == (form, remedy_of(Finding.ENTROPY, form))
    assert incident(form.value, Finding.ENTROPY).title == form.title


@pytest.mark.parametrize("finding", [Finding.REWARD_COLLAPSE, None], ids=["a cause", "symptoms only"])
def test_a_healthy_window_is_not_called_healthy_while_an_incident_is_open(finding: Finding | None) -> None:
    led = led_diagnosis(diagnose(run()), incident("mask_rate", finding))
    assert led.primary is (finding or Finding.UNKNOWN)
    assert led.assurance is Assurance.UNKNOWN


def test_alerts_of_health_that_began_in_an_incident_are_its_members() -> None:
    opened = incident("stale_rollouts", Finding.STALENESS).alert
    began = [alert("stale_rollouts", 62), alert("mask_rate", 80), alert("mask_rate", 61), alert("two_trainers", 70)]
    assert [is_member(one, opened, health_rules=HEALTH) for one in began] == [True, True, False, False]


def test_an_incident_that_its_run_ends_with_is_recorded_as_such() -> None:
    ill = run_rules({"engine_lag": 2.0, "mismatch_kl_k3": 0.1}, steps=15)
    key = ill.pipeline_state.folded
    (told,), after = end_open_incident(ill.pipeline_state, key=key, at=1e6)
    assert (after.incident.is_open, after.incident.ended_with_run) == (False, True)
    assert (told.alert.state, told.alert.labels["ended"]) == (AlertState.RESOLVED, "with the run")
    healed = run_rules({"engine_lag": 2.0, "mismatch_kl_k3": 0.1}, steps=15, after=100).pipeline_state.incident
    assert (healed.is_open, healed.ended_with_run) == (False, False)
