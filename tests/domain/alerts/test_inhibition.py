"""A source alert inhibits its targets, unless they are more severe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT
from trmon.domain.alerts.alert import Alert
from trmon.domain.alerts.silences import INHIBIT_RULES, check_inhibit_rules, inhibiting_alert
from trmon.domain.finding import Severity
from trmon.domain.rules.rule_yaml import builtin_rules


def alert_of(rule: str, severity: Severity = Severity.WARN) -> Alert:
    return replace(ALERT, identity=f"1/{rule}", rule=rule, severity=severity)


@pytest.mark.parametrize(
    ("target", "firing", "expected"),
    [
        pytest.param(alert_of("mask_rate"), [alert_of("stale_rollouts")], "stale_rollouts", id="a source"),
        pytest.param(alert_of("mask_rate"), [alert_of("mask_rate")], None, id="only itself"),
        pytest.param(alert_of("stale_rollouts"), [alert_of("mask_rate")], None, id="a target"),
        pytest.param(alert_of("crashed"), [alert_of("stale_rollouts")], None, id="not a source of it"),
        pytest.param(
            alert_of("mask_rate", Severity.PAGE),
            [alert_of("stale_rollouts")],
            None,
            id="a warning does not mute a page",
        ),
        pytest.param(
            alert_of("variance_blowup", Severity.PAGE),
            [alert_of("corrupt_logprobs", Severity.PAGE)],
            "corrupt_logprobs",
            id="a page mutes a page",
        ),
    ],
)
def test_a_source_inhibits_its_targets(target: Alert, firing: list[Alert], expected: str | None) -> None:
    source = inhibiting_alert(target, [*firing, target])
    assert (source and source.rule) == expected


def test_a_cycle_is_refused_with_its_rules() -> None:
    with pytest.raises(ValueError, match=r"form a cycle: .*a.*b"):
        check_inhibit_rules({"a": ("b",), "b": ("c",), "c": ("a",)})


def test_sources_and_targets_are_built_in_rules() -> None:
    named = INHIBIT_RULES.keys() | {target for targets in INHIBIT_RULES.values() for target in targets}
    assert named <= {rule.name for rule in builtin_rules()}
