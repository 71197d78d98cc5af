"""Marks on the course of a run: restarts, other configurations, jumps of the learning rate, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs

from trmon.domain.runs.run import SavedCheckpoint
from trmon_client.api.runs import CourseMarkInfo

MAX_MARKS = 200
"""The newest marks of a run that are returned."""
JUMP, STEADY = 1.25, 1.05
"""The learning rate jumps where it changes by the first factor, and by less than the second one just before and after.

A warm-up or a decay changes it in every step, and has no jump.
"""
MARK_SIGNALS = ("baseline", "new_baseline", "lr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The gauge rows of a run in order: `attempt_id`, `step`, `closed_at` and the signals that marks need, by name."""

    attempt_id: Any
    step: Any
    closed_at: Any
    signals: dict[str, Any]


def course_marks(
    course: Course, *, started_at: Sequence[float], checkpoints: Sequence[SavedCheckpoint] = ()
) -> list[CourseMarkInfo]:
    """Return the newest marks, one a step.

    Args: started_at: when each launch of the trainer started, in order; checkpoints: of the run.
    """
    if not len(course.step):
        return []
    found: dict[int, CourseMarkInfo] = {}
    for mark in (*_restarts(course, started_at), *_changes(course), *_saved(course, checkpoints)):
        first = found.get(mark.step)
        found[mark.step] = mark if first is None else structs.replace(first, words=f"{first.words}, {mark.words}")
    return sorted(found.values(), key=lambda mark: mark.step)[-MAX_MARKS:]


def _restarts(course: Course, started_at: Sequence[float]) -> Iterator[CourseMarkInfo]:
    """Yield the first row of each later attempt, and of each later launch that continued an attempt."""
    rows = set((np.flatnonzero(np.diff(course.attempt_id)) + 1).tolist())
    rows |= set(np.searchsorted(course.closed_at, np.asarray(started_at[1:], float), side="right").tolist())
    for row in sorted(rows - {0, len(course.step)}):
        yield CourseMarkInfo(step=int(course.step[row]), kind="restart", words="restart of the trainer")


def _changes(course: Course) -> Iterator[CourseMarkInfo]:
    lr, step = course.signals["lr"], course.step
    with np.errstate(all="ignore"):
        factor = np.exp(np.abs(np.diff(np.log(lr))))
    for i in np.flatnonzero(factor > JUMP).tolist():
        if all(factor[j] < STEADY for j in (i - 1, i + 1) if 0 <= j < len(factor)):
            yield _change(step[i + 1], f"learning rate {lr[i]:.3g} → {lr[i + 1]:.3g}")
    for i in np.flatnonzero(course.signals["new_baseline"] > 0).tolist():
        yield _change(step[i], "change declared by the trainer")
    counted = np.nan_to_num(course.signals["baseline"])
    for i in np.flatnonzero(np.diff(counted) > 0).tolist():
        yield _change(step[i + 1], "configuration changed")


def _saved(course: Course, checkpoints: Sequence[SavedCheckpoint]) -> Iterator[CourseMarkInfo]:
    first, last = int(course.step.min()), int(course.step.max()) + 1
    for saved in checkpoints:
        if first <= saved.step <= last:
            yield CourseMarkInfo(step=saved.step, kind="checkpoint", words=f"checkpoint {saved.path}")


def _change(step: int, words: str) -> CourseMarkInfo:
    return CourseMarkInfo(step=int(step), kind="change", words=words)
