"""When a run counts as collapsed and from which step, and the marks on its course."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from trmon.domain.analysis.collapse import Collapse, CollapseSearch, CollapseSign, find_collapse, smoothed
from trmon.domain.analysis.course_marks import MAX_MARKS, Course, course_marks
from trmon.domain.runs.run import SavedCheckpoint

RISE = [0.5] * 20 + [0.5 + 0.01 * step for step in range(40)]
"""A run that gains 0.39 in 60 steps."""

RUNS = [
    ("a run that keeps rising does not collapse", [*RISE, *[0.9] * 150], None),
    ("a constant run does not collapse", [0.6] * 200, None),
    ("a fall that stays is a collapse", [*RISE, *[0.2] * 150], 65),
    ("a fall that recovers is not a collapse", [*RISE, *[0.2] * 20, *[0.9] * 150], None),
    ("a fall by a quarter of the peak is not a collapse", [*RISE, *[0.68] * 150], None),
    ("a small gain that is lost again is not a collapse", [0.68] * 30 + [0.72] * 30 + [0.66] * 150, None),
    ("a fall counts from the peak, however little was gained", [0.7] * 60 + [0.3] * 150, 67),
    ("rewards of zero are no fall", [0.0] * 200, None),
    ("a fall is not judged before its 100 steps are over", [*RISE, *[0.2] * 90], None),
    ("a run shorter than the average is not judged", [0.6] * 10, None),
    ("no reward at all is not judged", [], None),
    ("rewards that are all NaN are not judged", [math.nan] * 200, None),
]


@pytest.mark.parametrize(("sentence", "rewards", "step"), RUNS, ids=[case[0] for case in RUNS])
def test_the_reward_fell(sentence: str, rewards: list[float], step: int | None) -> None:
    expected = None if step is None else Collapse(step, CollapseSign.REWARD_FELL)
    assert find_collapse(rewards) == expected


def _norms(**spikes: float) -> list[float]:
    norms = [1.0] * 180
    for name, norm in spikes.items():
        norms[int(name.removeprefix("at_"))] = norm
    return norms


FALLING = [0.8] * 60 + [0.64] * 120
SPIKES = [
    ("a spike before a fall of a fifth is a collapse, from the spike on", FALLING, _norms(at_50=11.0), 50),
    ("a spike of ten times is not more than ten times", FALLING, _norms(at_50=10.0), None),
    ("a spike without a fall is not a collapse", [0.8] * 180, _norms(at_50=11.0), None),
    ("a spike before a fall of a tenth is not a collapse", [0.8] * 60 + [0.72] * 120, _norms(at_50=11.0), None),
    ("a spike is not judged before its 100 steps are over", FALLING[:150], _norms(at_50=11.0), None),
    ("a spike long before the fall is not a collapse", [0.8] * 70 + FALLING, _norms(at_30=11.0), None),
    ("the first of two spikes counts", FALLING, _norms(at_45=20.0, at_50=11.0), 45),
    ("a spike with too few norms before it is not a collapse", FALLING, _norms(at_5=50.0), None),
    ("a norm of NaN is no spike", FALLING, _norms(at_50=math.nan), None),
]


@pytest.mark.parametrize(("sentence", "rewards", "norms", "step"), SPIKES, ids=[case[0] for case in SPIKES])
def test_the_gradient_spiked(sentence: str, rewards: list[float], norms: list[float], step: int | None) -> None:
    expected = None if step is None else Collapse(step, CollapseSign.GRADIENT_SPIKED)
    assert find_collapse(rewards, grad_norms=norms) == expected


def test_the_average_starts_from_the_mean_of_twenty_and_moves_by_two_parts_of_twenty_one() -> None:
    average = smoothed([*range(20), 30.5])
    assert all(math.isnan(value) for value in average[:19])
    assert average[19:] == pytest.approx([9.5, 9.5 + 2 / 21 * 21])


def test_a_nan_reward_leaves_the_average_as_it_was() -> None:
    assert smoothed([0.5] * 20 + [math.nan])[-2:] == [0.5, 0.5]


def test_a_search_step_by_step_finds_the_collapse_once_its_100_steps_are_over() -> None:
    search, found_at = CollapseSearch(), []
    for step, reward in enumerate([*RISE, *[0.2] * 150]):
        search.add(1000 + 2 * step, reward)
        found_at += [step] if search.found is not None else []
    assert search.found == Collapse(1000 + 2 * 65, CollapseSign.REWARD_FELL)
    assert found_at[0] == 65 + 100


NAN = float("nan")


def course(
    *,
    attempts: Sequence[int] = (),
    lr: Sequence[float] = (),
    declared: Sequence[float] = (),
    baseline: Sequence[float] = (),
) -> Course:
    n = max(map(len, (attempts, lr, declared, baseline))) or 10

    def fill(values: Sequence[float], usual: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.array(values if len(values) else [usual] * n)

    return Course(
        attempt_id=fill(attempts, 1),
        step=np.arange(n) + 100,
        closed_at=1000.0 + 60.0 * np.arange(n),
        signals={"lr": fill(lr, NAN), "new_baseline": fill(declared, NAN), "baseline": fill(baseline, NAN)},
    )


def marked(of: Course, started_at: Sequence[float] = (0.0,)) -> list[tuple[int, str]]:
    return [(mark.step, mark.words) for mark in course_marks(of, started_at=started_at)]


def test_a_later_attempt_and_a_launch_that_continues_one_are_restarts() -> None:
    assert marked(course(attempts=[1, 1, 1, 2, 2])) == [(103, "restart of the trainer")]
    assert marked(course(), started_at=[900.0, 1130.0]) == [(103, "restart of the trainer")]
    assert marked(course(), started_at=[900.0, 990.0, 9000.0]) == []


def test_a_jump_of_the_learning_rate_is_a_change_and_a_schedule_is_none() -> None:
    assert marked(course(lr=[1e-6] * 4 + [2e-6] * 4)) == [(104, "learning rate 1e-06 → 2e-06")]
    assert marked(course(lr=[1e-6] * 7 + [5e-7])) == [(107, "learning rate 1e-06 → 5e-07")]
    assert marked(course(lr=list(np.linspace(0.0, 1e-6, 10)))) == []
    assert marked(course(lr=[1e-6, NAN, 2e-6, 0.0, 0.0])) == []


def test_a_declared_change_and_another_configuration_are_changes() -> None:
    assert marked(course(declared=[NAN, 0.0, 1.0, NAN])) == [(102, "change declared by the trainer")]
    assert marked(course(baseline=[NAN, NAN, 1.0, 1.0, 2.0])) == [
        (102, "configuration changed"),
        (104, "configuration changed"),
    ]


def test_a_restart_with_another_configuration_is_one_mark() -> None:
    assert marked(course(attempts=[1, 1, 2], baseline=[NAN, NAN, 1.0])) == [
        (102, "restart of the trainer, configuration changed")
    ]


def test_a_run_without_rows_has_no_marks_and_of_many_the_newest_are_kept() -> None:
    empty = np.array([])
    assert course_marks(Course(attempt_id=empty, step=empty, closed_at=empty, signals={}), started_at=[]) == []
    many = marked(course(declared=[1.0] * (MAX_MARKS + 5)))
    assert (len(many), many[-1][0]) == (MAX_MARKS, 100 + MAX_MARKS + 4)


def test_a_checkpoint_is_a_mark_where_the_course_has_its_step() -> None:
    saved = [SavedCheckpoint(step, f"/c/{step}") for step in (50, 103, 110, 111)]
    marks = course_marks(course(attempts=[1, 1, 1, 2] + [2] * 6), started_at=[0.0], checkpoints=saved)
    assert [(mark.step, mark.kind, mark.words) for mark in marks] == [
        (103, "restart", "restart of the trainer, checkpoint /c/103"),
        (110, "checkpoint", "checkpoint /c/110"),
    ]
