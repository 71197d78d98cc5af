"""What a judge remembers: the noise and the start of a signal, and the fall of a reward whatever its scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmon.domain.findings.memory import EARLY_ROWS, START_ROWS, WINDOW_ROWS, RewardMemory, SignalMemory

QUANTILES = ("reward_min", "reward_q01", "reward_q05", "reward_q25", "reward_median")


def course_of(rewards: list[float], *, lowest: float | None = None) -> list[RewardMemory]:
    """Return the course after each row; with `lowest` every row has sequences with that reward."""
    values = {} if lowest is None else dict.fromkeys(QUANTILES, lowest)
    found, course = [], RewardMemory()
    for row, reward in enumerate(rewards):
        course = course.with_row(reward, values, row)
        found.append(course)
    return found


def fall(course: RewardMemory) -> float:
    """Return the fall of a course."""
    return course.fall(course.noise, course.lowest)


def falling(*, scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> list[float]:
    """Return a reward that climbs from 0.2 to 0.8 and falls to 0.1 from row 200 on."""
    noise = np.random.default_rng(seed).normal(0, 0.02, 300)
    clean = np.concatenate([np.linspace(0.2, 0.8, 150), np.full(50, 0.8), np.linspace(0.8, 0.1, 40), np.full(60, 0.1)])
    return [float(value) for value in shift + scale * (clean + noise)]


def first_collapse(courses: list[RewardMemory]) -> int | None:
    """Return the first row whose fall is that of a collapse."""
    return next((row for row, course in enumerate(courses) if fall(course) >= 0.85), None)


def test_a_collapse_is_found_within_rows_of_its_onset() -> None:
    found = first_collapse(course_of(falling(), lowest=0.0))
    assert 205 < found < 235


@pytest.mark.parametrize(("scale", "shift"), [(10.0, 0.0), (1.0, -5.0), (0.001, 3.0)])
def test_a_change_of_scale_or_origin_changes_nothing(scale: float, shift: float) -> None:
    plain = first_collapse(course_of(falling(), lowest=0.0))
    assert first_collapse(course_of(falling(scale=scale, shift=shift), lowest=shift)) == plain


@pytest.mark.parametrize("share", [0.02, 0.2, 0.8], ids=lambda share: f"{share:.0%} of the answers are right")
def test_noisy_rewards_without_a_trend_are_no_collapse_in_97_of_100_runs(share: float) -> None:
    n_paged = 0
    for seed in range(40):
        rewards = np.random.default_rng(seed).binomial(64, share, 300) / 64
        falls = [fall(course) >= 0.85 for course in course_of([float(value) for value in rewards], lowest=0.0)]
        n_paged += any(all(falls[i : i + 3]) for i in range(len(falls)))
    assert n_paged <= 1


def test_before_row_ten_no_fall_is_known() -> None:
    courses = course_of([1.0] * 30)
    assert [math.isnan(fall(course)) for course in courses] == [True] * 9 + [False] * 21


@pytest.mark.parametrize(
    ("rewards", "rises"),
    [
        ([0.2 + 0.004 * row for row in range(120)], True),
        ([0.5] * 120, False),
        ([0.2 + 0.004 * row for row in range(120)] + [0.68] * 190, False),
        ([0.2 + 0.004 * row for row in range(120)] + [0.68 - 0.02 * row for row in range(20)], False),
    ],
)
def test_a_reward_rises_while_it_is_above_its_level_of_a_hundred_rows_ago(rewards: list[float], rises: bool) -> None:
    course = course_of(rewards)[-1]
    assert course.is_rising(course.noise, fall(course)) is rises


@pytest.mark.parametrize(
    ("rewards", "lowest", "top"),
    [
        ([0.95] * 20, None, True),
        ([0.5] * 20, None, False),
        ([3.0] * 20, None, None),
        ([0.0] * 20, 0.0, False),
    ],
)
def test_the_top_is_known_from_rewards_of_sequences_or_between_zero_and_one(
    rewards: list[float], lowest: float | None, top: bool | None
) -> None:
    course = course_of(rewards, lowest=lowest)[-1]
    assert course.is_at_top(course.lowest, course.highest) is top


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=260))
def test_the_noise_is_that_of_the_remembered_values(values: list[float]) -> None:
    memory = SignalMemory()
    for row, value in enumerate(values):
        memory = memory.with_value(value, row)
    kept = np.array(values[-WINDOW_ROWS:])
    expected = math.sqrt(np.mean(np.diff(kept) ** 2) / 2) if len(kept) > 1 else 0.0
    assert memory.noise == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert list(memory.rows) == list(range(len(values)))[-WINDOW_ROWS:]
    if len(values) >= START_ROWS:
        assert memory.start == pytest.approx(np.mean(values[:START_ROWS]), abs=1e-6)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=300))
def test_the_rows_of_a_sparse_signal_are_remembered(gaps: list[int]) -> None:
    memory, rows = SignalMemory(), np.cumsum(gaps).tolist()
    for row in rows:
        memory = memory.with_value(1.0, row)
    assert list(memory.rows) == rows[-WINDOW_ROWS:]


def test_an_illness_that_begins_among_the_early_values_is_no_part_of_what_was_usual() -> None:
    memory = SignalMemory()
    for row in range(120):
        memory = memory.with_value(1.0 if row < 60 else 900.0, row, early_rows=EARLY_ROWS)
    assert (len(memory.early), max(memory.early)) == (60, 1.0)
    grown = SignalMemory()
    for row in range(120):
        grown = grown.with_value(1.0 + row / 20, row, early_rows=EARLY_ROWS)
    assert len(grown.early) == EARLY_ROWS
