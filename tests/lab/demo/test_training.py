"""The trainings of the demo."""

from __future__ import annotations

from trmon.lab.demo.processes import demo_trainings
from trmon.lab.grpo.injections import Injection


def injections(injection: Injection) -> dict[str, Injection | None]:
    """Return the injection of each training by its run."""
    return {training.name: training.injection for training in demo_trainings(injection, seed=3, n_steps=9)}


def test_a_run_whose_reward_collapses_stands_beside_the_healthy_and_the_ill_one() -> None:
    expected = {"healthy": None, "ill": Injection.STALE, "collapsing": Injection.REWARD}
    assert injections(Injection.STALE) == expected


def test_the_same_illness_is_not_trained_twice() -> None:
    assert injections(Injection.REWARD) == {"healthy": None, "ill": Injection.REWARD}


def test_all_trainings_share_seed_and_steps() -> None:
    assert {(one.seed, one.n_steps, one.onset_step) for one in demo_trainings(Injection.PAD, seed=3, n_steps=9)} == {
        (3, 9, 60)
    }
