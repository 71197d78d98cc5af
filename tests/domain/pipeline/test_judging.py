"""The row of a step that is judged, and the alerts of the findings that stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.pipeline.closings import pass_context
from tests.domain.ruleruns import RuleRun, run
from tests.store.builders import batch
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.findings.verdict import Word
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import fold_row
from trmon.domain.pipeline.judging import judge_pending, judgement_of, pending_values
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.severity import Severity

CONTEXT = pass_context()
AGREES, DISAGREES = {"mismatch_prob_pearson": 0.999}, {"mismatch_prob_pearson": 0.8}


def row_of(step: int, *, attempt: int = 1, update: int | None = None, **signals: float) -> BatchRow:
    place = {"run_id": 1, "ordinal": 10 * step + (update or 0) + 1, "closed_at": 1000.0 + step}
    return batch(BatchKey(attempt, step, update), **place, signals=signals)


def folded(state: PipelineState, row: BatchRow, context: PassContext = CONTEXT) -> ClosingRow:
    return fold_row(ClosingRow(context=context, pipeline_state=state, row=row))


def alert_of(ran: RuleRun) -> Alert:
    """Return the only open alert of a run."""
    [track] = ran.pipeline_state.tracks.values()
    assert track.alert is not None
    return track.alert


def test_an_alert_begins_at_the_onset_and_fires_once_its_step_is_over() -> None:
    ran = RuleRun().make_steps(AGREES, steps=30).make_steps(DISAGREES, steps=5)
    assert ran.events == []
    ran.make_steps(DISAGREES, steps=1)
    assert ran.events == [("engine_mismatch", "firing", 34)]
    alert = alert_of(ran)
    assert (alert.step, alert.severity, alert.value) == (30, Severity.WARN, pytest.approx(0.2))
    assert alert.summary == (
        "math/grpo: engine mismatch since step 30: "
        "agreement of token probabilities is 0.2 below 1 (limit 0.05; 0.001 before)"
    )


def test_an_alert_ends_ten_quiet_rows_later_and_a_return_is_another_episode() -> None:
    ran = RuleRun().make_steps(AGREES, steps=30).make_steps(DISAGREES, steps=10)
    episode = alert_of(ran).episode
    ran.make_steps(AGREES, steps=20)
    assert ran.events[1:] == [("engine_mismatch", "resolved", 49)]
    assert not ran.pipeline_state.tracks
    ran.make_steps(DISAGREES, steps=10)
    assert alert_of(ran).episode != episode


def test_nothing_is_told_in_the_first_twenty_steps_and_all_of_it_after_them() -> None:
    ran = RuleRun().make_steps(DISAGREES, steps=21)
    assert ran.events == []
    assert "engine_mismatch" in ran.pipeline_state.judge.standing
    ran.make_steps(DISAGREES, steps=1)
    assert ran.events == [("engine_mismatch", "firing", 20)]
    assert alert_of(ran).step == 0
    assert RuleRun().make_steps({"invalid_fraction": 0.5}, steps=6).events == [("corrupt_logprobs", "firing", 2)]


def test_the_row_of_a_step_has_the_rollouts_values_and_those_of_updates_from_the_last_one() -> None:
    state = folded(PipelineState(), row_of(0, staleness_kl_k3=0.1, reward_mean=1.0)).pipeline_state
    for update, kl in ((0, 0.2), (1, 0.3)):
        state = folded(state, row_of(0, update=update, staleness_kl_k3=kl, reward_mean=9.0)).pipeline_state
    assert state.pending is not None
    values = pending_values(state.pending)
    assert (values["reward_mean"], values["staleness_kl_k3"]) == (1.0, 0.3)
    assert state.pending.key == BatchKey(1, 0, None)
    state = folded(state, row_of(1, update=0, reward_mean=2.0)).pipeline_state
    state = folded(state, row_of(1, update=1, reward_mean=3.0)).pipeline_state
    assert pending_values(state.pending)["reward_mean"] == 3.0


def test_another_configuration_begins_a_new_baseline_and_another_path_or_launch_does_not() -> None:
    def config(**given: Any) -> PassContext:
        return replace(CONTEXT, run=replace(CONTEXT.run, config=given))

    state = folded(PipelineState(), row_of(0), config(lr=1e-6, output_dir="a", launch={"host": "a"})).pipeline_state
    same = folded(state, row_of(1), config(lr=1e-6, output_dir="b", launch={"host": "b"}))
    assert "baseline" not in same.row.signals
    other = folded(state, row_of(1), config(lr=1e-5, output_dir="a"))
    assert other.row.signals["baseline"] == 1.0
    assert other.pipeline_state.baseline == 1


def test_the_end_of_a_run_judges_its_last_row() -> None:
    ran = RuleRun().make_steps(AGREES, steps=30).make_steps(DISAGREES, steps=5)
    before = judgement_of(ran.pipeline_state, ran.context)
    assert before is not None
    assert before.place.step == 33
    transitions, state = judge_pending(ran.pipeline_state, context=ran.context, is_last=True)
    assert [transition.alert.rule for transition in transitions if transition.alert] == ["engine_mismatch"]
    after = judgement_of(state, ran.context)
    assert after is not None
    assert (after.place.step, after.word) == (34, Word.FINDING)
    assert state.pending is None


@pytest.mark.parametrize(
    ("numbers", "ended"),
    [
        pytest.param(DISAGREES, "finished with an open warning", id="a warning stands"),
        pytest.param({"invalid_fraction": 0.5}, "ended ill", id="a page stands"),
    ],
)
def test_the_end_of_a_run_says_how_it_ended_with_its_incident(numbers: dict[str, float], ended: str) -> None:
    ran = run(numbers, steps=30).finish()
    assert [told.ended for told in ran.notifications] == ["", ended]
    assert ran.incident.ended_with_run
