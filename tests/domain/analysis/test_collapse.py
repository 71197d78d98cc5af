"""Collapse detection: when a run counts as collapsed, and from which step."""

from __future__ import annotations

import math

import pytest

from trmon.domain.analysis.collapse import Collapse, CollapseSearch, CollapseSign, find_collapse, smoothed

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
