"""The fall of the reward: found where it collapses, whatever its scale, and quiet where it is only noisy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trmon.domain.signals.reward_history import RewardHistory

QUANTILES = ("reward_min", "reward_q01", "reward_q05", "reward_q25", "reward_median")


def history_of(rewards: list[float], *, lowest: float | None = None) -> list[RewardHistory]:
    """Return the history after each step; with `lowest` every step has sequences with that reward."""
    signals = {} if lowest is None else dict.fromkeys(QUANTILES, lowest)
    found, history = [], RewardHistory()
    for reward in rewards:
        history = history.with_step(reward, signals)
        found.append(history)
    return found


def first_step_above_one(histories: list[RewardHistory]) -> int | None:
    return next((step for step, history in enumerate(histories) if history.falls[0] > 1), None)


def falling(*, scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> list[float]:
    """Return a reward that climbs from 0.2 to 0.8 and falls to 0.1 from step 200 on."""
    noise = np.random.default_rng(seed).normal(0, 0.02, 300)
    clean = np.concatenate([np.linspace(0.2, 0.8, 150), np.full(50, 0.8), np.linspace(0.8, 0.1, 40), np.full(60, 0.1)])
    return [float(value) for value in shift + scale * (clean + noise)]


def test_a_collapse_is_found_within_steps_of_its_onset() -> None:
    found = first_step_above_one(history_of(falling(), lowest=0.0))
    assert 210 < found < 245


@pytest.mark.parametrize(("scale", "shift"), [(10.0, 0.0), (1.0, -5.0), (0.001, 3.0)])
def test_a_change_of_scale_or_origin_changes_nothing(scale: float, shift: float) -> None:
    plain = first_step_above_one(history_of(falling(), lowest=0.0))
    assert first_step_above_one(history_of(falling(scale=scale, shift=shift), lowest=shift)) == plain


@pytest.mark.parametrize("share", [0.02, 0.2, 0.8], ids=lambda share: f"{share:.0%} of the answers are right")
def test_noisy_rewards_without_a_trend_are_no_collapse_in_97_of_100_runs(share: float) -> None:
    n_paged = 0
    for seed in range(60):
        rewards = np.random.default_rng(seed).binomial(64, share, 500) / 64
        falls = [history.falls[0] > 1 for history in history_of([float(value) for value in rewards], lowest=0.0)]
        n_paged += any(all(falls[i : i + 3]) for i in range(len(falls)))
    assert n_paged <= 2


def test_steps_without_a_reward_are_skipped() -> None:
    rewards = falling()
    gaps = [value for reward in rewards for value in (reward, math.nan)]
    assert history_of(gaps, lowest=0.0)[-1] == history_of(rewards, lowest=0.0)[-1]


def test_before_the_twenty_first_step_nothing_is_known() -> None:
    histories = history_of([0.5] * 21)
    assert all(math.isnan(history.falls[0]) for history in histories[:20])
    assert histories[20].falls[0] == 0.0


def test_a_decline_is_a_smaller_fall_than_a_collapse() -> None:
    last = history_of([0.8] * 100 + [0.55] * 200, lowest=0.0)[-1]
    collapse, decline = last.falls
    assert decline == pytest.approx(collapse * 1.5)
    assert decline > 1 > collapse * 0.9
