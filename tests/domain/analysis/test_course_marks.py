"""Marks on the course of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trmon.domain.analysis.course_marks import MAX_MARKS, Course, course_marks
from trmon.domain.runs.run import SavedCheckpoint

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
