"""Rules: their YAML and its errors, their identity, severity and summary, and their conditions over signals."""

from __future__ import annotations

import math
import tracemalloc
from contextlib import suppress
from operator import attrgetter
from textwrap import indent

import pytest
import yaml

from tests.domain.pipeline.closings import parse_rules
from tests.domain.rules.rule_documents import CONDITIONS, INVALID_RULES, RULE, InvalidRules
from trmon.domain.errors import InvalidInput
from trmon.domain.rules import rule_yaml
from trmon.domain.rules.condition import (
    NEWEST,
    AllOf,
    AnyOf,
    Comparison,
    Evaluation,
    Measure,
    SignalAbsent,
    SignalMemory,
    SignalReader,
    ThresholdSide,
    Truth,
    comparisons_of,
)
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import RememberedSignals, RowSelection, Rule, condition_in_words, terms_in_words
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules
from trmon.domain.severity import Severity


def by_name(name: str) -> Rule:
    return builtin_rules().by_name[name]


def test_what_the_builtin_rules_ask_of_people() -> None:
    severities = {rule.name: rule.severity for rule in builtin_rules().rules}
    pages = {name for name, severity in severities.items() if severity is Severity.PAGE}
    assert pages == {"not_a_number", "corrupt_logprobs", "reward_collapse", "stalled", "crashed"}
    assert [name for name, severity in severities.items() if severity is Severity.INFO] == ["vacuous_bound"]
    assert by_name("mask_rate").severity_in("enforce") is Severity.PAGE
    at_once = {rule.name for rule in builtin_rules().rules if not rule.immune_steps}
    assert at_once == {
        *("not_a_number", "corrupt_logprobs", "stalled", "crashed"),
        *("decision_mismatch", "batch_quarantined"),
    }
    assert all(rule.runbook and rule.meaning for rule in builtin_rules().others)


def test_a_rule_is_read_with_the_defaults() -> None:
    (rule,) = parse_rules(RULE).rules
    assert (rule.for_steps, rule.for_seconds, rule.clear_for_steps, rule.immune_steps) == (1, 0.0, 1, 20)
    assert next(comparisons_of(rule.when)).clear == 0.04


@pytest.mark.parametrize("rules", INVALID_RULES, ids=attrgetter("case"))
def test_an_error_names_the_wrong_place(rules: InvalidRules) -> None:
    with pytest.raises(InvalidInput) as caught:
        overlay_rules(builtin_rules(), rules.text)
    assert caught.value.field == rules.field
    assert rules.message in caught.value.message


@pytest.mark.parametrize("when", CONDITIONS, ids=str)
def test_a_condition_survives_a_round_trip_through_yaml(when: dict[str, object]) -> None:
    (rule,) = parse_rules(yaml.safe_dump([{"name": "r", "severity": "warn", "summary": "s", "when": when}])).rules
    assert condition_to_yaml(rule.when) == when


def test_a_file_adds_replaces_and_disables() -> None:
    mine = RULE + RULE.replace("mine", "mask_rate") + "- {name: crashed, disabled: true}"
    rules = overlay_rules(builtin_rules(), mine).by_name
    assert list(rules) == [rule.name for rule in builtin_rules().rules if rule.name != "crashed"] + ["mine"]
    assert rules["mask_rate"].summary == rules["mine"].summary


def test_a_file_changes_the_limits_and_the_severity_of_a_finding_for_everything_that_judges() -> None:
    changed = overlay_rules(builtin_rules(), "- {name: engine_mismatch, limits: {kl_k3: 0.1}, severity: page}")
    clauses = changed.catalogue.by_key
    assert clauses["engine_mismatch.kl_k3"].decisive.limit == 0.1
    assert clauses["engine_mismatch.kl_k1"].decisive.limit == 0.05
    assert {clause.severity for clause in changed.catalogue.by_id["engine_mismatch"].clauses} == {Severity.PAGE}
    assert changed.by_name["engine_mismatch"].severity is Severity.PAGE
    assert changed.judge.catalogue is changed.catalogue


def test_a_finding_that_is_turned_off_is_neither_a_rule_nor_judged() -> None:
    changed = overlay_rules(builtin_rules(), "- {name: engine_mismatch, disabled: true}")
    assert "engine_mismatch" not in changed.by_name
    assert not changed.catalogue.by_id["engine_mismatch"].clauses


def test_nested_aliases_are_refused_before_they_expand() -> None:
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 7)]
    bomb = "\n".join(["a0: &a0 [lol, lol]", *levels])
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="aliases are not supported"):
        parse_rules(f"- when:\n{indent(bomb, '    ')}\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize("levels", [20, 40, 60, 80, 100, 150, 200, 300])
def test_a_condition_of_any_depth_is_read_or_refused(levels: int) -> None:
    nested = "{any: [" * levels + "{signal: kl_k1, above: 1}" + "]}" * levels
    with suppress(InvalidInput):
        parse_rules(f"- {{name: x, severity: page, summary: x, when: {nested}}}")


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


def above(signal: str, threshold: float, *, clear: float | None = None, away_from: float | None = None) -> Comparison:
    return Comparison(
        signal=signal,
        bound=ThresholdSide.ABOVE,
        threshold=threshold,
        clear=threshold if clear is None else clear,
        away_from=away_from,
    )


def below(signal: str, threshold: float) -> Comparison:
    return Comparison(signal=signal, bound=ThresholdSide.BELOW, threshold=threshold, clear=threshold)


def reader(**numbers: float) -> SignalReader:
    """Return a signal reader whose primary pair is total."""
    return SignalReader(numbers, "total")


@pytest.mark.parametrize(
    ("numbers", "value"),
    [
        pytest.param({"kl": 1.0, "mismatch_kl": 2.0, "total_kl": 3.0}, 1.0, id="the name itself comes first"),
        pytest.param({"mismatch_kl": 2.0, "total_kl": 3.0}, 2.0, id="then the mismatch pair"),
        pytest.param({"total_kl": 3.0, "staleness_kl": 4.0}, 3.0, id="then the primary pair"),
        pytest.param({"staleness_kl": 4.0}, math.nan, id="no other pair"),
    ],
)
def test_a_name_without_prefix_means_mismatch_or_primary(numbers: dict[str, float], value: float) -> None:
    assert reader(**numbers)["kl"] == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("condition", "numbers", "truth"),
    [
        pytest.param(above("x", 1), {"x": 1.5}, Truth.TRUE, id="above"),
        pytest.param(above("x", 1), {"x": 1.0}, Truth.FALSE, id="at the threshold is not beyond it"),
        pytest.param(below("x", 1), {"x": 0.5}, Truth.TRUE, id="below"),
        pytest.param(above("x", 1), {"x": math.inf}, Truth.TRUE, id="infinity is above everything"),
        pytest.param(above("x", 1), {"x": math.nan}, Truth.UNKNOWN, id="nan is unknown, not false"),
        pytest.param(above("x", 1), {}, Truth.UNKNOWN, id="a missing signal is unknown, not false"),
        pytest.param(above("x", 0.01, away_from=1.0), {"x": 0.9}, Truth.TRUE, id="away from a point, below it"),
        pytest.param(above("x", 0.01, away_from=1.0), {"x": 1.005}, Truth.FALSE, id="near a point"),
        pytest.param(SignalAbsent("x"), {"y": 0.0}, Truth.TRUE, id="absent: missing"),
        pytest.param(SignalAbsent("x"), {"x": math.nan}, Truth.TRUE, id="absent: nan"),
        pytest.param(SignalAbsent("x"), {"x": 0.0}, Truth.FALSE, id="absent: there"),
        pytest.param(AnyOf((above("x", 1), above("y", 1))), {"y": 2.0}, Truth.TRUE, id="any: one true is enough"),
        pytest.param(AnyOf((above("x", 1), above("y", 1))), {"y": 0.0}, Truth.UNKNOWN, id="any: unknown may be true"),
        pytest.param(AllOf((above("x", 1), above("y", 1))), {"y": 0.0}, Truth.FALSE, id="all: one false is enough"),
        pytest.param(AllOf((above("x", 1), above("y", 1))), {"y": 2.0}, Truth.UNKNOWN, id="all: unknown may be false"),
        pytest.param(AllOf((above("x", 1), above("y", 1))), {"x": 2.0, "y": 2.0}, Truth.TRUE, id="all true"),
    ],
)
def test_conditions_have_three_truths(
    condition: Comparison | SignalAbsent | AnyOf | AllOf, numbers: dict[str, float], truth: Truth
) -> None:
    assert condition.evaluate(reader(**numbers)).raised.truth is truth


def test_a_condition_names_the_comparison_that_decided() -> None:
    condition = AnyOf((above("x", 1), AllOf((below("lag", 1), above("y", 5)))))
    found = condition.evaluate(reader(x=0.0, lag=0.0, y=7.0)).raised
    assert found == Evaluation(Truth.TRUE, "y", 7.0, 5.0)


def test_a_trainer_scalar_may_be_named_with_a_prefix() -> None:
    assert reader(pi_norm=3.0)["scalar:pi_norm"] == 3.0


def test_a_lingering_condition_uses_the_clear_threshold() -> None:
    condition = above("x", 1.0, clear=0.5)
    assert condition.evaluate(reader(x=0.7)).raised.truth is Truth.FALSE
    assert condition.evaluate(reader(x=0.7)).lingering == Evaluation(Truth.TRUE, "x", 0.7, 0.5)


def measure_reader(values: list[float], **others: float) -> SignalReader:
    """Return a reader of the last of these values of x, one per step, that remembers all earlier ones."""
    memory = SignalMemory()
    for step, value in enumerate(values):
        row = SignalReader({"total_x": value, **others}, "total", memory)
        memory = memory.updated(row, step=step, windows=("x",), baselines=("x",))
    return SignalReader({"total_x": values[-1], **others}, "total", memory)


LINE = [1.0 + step for step in range(20)]
LABELS = {
    NEWEST: "x",
    Measure("ratio", to="y"): "x/y",
    Measure("growth", 10): "growth of x over 10 steps",
    Measure("relative", 5): "x over its median of 5 steps",
    Measure("slope", 10): "slope of x over 10 steps",
    Measure("zscore"): "z-score of x",
}
"""Each measure, and how alerts name its value."""


@pytest.mark.parametrize(
    ("measure", "given", "expected"),
    [
        pytest.param(NEWEST, measure_reader(LINE), 20.0, id="the newest value"),
        pytest.param(Measure("ratio", to="y"), measure_reader(LINE, y=5.0), 4.0, id="over another signal"),
        pytest.param(Measure("ratio", to="y"), measure_reader(LINE, y=0.0), math.inf, id="over zero"),
        pytest.param(Measure("ratio", to="y"), measure_reader([-1.0], y=0.0), -math.inf, id="a negative one over zero"),
        pytest.param(Measure("ratio", to="y"), measure_reader([0.0], y=0.0), math.nan, id="zero over zero"),
        pytest.param(Measure("ratio", to="y"), measure_reader(LINE), math.nan, id="over one that is missing"),
        pytest.param(Measure("growth", 10), measure_reader(LINE), 18.0 / 10.0, id="growth: medians of five"),
        pytest.param(Measure("growth", 100), measure_reader(LINE), math.nan, id="growth: too short a history"),
        pytest.param(
            Measure("relative", 5), measure_reader(LINE), 20.0 / 17.0, id="over the rolling median of the steps before"
        ),
        pytest.param(Measure("slope", 10), measure_reader(LINE), 1.0, id="slope"),
        pytest.param(Measure("zscore"), measure_reader([*LINE, 10.5 + 1.4826 * 5.0]), 1.0, id="z-score"),
        pytest.param(Measure("zscore"), measure_reader(LINE[:5]), math.nan, id="z-score: too short a history"),
        *(
            pytest.param(measure, measure_reader([*LINE, math.nan], y=1.0), math.nan, id=f"nan now: {label}")
            for measure, label in LABELS.items()
        ),
    ],
)
def test_a_measure_is_a_number_or_nan(measure: Measure, given: SignalReader, expected: float) -> None:
    assert measure.value("x", given) == pytest.approx(expected, nan_ok=True)


def test_every_measure_has_a_label() -> None:
    assert {measure: measure.label("x") for measure in LABELS} == LABELS


def test_the_history_of_a_signal_that_no_rule_needs_is_dropped() -> None:
    given = measure_reader(LINE)
    after = given.memory.updated(given, step=20, windows=(), baselines=("x",))
    assert (after.windows, set(after.baselines)) == ({}, {"x"})
