"""The 60 runs of a seed: which traits each has, and which fault from which row on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trmon_research.language_like.courses import EngineKind, RewardKind, Shape, Traits, View
from trmon_research.language_like.faults import ALWAYS_FROM_START, CONFIGURED, FAULTS

HEALTHY: dict[str, Traits] = {
    "growth_verifier": Traits(growth=4.0, length=110, reference=0.3, rows=300),
    "growth_order": Traits(growth=4.0, length=120, order=0.8, engine="fp8", view="two", rows=300),
    "growth_spikes": Traits(growth=3.0, length=150, reward="format", spikes=0.02, view="two"),
    "growth_log": Traits(growth=4.0, length=100, view="log", groups=(16, 8), entropy=1.3, rows=400),
    "moe_verifier": Traits(engine="moe", config={"model_type": "moe"}),
    "moe_format": Traits(engine="moe", reward="format", view="two", truncated=0.1),
    "moe_async": Traits(engine="moe", lag=2, spikes=0.01, reward="dense"),
    "moe_curriculum": Traits(engine="moe", curriculum=0.5, view="two", config={"model_type": "moe"}),
    "fp8_dense": Traits(engine="fp8", reward="dense", shape="plateau"),
    "fp8_points": Traits(engine="fp8", reward="points", view="two", reference=0.6),
    "async_1": Traits(lag=1, shape="slow"),
    "async_2": Traits(lag=2, reward="sign", view="two", order=0.7),
    "async_3": Traits(lag=3, reward="format", spikes=0.01, rows=300),
    "solved_verifier": Traits(shape="solved", truncated=0.001),
    "solved_sign": Traits(shape="solved", reward="sign", view="two", engine="fp8", entropy=0.3, truncated=0.001),
    "solved_log": Traits(shape="solved", reward="format", view="log", rows=400, truncated=0.001),
    "restarts_back": Traits(restarts=((0.35, 15), (0.6, 8)), reward="dense", rows=300),
    "restart_next": Traits(restarts=((0.45, 0),), reward="verifier", view="two", shape="slow"),
    "pauses": Traits(restarts=((0.3, 0), (0.5, 0), (0.8, 0)), reward="negative", engine="fp8"),
    "curriculum": Traits(curriculum=0.4, reward="verifier", rows=300),
    "truncated_10": Traits(truncated=0.1, reward="sign"),
    "truncated_25": Traits(truncated=0.25, reward="dense", growth=0.8, view="two"),
    "truncated_40": Traits(truncated=0.4, reward="verifier", growth=0.8, shape="slow"),
    "spikes": Traits(spikes=0.03, reward="points", reference=1.0),
    "entropy_rising": Traits(entropy=1.6, reward="model", view="two"),
    "entropy_falling": Traits(entropy=0.4, reward="negative", rows=200, order=0.6),
    "reward_model": Traits(reward="model", reference=1.0, evaluates=True),
    "tiny_batches": Traits(view="log", groups=(2, 8), rows=400, reward="verifier", order=0.6, spikes=0.02),
    "flat": Traits(shape="flat", reward="negative", view="log", rows=300, groups=(8, 8)),
    "plateau": Traits(shape="plateau", reward="verifier", rows=350, lag=1, order=0.6, evaluates=True),
}
"""Thirty healthy runs: one for each thing that a healthy run does and a careless judge calls ill."""

LOGGED_ONLY = frozenset(
    (
        *("entropy_explosion", "entropy_collapse", "slow_decline", "length_surge", "length_collapse"),
        *("cut_at_limit", "dead_reward", "verifier_breaks", "nan_gradient", "overoptimisation"),
    )
)
"""Faults that a trainer's log shows without log-probs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before it is simulated: `fault` is None for a healthy one, `onset` the row of its beginning."""

    name: str
    seed: int
    index: int
    traits: Traits
    fault: str | None = None
    onset: int | None = None

    def generator(self) -> np.random.Generator:
        """Return the random numbers of the run, the same in every process."""
        return np.random.default_rng([self.seed, self.index])


def plans(seed: int = 0) -> Iterator[Plan]:
    """Yield the healthy and the ill runs of a seed; another seed draws other onsets, engines and rewards."""
    for index, (name, traits) in enumerate(HEALTHY.items()):
        yield Plan(f"healthy-{name}", seed, index, traits)
    for index, fault in enumerate(FAULTS, start=len(HEALTHY)):
        traits, onset = _ill(fault, np.random.default_rng([seed, index, 1]))
        yield Plan(f"ill-{fault}", seed, index, traits, fault, onset)


def _ill(fault: str, rng: np.random.Generator) -> tuple[Traits, int]:
    rewards: list[RewardKind] = ["verifier", "sign", "format", "dense", "points", "negative", "model"]
    engines: list[EngineKind] = ["dense", "dense", "fp8"]
    shapes: list[Shape] = ["rise", "rise", "plateau"]
    views: list[View] = ["three", "two", "log"] if fault in LOGGED_ONLY else ["three", "two"]
    traits = Traits(
        rows=int(rng.integers(200, 301)),
        reward=rewards[rng.integers(len(rewards))],
        engine=engines[rng.integers(len(engines))],
        view=views[rng.integers(len(views))],
        shape=shapes[rng.integers(len(shapes))],
        growth=float(rng.uniform(0.9, 1.6)),
        length=float(rng.uniform(150, 350)),
        truncated=float(rng.uniform(0.02, 0.1)),
        entropy=float(rng.uniform(0.6, 1.1)),
        reference=float(rng.uniform(0.05, 0.5)),
        spikes=float(rng.choice([0.0, 0.0, 0.01])),
    )
    at_start = fault in ALWAYS_FROM_START or (fault in CONFIGURED and rng.random() < 0.5)
    onset = 0 if at_start else int(rng.uniform(0.3, 0.55) * traits.rows)
    return _suited(fault, traits), onset


def _suited(fault: str, traits: Traits) -> Traits:
    """Return the traits that let a fault be seen."""
    match fault:
        case "router_noise":
            return replace(traits, engine="moe")
        case "learning_rate" | "instability":
            return replace(traits, view="three")
        case "overoptimisation":
            return replace(traits, evaluates=True)
        case "dead_reward" | "verifier_breaks" if traits.reward in ("format", "negative", "model"):
            return replace(traits, reward="verifier")
        case "length_surge":
            return replace(traits, shape="plateau", truncated=0.02, length=min(traits.length, 220.0))
        case _:
            return traits
