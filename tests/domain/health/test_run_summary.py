"""Sparklines: many steps in few points."""

from __future__ import annotations

import math

import numpy as np

from trmon.domain.health.run_summary import POINTS, sparkline_of


def test_few_steps_are_drawn_as_they_are() -> None:
    line = sparkline_of(np.arange(3, 6), np.array([1.0, math.nan, 0.123456]))
    assert (line.first_step, line.last_step, line.values) == (3, 5, (1.0, None, 0.1235))


def test_many_steps_are_drawn_by_the_mean_of_what_is_known() -> None:
    line = sparkline_of(np.arange(4 * POINTS), np.tile([1.0, 3.0, math.nan, math.inf], POINTS))
    assert line.values == (2.0,) * POINTS


def test_a_signal_that_nobody_knows_has_no_line() -> None:
    assert sparkline_of(np.arange(2), np.full(2, math.nan)).values == (None, None)
