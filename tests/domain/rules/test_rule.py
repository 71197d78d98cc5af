"""The identity, severity and summary of a rule."""

from __future__ import annotations

from trmon.domain.finding import Severity
from trmon.domain.rules.condition import Comparison, Evaluation, ThresholdSide, Truth
from trmon.domain.rules.rule import Rule

X_ABOVE_1 = Comparison(signal="x", bound=ThresholdSide.ABOVE, threshold=1.0, clear=1.0)


def test_the_identity_of_a_rule_has_its_run_its_name_and_its_labels() -> None:
    rule = Rule(name="r", when=X_ABOVE_1, severity=Severity.WARN, summary="s", labels={"b": "2", "a": "1"})
    assert rule.identity(7) == "7/r/a=1,b=2"


def test_a_rule_may_be_more_severe_in_a_run_that_enforces() -> None:
    rule = Rule(
        name="r",
        when=X_ABOVE_1,
        severity=Severity.WARN,
        severity_when_enforcing=Severity.PAGE,
        summary="{run} step {step}: {signal} {value} {threshold}",
    )
    assert (rule.severity_in("observe"), rule.severity_in("enforce")) == (Severity.WARN, Severity.PAGE)
    summary = rule.format_summary(Evaluation(Truth.TRUE, "x", 1.23456789, 1.0), run="math/grpo", step=4)
    assert summary == "math/grpo step 4: x 1.235 1"
