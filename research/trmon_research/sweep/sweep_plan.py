"""The plan of a sweep: configurations drawn for each mechanism of collapse, some of which do collapse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from typing import Any

import numpy as np
from msgspec import structs

from trmon.lab.grpo.experiment_config import (
    EngineMismatch,
    ExperimentConfig,
    PpoReference,
    Ramp,
    WeightFormat,
    constant,
)
from trmon_research.testbed import StudyTrainer

WARM_STARTS = 3
"""Policies that runs of one task and architecture start from."""
MAX_GRAD_NORM = 1.0
"""Where gradients are clipped, as trainers of language models do; of `unclipped` runs they are not."""

Draw = Callable[[np.random.Generator], dict[str, Any]]


def plan_sweep(n_configurations: int, *, seed: int, n_updates: int, n_seeds: int = 1) -> list[ExperimentConfig]:
    """Return the configurations of a sweep, each with n_seeds seeds; a longer plan begins with the shorter one."""
    configs = islice(_configurations(seed, n_updates=n_updates), n_configurations)
    return [_with_seed(config, offset) for config in configs for offset in range(n_seeds)]


def configurations_of(mechanism: str, *, seed: int, n_updates: int, n: int) -> list[ExperimentConfig]:
    """Return the first n configurations of one mechanism in the plans of a seed."""
    found = (config for config in _configurations(seed, n_updates=n_updates) if config.mechanism == mechanism)
    return list(islice(found, n))


def _configurations(seed: int, *, n_updates: int) -> Iterator[ExperimentConfig]:
    for index, mechanism in enumerate(_mechanisms(seed)):
        rng = np.random.default_rng([seed, index, 1])
        common = _common(rng, mechanism) | {"n_updates": n_updates, "seed": int(rng.integers(1 << 20))}
        yield ExperimentConfig(mechanism=mechanism, **common | MECHANISMS[mechanism](rng))


def _mechanisms(seed: int) -> Iterator[str]:
    for turn in count():
        names = [name for name, share in _shares_of_round(turn).items() for _ in range(share)]
        for place in np.random.default_rng([seed, turn]).permutation(len(names)):
            yield names[place]


def _shares_of_round(turn: int) -> Mapping[str, int]:
    """Return what a round has: each later kind of round was added when the runs of the earlier ones were stored."""
    if turn < FIRST_ROUNDS:
        return SHARES
    return LATER_SHARES if turn < FIRST_ROUNDS + LATER_ROUNDS else dict.fromkeys(MECHANISMS, 1)


def _common(rng: np.random.Generator, mechanism: str) -> dict[str, Any]:
    """Return what is drawn for every run: task, policy, minibatches and the reference of PPO's ratio."""
    architecture = "moe" if mechanism in NEED_A_ROUTER else _choice(rng, list(StudyTrainer.architectures))
    return {
        "task": _choice(rng, list(StudyTrainer.tasks)),
        "architecture": architecture,
        "experts_per_token": _choice(rng, [1, 2]) if architecture == "moe" else 1,
        "warm_start_seed": int(rng.integers(WARM_STARTS)),
        "n_minibatches": _choice(rng, [2, 2, 4]),
        "ppo_reference": _choice(rng, [PpoReference.OLD, PpoReference.OLD, PpoReference.ROLLOUT]),
        "max_grad_norm": MAX_GRAD_NORM,
        "learning_rate": constant(_between(rng, 2e-4, 8e-4)),
    }


def _healthy(rng: np.random.Generator) -> dict[str, Any]:
    weight_format = _choice(rng, [WeightFormat.BFLOAT16, WeightFormat.FLOAT16, WeightFormat.INT8])
    return {"engine": EngineMismatch(weight_format=weight_format)}


def _constant_rate(rng: np.random.Generator) -> dict[str, Any]:
    return {"learning_rate": constant(_between(rng, 1e-3, 8e-3))}


def _rising_rate(rng: np.random.Generator) -> dict[str, Any]:
    return {"learning_rate": _ramp(rng, 2e-4, _between(rng, 2e-3, 2e-2))}


def _router_noise(rng: np.random.Generator) -> dict[str, Any]:
    noise = constant(_between(rng, 0.5, 3.0)) if rng.random() < 0.5 else _ramp(rng, 0.0, _between(rng, 2.0, 8.0))
    rate = constant(_between(rng, 4e-4, 2e-3))
    return {"engine": EngineMismatch(router_noise=noise), "learning_rate": rate, "router_replay": rng.random() < 0.15}


def _staleness(rng: np.random.Generator) -> dict[str, Any]:
    lag = _between(rng, 4.0, 32.0)
    shape = constant(round(lag)) if rng.random() < 0.25 else _ramp(rng, 0.0, round(lag))
    return {"engine": EngineMismatch(lag=shape), "learning_rate": constant(_between(rng, 3e-4, 2e-3))}


def _quantisation(rng: np.random.Generator) -> dict[str, Any]:
    formats = [WeightFormat.INT8, WeightFormat.FLOAT8, WeightFormat.INT4, WeightFormat.INT3, WeightFormat.INT3]
    first = 0 if rng.random() < 0.5 else int(rng.integers(60, 300))
    engine = EngineMismatch(weight_format=_choice(rng, formats), first_update=first)
    return {"engine": engine, "learning_rate": constant(_between(rng, 4e-4, 2e-3))}


def _reuse(rng: np.random.Generator) -> dict[str, Any]:
    return {"n_epochs": int(rng.integers(2, 9)), "learning_rate": constant(_between(rng, 5e-4, 2.5e-3))}


def _sampling(rng: np.random.Generator) -> dict[str, Any]:
    if rng.random() < 0.5:
        engine = EngineMismatch(top_p=_ramp(rng, 1.0, round(rng.uniform(0.3, 0.9), 3)))
    else:
        engine = EngineMismatch(temperature=_ramp(rng, 1.0, _between(rng, 0.4, 2.5)))
    return {"engine": engine, "learning_rate": constant(_between(rng, 4e-4, 2e-3))}


def _padding(rng: np.random.Generator) -> dict[str, Any]:
    engine = EngineMismatch(padded_share=_ramp(rng, 0.0, round(rng.uniform(0.3, 1.0), 3)))
    reference = _choice(rng, [PpoReference.OLD, PpoReference.ROLLOUT, PpoReference.ROLLOUT])
    rate = constant(_between(rng, 4e-4, 2e-3))
    return {"engine": engine, "ppo_reference": reference, "learning_rate": rate}


def _length_reward(rng: np.random.Generator) -> dict[str, Any]:
    return {"length_bonus": _ramp(rng, 0.0, _between(rng, 0.3, 4.0))}


def _entropy(rng: np.random.Generator) -> dict[str, Any]:
    size = _between(rng, 0.05, 2.0)
    return {"entropy_coefficient": _ramp(rng, 0.0, size if rng.random() < 0.6 else -size)}


def _warm_up(rng: np.random.Generator) -> dict[str, Any]:
    rate = _between(rng, 2e-4, 8e-4)
    return {"learning_rate": Ramp(rate / 100, rate, n_updates=round(_between(rng, 20, 400)))}


def _mild_rise(rng: np.random.Generator) -> dict[str, Any]:
    rate = _between(rng, 1e-4, 4e-4)
    return {"learning_rate": _ramp(rng, rate, rate * _between(rng, 1.5, 5.0))}


def _unclipped(rng: np.random.Generator) -> dict[str, Any]:
    return {"max_grad_norm": None, "learning_rate": constant(_between(rng, 5e-4, 2.5e-3))}


MECHANISMS: Mapping[str, Draw] = {
    "healthy": _healthy,
    "constant_rate": _constant_rate,
    "rising_rate": _rising_rate,
    "router_noise": _router_noise,
    "staleness": _staleness,
    "quantisation": _quantisation,
    "reuse": _reuse,
    "sampling": _sampling,
    "padding": _padding,
    "length_reward": _length_reward,
    "entropy": _entropy,
    "unclipped": _unclipped,
    "warm_up": _warm_up,
    "mild_rise": _mild_rise,
}
"""What is drawn for each mechanism, over what is common to all runs."""
SCHEDULES = ("warm_up", "mild_rise")
"""Mechanisms in which the learning rate rises as schedules do, without harm: a rise alone is no sign of a collapse."""
SHARES: Mapping[str, int] = {
    name: {"healthy": 3, "rising_rate": 2, "staleness": 2}.get(name, 1) for name in MECHANISMS if name not in SCHEDULES
}
"""How many configurations of each mechanism one of the first rounds of the plan has."""
FIRST_ROUNDS, LATER_ROUNDS = 15, 6
LATER_SHARES: Mapping[str, int] = {
    **dict.fromkeys(SCHEDULES, 3),
    **dict.fromkeys(("entropy", "padding", "sampling", "staleness"), 1),
}
"""How many configurations of each mechanism the next rounds have: schedules, and what is hardly found."""
NEED_A_ROUTER = ("router_noise",)


def _with_seed(config: ExperimentConfig, offset: int) -> ExperimentConfig:
    return structs.replace(config, seed=config.seed + offset)


def _ramp(rng: np.random.Generator, start: float, end: float) -> Ramp:
    """Return a ramp that begins after the run's own baseline, and takes 80 to 400 updates."""
    return Ramp(float(start), float(end), first_update=int(rng.integers(60, 260)), n_updates=int(rng.integers(80, 400)))


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a value whose logarithm is uniform, to three digits."""
    return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")


def _choice(rng: np.random.Generator, values: list[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def configuration_hash(config: ExperimentConfig) -> str:
    """Return a hash of every value but the seed: runs that share it repeat one configuration."""
    return structs.replace(config, seed=0).content_hash


def ramps(config: ExperimentConfig) -> tuple[Ramp, ...]:
    """Return the settings of a configuration that may move: the trainer's, the engine's and those of faults."""
    engine, faults = config.engine, config.faults
    of_trainer = (config.learning_rate, config.entropy_coefficient, config.length_bonus)
    of_engine = (engine.router_noise, engine.lag, engine.top_p, engine.temperature, engine.padded_share)
    of_faults = (faults.negated_share, faults.nan_share, faults.token_limit) if faults else ()
    return tuple(ramp for ramp in (*of_trainer, *of_engine, *of_faults) if ramp is not None)


def first_change(config: ExperimentConfig) -> int:
    """Return the first update at which a setting changes, from which on signals can show it; 0 if none changes."""
    changes = [ramp.first_update for ramp in ramps(config) if ramp.start != ramp.end]
    changes += [config.engine.first_update] if config.engine.first_update else []
    return min(changes, default=0)
