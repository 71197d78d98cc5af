"""The graded label of a run: what it loses and keeps lost, without a look ahead but at what it labels."""

from __future__ import annotations

import numpy as np
import pytest

from trmon_research.collapse.severity import COLLAPSE, DECLINE, Course


def course(*levels: tuple[float, int]) -> Course:
    """Return the course of an evaluation at levels, each for a number of updates."""
    return Course.of([level for level, updates in levels for _ in range(updates)])


@pytest.mark.parametrize(
    ("given", "decline", "collapse"),
    [
        pytest.param(course((0.8, 300), (0.78, 300)), False, False, id="noise is no fall"),
        pytest.param(course((0.8, 300), (0.64, 300)), True, False, id="a fall by a fifth is a decline"),
        pytest.param(course((0.8, 300), (0.4, 300)), True, True, id="by half it is a collapse"),
        pytest.param(course((0.8, 300), (0.4, 80), (0.8, 300)), False, False, id="one that does not last is none"),
    ],
)
def test_a_fall_has_the_grade_that_it_keeps_for_100_updates(given: Course, decline: bool, collapse: bool) -> None:
    assert [given.onset(grade) is not None for grade in (DECLINE, COLLAPSE)] == [decline, collapse]
    onset = given.onset(DECLINE)
    assert onset is None or 300 <= onset <= 320


def test_a_moment_knows_what_begins_within_200_updates_and_is_silent_while_it_is_down() -> None:
    given = course((0.8, 500), (0.4, 300))
    begins, onset = given.begins(COLLAPSE), given.onset(COLLAPSE)
    assert onset is not None
    assert (begins[: onset - 200] == 0.0).all()
    assert (begins[onset - 200 : onset] == 1.0).all()
    assert np.isnan(begins[onset:]).all()


def test_a_fall_that_is_open_at_the_end_is_censored() -> None:
    given = course((0.8, 500), (0.4, 60))
    assert given.onset(COLLAPSE) is None
    assert given.is_open(COLLAPSE)
    begins = given.begins(COLLAPSE)
    assert (begins[:259] == 0.0).all()
    assert np.isnan(begins[260:]).all()


def test_a_higher_peak_later_changes_no_earlier_label() -> None:
    first = course((0.5, 300), (0.4, 200), (0.5, 100))
    higher = course((0.5, 300), (0.4, 200), (0.9, 400))
    known = ~np.isnan(first.begins(DECLINE))
    np.testing.assert_array_equal(first.begins(DECLINE)[known], higher.begins(DECLINE)[: len(known)][known])
