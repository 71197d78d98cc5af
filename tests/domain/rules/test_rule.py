"""The identity, severity and summary of a rule."""

from __future__ import annotations

from tests.domain.pipeline.closings import parse_rules
from trmon.domain.rules import rule_yaml
from trmon.domain.rules.condition import Comparison, Evaluation, ThresholdSide, Truth
from trmon.domain.rules.rule import RememberedSignals, RowSelection, Rule, condition_in_words, terms_in_words
from trmon.domain.severity import Severity

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


RULES = parse_rules(
    """
- {name: late, severity: warn, summary: s, when: {relative: kl_k1, over: 100, above: 10}}
- {name: drift, severity: warn, summary: s, when: {zscore: chi2_token, above: 6}}
- {name: spike, severity: warn, summary: s, when: {relative: grad_norm, over: 100, above: 10}}
- {name: often, severity: warn, summary: s, reads: every_update, when: {growth: clip_fraction, over: 50, above: 2}}
- {name: still, severity: warn, summary: s, when: {state: stalled}}
"""
)


def test_rules_are_known_by_what_they_read_and_by_name() -> None:
    assert [rule.name for rule in RULES.over_signals] == ["late", "drift", "spike", "often"]
    assert [rule.name for rule in RULES.over_states] == ["still"]
    assert RULES.by_name["often"].reads is RowSelection.EVERY_UPDATE


def test_what_is_remembered_is_of_the_rows_that_its_rules_read() -> None:
    assert RULES.remembered == {
        RowSelection.GAUGE: RememberedSignals(windows=("grad_norm", "kl_k1"), baselines=("chi2_token",)),
        RowSelection.EVERY_UPDATE: RememberedSignals(windows=("clip_fraction",), baselines=()),
    }


def test_a_finding_is_told_with_its_clauses_and_their_limits() -> None:
    rule = rule_yaml.builtin_rules().by_name["reward_decline"]
    assert list(condition_in_words(rule.when))[:2] == [
        (0, "any of"),
        (
            1,
            "`fall`: the fall of the reward from its peak is at least 0.5 of a collapse; in 20 of 20 rows "
            "(warn; page when the probability of a collapse is at least 0.4, or the fall of the reward from its peak "
            "is at least 0.7 of a collapse and collapse risk is not known)",
        ),
    ]
    assert list(terms_in_words(rule)) == [
        "severity: warn",
        "once it stands, its limits are relaxed by a fifth; it ends after 10 rows in which none holds",
        "no alert is sent in the first 20 steps of a run",
    ]
