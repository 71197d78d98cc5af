"""Tests which steps and batches the index of an attempt names."""

from __future__ import annotations

import numpy as np
import pytest

from trmon.store.lake.reader import AttemptIndex
from trmon.store.rows.batches import BatchSelection, StepUpdates

WHOLE = -1
INDEX = AttemptIndex.of(
    steps=np.array([2, 1, 2, 1, 5]),
    updates=np.array([0, WHOLE, 1, 0, WHOLE]),
    ordinals=np.array([3, 1, 4, 2, 9]),
)
EMPTY = AttemptIndex.of(steps=np.array([], int), updates=np.array([], int), ordinals=np.array([], int))


@pytest.mark.parametrize(
    ("from_step", "to_step", "limit", "expected"),
    [
        pytest.param(
            None, None, 10, [StepUpdates(5, None, None), StepUpdates(2, 0, 1), StepUpdates(1, None, 0)], id="all"
        ),
        pytest.param(None, None, 1, [StepUpdates(5, None, None)], id="the newest"),
        pytest.param(2, 4, 10, [StepUpdates(2, 0, 1)], id="a range includes its ends"),
        pytest.param(3, 4, 10, [], id="a range without steps"),
        pytest.param(None, 1, 10, [StepUpdates(1, None, 0)], id="up to a step"),
    ],
)
def test_steps_come_newest_first(
    from_step: int | None, to_step: int | None, limit: int, expected: list[StepUpdates]
) -> None:
    assert INDEX.newest_steps(from_step=from_step, to_step=to_step, limit=limit) == expected


@pytest.mark.parametrize(
    ("selection", "ordinals"),
    [
        pytest.param(BatchSelection(limit=10), [1, 2, 3, 4, 9], id="all"),
        pytest.param(BatchSelection(limit=2, newest_first=True), [9, 4], id="the newest"),
        pytest.param(BatchSelection(limit=2, after=2), [3, 4], id="after one"),
        pytest.param(BatchSelection(limit=9, newest_first=True, before=4), [3, 2, 1], id="before one"),
        pytest.param(BatchSelection(limit=9, step=2), [3, 4], id="of a step"),
        pytest.param(BatchSelection(limit=9, step=7), [], id="of a step that is missing"),
    ],
)
def test_a_selection_is_in_the_order_of_ordinals(selection: BatchSelection, ordinals: list[int]) -> None:
    assert INDEX.ordinals[INDEX.selected(selection)].tolist() == ordinals


def test_an_attempt_without_batches_has_no_steps() -> None:
    assert EMPTY.newest_steps(from_step=None, to_step=None, limit=10) == []
    assert len(EMPTY.selected(BatchSelection(limit=10))) == 0
