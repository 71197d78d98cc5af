"""The historical signals of a row, and the state after it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.domain.pipeline.closings import parse_rules, pass_context
from tests.store.builders import batch
from trmon.domain.batches.batch import QuarantinePart
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import amend_row, detect_findings, fold_row, reconsider
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.rules.condition import AnyOf, Evaluation, SignalReader, ThresholdEvaluation, Truth
from trmon.domain.rules.rule import RuleSet

NO_RULES = parse_rules("[]")


def closed(
    pipeline_state: PipelineState,
    step: int,
    *,
    update: int | None = None,
    made_at: float | None = None,
    scalars: dict[str, float] | None = None,
    rules: RuleSet = NO_RULES,
    config: dict[str, Any] | None = None,
    **signals: float,
) -> ClosingRow:
    """Fold a row of a step, and detect the findings of these rules."""
    ordinal, known = pipeline_state.ordinal + 1, {"signals": signals, "scalars": scalars or {}}
    row = batch(BatchKey(1, step, update), run_id=1, ordinal=ordinal, **known)
    context = pass_context(rules=rules, run={"config": config or {}})
    return detect_findings(
        fold_row(ClosingRow(context=context, pipeline_state=pipeline_state, row=row, made_at=made_at))
    )


def test_the_step_time_is_between_the_first_batches_of_two_steps() -> None:
    pipeline_state, found = PipelineState(), []
    for step, update, made_at in ((0, None, 100.0), (0, 0, 104.0), (1, None, 110.0), (1, 0, 113.0), (3, None, 140.0)):
        made = closed(pipeline_state, step, update=update, made_at=made_at)
        pipeline_state = made.pipeline_state
        found.append(made.row.signals["step_seconds"])
    assert found == pytest.approx([math.nan, math.nan, 10.0, 10.0, 30.0], nan_ok=True)
    assert (pipeline_state.steps, pipeline_state.gaps_seconds, pipeline_state.expected_step_seconds) == (
        3,
        (10.0, 30.0),
        None,
    )


def test_the_expected_step_time_is_the_median_of_the_newest_gaps() -> None:
    pipeline_state = PipelineState()
    for step in range(40):
        pipeline_state = closed(
            pipeline_state, step, made_at=10.0 * step if step < 10 else 90.0 + 60.0 * (step - 9)
        ).pipeline_state
    assert pipeline_state.expected_step_seconds == 60.0


def test_the_gauge_of_a_step_is_its_rollout_row_else_its_last_update() -> None:
    pipeline_state = closed(PipelineState(), 0).pipeline_state
    pipeline_state = closed(pipeline_state, 0, update=0).pipeline_state
    pipeline_state = closed(pipeline_state, 1, update=0).pipeline_state
    pipeline_state = closed(pipeline_state, 1, update=1).pipeline_state
    assert pipeline_state.gauge_keys == (BatchKey(1, 0, None), BatchKey(1, 1, 1))


def test_a_revision_keeps_the_historical_signals_and_the_state() -> None:
    pipeline_state = closed(PipelineState(), 0, made_at=100.0).pipeline_state
    first = closed(pipeline_state, 1, made_at=110.0, kl=1.0)
    row = batch(first.row.key, run_id=1, ordinal=2, signals={"kl": 2.0})
    again = amend_row(
        ClosingRow(context=pass_context(), pipeline_state=first.pipeline_state, row=row, former=first.row)
    )
    assert (again.row.signals["kl"], again.row.signals["step_seconds"]) == (2.0, 10.0)
    assert again.pipeline_state == first.pipeline_state


def test_a_state_is_the_same_after_a_checkpoint() -> None:
    pipeline_state = PipelineState()
    for step in range(30):
        pipeline_state = closed(
            pipeline_state, step, made_at=10.0 * step, total_ess_seq=0.9, response_length_mean=float(step)
        ).pipeline_state
    checkpoint = pipeline_state.to_bytes()
    assert PipelineState.from_bytes(checkpoint).to_bytes() == checkpoint


RULES = parse_rules(
    """
- {name: gauge, severity: warn, summary: s, when: {signal: kl_k1, above: 10}}
- {name: every, severity: warn, summary: s, reads: every_update, when: {signal: kl_k1, above: 10}}
"""
)
OVER_TIME = parse_rules(
    """
- {name: spike, severity: warn, summary: s, when: {relative: grad_norm, over: 100, above: 10}}
- {name: drift, severity: warn, summary: s, when: {zscore: kl_k1, above: 6}}
"""
)

Row = tuple[int, int | None, float]


def findings(rows: list[Row]) -> list[list[tuple[str, int, int | None, str]]]:
    """Return the findings that each row makes final: (rule, step, update, truth)."""
    pipeline_state, found = PipelineState(), []
    for step, update, x in rows:
        detected = closed(pipeline_state, step, update=update, rules=RULES, kl_k1=x)
        pipeline_state = detected.pipeline_state
        found.append([(f.rule, f.key.step, f.key.update, f.raised.truth.value) for _, f in detected.findings])
    return found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [(0, None, 20.0), (1, None, 0.0)],
            [[("gauge", 0, None, "true")], [("every", 0, None, "true"), ("gauge", 1, None, "false")]],
            id="a rollout row is final at once; every update is known when the next step begins",
        ),
        pytest.param(
            [(0, 0, 20.0), (0, 1, 0.0), (1, 0, 0.0)],
            [[], [], [("gauge", 0, 1, "false"), ("every", 0, 0, "true")]],
            id="without one the last update is the gauge; one true update is enough for every",
        ),
        pytest.param(
            [(0, None, 0.0), (0, 0, 20.0), (1, None, 0.0)],
            [[("gauge", 0, None, "false")], [], [("every", 0, 0, "true"), ("gauge", 1, None, "false")]],
            id="updates after a rollout row are not gauges",
        ),
        pytest.param(
            [(5, None, 0.0), (3, None, 20.0)],
            [[("gauge", 5, None, "false")], []],
            id="a row that arrives out of order has no findings",
        ),
    ],
)
def test_findings_are_final_when_their_row_is_known(
    rows: list[Row], expected: list[list[tuple[str, int, int | None, str]]]
) -> None:
    assert findings(rows) == expected


def detect_with(steps: int, *, last: dict[str, float], late: dict[str, float]) -> tuple[PipelineState, ClosingRow]:
    """Return the state after quiet steps and a last one, whose late scalars arrived after its row was closed."""
    pipeline_state = PipelineState()
    quiet = [({"grad_norm": 1.0}, step % 7 * 0.01) for step in range(steps)]
    for step, (scalars, kl) in enumerate([*quiet, (last, 1.0)]):
        detected = closed(pipeline_state, step, scalars=scalars, rules=OVER_TIME, kl_k1=kl)
        pipeline_state = detected.pipeline_state
    row = structs.replace(detected.row, scalars={**detected.row.scalars, **late})
    _, reconsidered = reconsider(row, context=pass_context(rules=OVER_TIME), pipeline_state=pipeline_state)
    return reconsidered, detected


def test_rules_measure_against_the_history_of_the_run() -> None:
    _, detected = detect_with(30, last={"grad_norm": 11.0}, late={})
    found = {finding.rule: finding.raised for _, finding in detected.findings}
    assert found["drift"].truth is Truth.TRUE
    assert found["drift"].value == pytest.approx((1.0 - 0.03) / (1.4826 * 0.02))
    assert detected.pipeline_state.provisional["spike"].raised.value == 11.0


def test_a_scalar_that_arrives_after_its_row_is_read_before_the_step_ends() -> None:
    without, _ = detect_with(30, last={}, late={})
    late, _ = detect_with(30, last={}, late={"grad_norm": 11.0})
    at_once, _ = detect_with(30, last={"grad_norm": 11.0}, late={})
    assert without.provisional["spike"].raised.truth is Truth.UNKNOWN
    assert late.provisional["spike"].raised == Evaluation(
        Truth.TRUE, "grad_norm over its median of 100 steps", 11.0, 10.0
    )
    assert late == at_once


def test_a_scalar_for_a_finished_step_changes_no_finding() -> None:
    pipeline_state, _ = detect_with(30, last={}, late={})
    row = batch(BatchKey(1, 29, None), run_id=1, ordinal=30, signals={"kl_k1": 0.0}, scalars={"grad_norm": 99.0})
    unchanged = reconsider(row, context=pass_context(rules=OVER_TIME), pipeline_state=pipeline_state)
    assert unchanged == (row, pipeline_state)


def test_only_signals_that_rules_measure_over_time_are_remembered() -> None:
    pipeline_state, _ = detect_with(30, last={"lr": 1.0}, late={})
    assert (set(pipeline_state.memory.windows), set(pipeline_state.memory.baselines)) == ({"grad_norm"}, {"kl_k1"})
    assert PipelineState.from_bytes(pipeline_state.to_bytes()).memory == pipeline_state.memory


def test_a_rule_over_every_update_measures_against_the_last_row_of_each_step() -> None:
    rules = parse_rules(
        "[{name: r, severity: warn, summary: s, reads: every_update, when: {slope: kl_k1, over: 5, above: 0.9}}]"
    )
    pipeline_state = PipelineState()
    for ordinal in range(1, 31):
        step, update = divmod(ordinal - 1, 3)
        of_update = {"update": update - 1, "kl_k1": float(step)} if update else {"kl_k1": 0.0}
        pipeline_state = closed(pipeline_state, step, rules=rules, **of_update).pipeline_state
    assert pipeline_state.update_memory.windows["kl_k1"].values == tuple(map(float, range(10)))
    assert pipeline_state.provisional["r"].raised.value == pytest.approx(1.0)


class Failing:
    """A condition that ends in an error."""

    def evaluate(self, reader: SignalReader) -> ThresholdEvaluation:
        raise ZeroDivisionError("float division by zero")


def test_a_failed_rule_has_no_finding_and_is_quarantined() -> None:
    rules = parse_rules("[{name: set_aside, severity: warn, summary: s, when: {signal: quarantined_parts, above: 0}}]")
    failing = replace(rules.others[0], name="failing", when=AnyOf((Failing(),)))
    both = replace(rules, others=(failing, *rules.others))
    detected = closed(PipelineState(), 0, rules=both, quarantined_parts=0.0)
    assert [(f.rule, f.raised.truth, f.raised.value) for _, f in detected.findings] == [("set_aside", Truth.TRUE, 1.0)]
    [named] = detected.row.quarantined
    assert (named.part, named.place) == (QuarantinePart.RULE, "failing")
    assert named.reason == "ZeroDivisionError: float division by zero"
