"""The row of a step that is judged, the alerts of what is found, and the same rows by different doors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.domain.findings.series import Case, series
from tests.domain.pipeline.closings import closing, pass_context
from tests.domain.ruleruns import RuleRun, run
from tests.domain.trainer import report
from tests.store.builders import batch
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.verdict import Word
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.close_batch import close_batch, replay_row
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import fold_row, reconsider
from trmon.domain.pipeline.judging import OF_UPDATES, judge_pending, judgement_of, pending_values
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


OF_PIPELINE = ("slow_steps", "collapse_risk")
"""Findings over signals that the pipeline computes itself."""
Found = dict[str, tuple[int, Place]]


def found_in(state: JudgeState) -> Found:
    """Return what stands, with the row of its trip and its onset."""
    spells = (spell for spell in state.standing.values() if spell.finding not in OF_PIPELINE)
    return {spell.finding: (spell.trip, spell.onset_place) for spell in spells}


def context_of(case: Case) -> PassContext:
    return replace(CONTEXT, run=replace(CONTEXT.run, config=dict(case.config)))


OF_UPDATE = {"staleness", "ppo_kl", "clipped", "staleness jump", "stale updates"}
"""Illnesses in numbers of updates."""


def cases() -> Iterator[Case]:
    """Yield series of one configuration that are ill in their updates; the duration of a step is the pipeline's."""
    ill = (case for case in series() if OF_UPDATE & set(case.illnesses) and len(case.rows) < 120)
    for case in islice(ill, 4):
        yield replace(case, fresh=[], rows=[{k: v for k, v in row.items() if k != "step_seconds"} for row in case.rows])


def judged(case: Case) -> Found:
    """Return what stands in a series that is folded straight."""
    state, facts = JudgeState(), {"replay_declared": 1.0} if case.config.get("router_replay") else {}
    judge = Judge(CONTEXT.rules.catalogue)
    for step, (attempt, values) in enumerate(zip(case.attempts, case.rows, strict=True)):
        state = judge.fold(state, Row(place=Place(attempt, step), values=values, facts=facts))
    return found_in(judge.finish(state))


def batches(case: Case, *, most_updates: int) -> Iterator[BatchRow]:
    """Yield the rows of the batches of a series, whose steps have 0, 1, ... updates in turn; the last one counts."""
    for step, (attempt, values) in enumerate(zip(case.attempts, case.rows, strict=True)):
        n = step % (most_updates + 1)
        of_update = {name: value for name, value in values.items() if name.startswith(OF_UPDATES)}
        earlier = dict.fromkeys(of_update, 0.7)
        yield row_of(step, attempt=attempt, **(values | earlier if n else values))
        for update in range(n):
            yield row_of(step, attempt=attempt, update=update, **(of_update if update == n - 1 else earlier))


def finished(rows: Iterable[BatchRow], context: PassContext) -> Found:
    """Return what stands after the last of some rows that come through the pipeline."""
    state = PipelineState()
    for row in rows:
        state = folded(state, structs.replace(row, last_report_id=0), context).pipeline_state
    return found_in(judge_pending(state, context=context, is_last=True)[1].judge)


@pytest.mark.parametrize("most_updates", [0, 3])
def test_a_run_through_the_pipeline_is_judged_as_its_rows_are(most_updates: int) -> None:
    found = [judged(case) for case in cases()]
    assert {"step_too_large", "stale_rollouts"} & {finding for one in found for finding in one}
    assert [finished(batches(case, most_updates=most_updates), context_of(case)) for case in cases()] == found


def test_the_order_in_which_the_ranks_report_changes_nothing() -> None:
    states = []
    for order in ((0, 1, 2), (2, 0, 1)):
        state = PipelineState()
        for step in range(12):
            reports = (report(step, rank=rank, world_size=3, health="noisy") for rank in order)
            state = close_batch(closing(*reports, pipeline_state=state, context=CONTEXT)).pipeline_state
        states.append(state.judge)
    assert states[0].rows == 11
    assert states[0].signals
    assert states[0] == states[1]


STEPS, ILL_FROM = 130, 60


def late_run(late_steps: int) -> tuple[JudgeState, list[BatchRow]]:
    """Return the judgement of a run whose scalars come some steps late, and its rows as they are stored in the end."""
    state, rows = PipelineState(), list[BatchRow]()
    for step in range(STEPS):
        closed = folded(state, row_of(step, mismatch_kl_k3=0.001 + 0.0001 * (step % 3)))
        state = closed.pipeline_state
        rows.append(closed.row)
        place = step - late_steps
        if place >= 0:
            scalars = {"grad_norm": 0.3 + 0.01 * (place % 5) if place < ILL_FROM else 2e4}
            rows[place], state = reconsider(
                structs.replace(rows[place], scalars=scalars), context=CONTEXT, pipeline_state=state
            )
    return state.judge, rows


@pytest.mark.parametrize(("late_steps", "is_judged"), [(0, True), (1, False), (5, False), (50, False)])
def test_values_are_judged_until_the_next_step_begins_and_later_ones_only_by_a_rebuilt_state(
    late_steps: int, is_judged: bool
) -> None:
    judge, rows = late_run(late_steps)
    spell = judge.standing.get("step_too_large")
    assert (spell is not None) is is_judged
    assert spell is None or spell.onset == ILL_FROM
    rebuilt = PipelineState()
    for row in rows:
        rebuilt = replay_row(row, context=CONTEXT, pipeline_state=rebuilt)
    assert rebuilt.judge.standing["step_too_large"].onset == ILL_FROM
    assert (rebuilt.judge == judge) is is_judged


def judgement(state: PipelineState) -> bytes:
    """Return what the state knows of the judgement; bytes, since NaN is not NaN."""
    return msgspec.msgpack.encode((state.judge, state.pending, state.baseline, state.declared))


def test_a_state_that_is_rebuilt_at_any_row_is_the_one_that_was_lost() -> None:
    case = next(case for case in series() if 60 < len(case.rows) < 110 and 1 in case.attempts)
    rows = list(batches(case, most_updates=2))
    later = replace(CONTEXT, run=replace(CONTEXT.run, config={"lr": 2.0}))
    stored, states = list[BatchRow](), [PipelineState()]
    for i, row in enumerate(rows):
        closed = folded(states[-1], row, CONTEXT if i < len(rows) // 3 else later)
        stored.append(closed.row)
        states.append(closed.pipeline_state)
    assert (states[-1].baseline, {place.attempt for place in states[-1].judge.places}) == (1, {0, 1})
    for i in range(0, len(rows), 3):
        checkpoint = max(0, i - 5)
        rebuilt = PipelineState.from_bytes(states[checkpoint].to_bytes())
        for row in stored[checkpoint:i]:
            rebuilt = replay_row(row, context=later, pipeline_state=rebuilt)
        assert judgement(rebuilt) == judgement(states[i])


def test_a_row_that_comes_after_its_step_was_judged_changes_nothing() -> None:
    state = PipelineState()
    for step in range(3):
        state = folded(state, row_of(step, mismatch_kl_k3=0.2)).pipeline_state
    late = folded(state, row_of(1, update=0, mismatch_kl_k3=9.0))
    assert (late.folded, late.row.key) == (False, BatchKey(1, 1, 0))
    assert judgement(late.pipeline_state) == judgement(state)
