"""A cause mutes its symptoms, and never what is more severe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.test_deliveries import ALERT
from trmon.domain.alerts.alert import Alert
from trmon.domain.alerts.inhibition import CAUSES, check_inhibitions, inhibiting_alert
from trmon.domain.model.severity import Severity
from trmon.domain.rules.rule_yaml import builtin_rules


def of(rule: str, severity: Severity = Severity.WARN) -> Alert:
    return replace(ALERT, identity=f"1/{rule}", rule=rule, severity=severity)


@pytest.mark.parametrize(
    ("symptom", "firing", "expected"),
    [
        pytest.param(of("mask_rate"), [of("stale_rollouts")], "stale_rollouts", id="a cause"),
        pytest.param(of("mask_rate"), [of("mask_rate")], None, id="nothing but itself"),
        pytest.param(of("stale_rollouts"), [of("mask_rate")], None, id="the cause is never muted by its symptom"),
        pytest.param(of("crashed"), [of("stale_rollouts")], None, id="no cause of it"),
        pytest.param(
            of("mask_rate", Severity.PAGE),
            [of("stale_rollouts")],
            None,
            id="a warning mutes no page: somebody must act",
        ),
        pytest.param(
            of("variance_blowup", Severity.PAGE),
            [of("corrupt_logprobs", Severity.PAGE)],
            "corrupt_logprobs",
            id="a page mutes a page",
        ),
    ],
)
def test_a_cause_mutes_its_symptoms(symptom: Alert, firing: list[Alert], expected: str | None) -> None:
    cause = inhibiting_alert(symptom, [*firing, symptom])
    assert (cause and cause.rule) == expected


def test_a_circle_is_refused_by_naming_it() -> None:
    with pytest.raises(ValueError, match=r"in a circle: .*a.*b"):
        check_inhibitions({"a": ("b",), "b": ("c",), "c": ("a",)})


def test_causes_and_symptoms_are_built_in_rules() -> None:
    named = CAUSES.keys() | {symptom for symptoms in CAUSES.values() for symptom in symptoms}
    assert named <= {rule.name for rule in builtin_rules()}
