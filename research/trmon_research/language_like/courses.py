"""The course of a run, row by row: what its policy, its engine, its trainer and its rewards are like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
EngineKind = Literal["dense", "moe", "fp8"]
View = Literal["three", "two", "log"]
"""What the trainer logs: three policies, mu and pi_old alone, or scalars of a trainer's log."""
RewardKind = Literal["verifier", "sign", "format", "dense", "points", "negative", "model"]
Shape = Literal["rise", "slow", "plateau", "flat", "solved"]

LEVELS: dict[Shape, tuple[float, float, float]] = {
    "rise": (-1.2, 1.2, 0.35),
    "slow": (-0.8, 0.4, 0.6),
    "plateau": (-1.0, 1.4, 0.3),
    "flat": (0.0, 0.15, 0.3),
    "solved": (-0.2, 9.0, 0.25),
}
"""Log-odds of a success at the start and at the end, and the time constant as a share of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What distinguishes a run; everything else is drawn from its seed.

    `growth` is the factor of response lengths over the run, `truncated` the share cut at the limit at its start,
    `entropy` the factor of the entropy over the run, `lag` constant, `reference` the KL to the reference at the end,
    `restarts` rows at which an attempt ends, as shares of the run, with the steps that it steps back, `curriculum` the
    share of the run at which a declared harder set of prompts begins, `spikes` the chance of a gradient spike in a row.
    """

    rows: int = 250
    reward: RewardKind = "verifier"
    engine: EngineKind = "dense"
    view: View = "three"
    shape: Shape = "rise"
    growth: float = 1.0
    truncated: float = 0.03
    entropy: float = 0.6
    lag: int = 0
    reference: float = 0.1
    restarts: tuple[tuple[float, int], ...] = ()
    curriculum: float | None = None
    spikes: float = 0.0
    order: float = 0.4
    groups: tuple[int, int] = (8, 4)
    length: float = 260.0
    evaluates: bool = False
    config: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(slots=True, kw_only=True)
class Course:
    """Arrays [rows]; faults change them from their onset on.

    `skill` is the log-odds of a success, `topic` the difficulty of the row's prompts; `length` the median in tokens;
    `weights_sd` and `sharper` the change of the policy in one version, `update_sd` that within a step; `lag` in
    versions; `grad` a factor on the gradient's norm; `constant_reward` where the verifier answers one value; `broken`
    where the trainer's numbers are NaN; `evaluation` is added to the skill that evaluations see.
    """

    traits: Traits
    step: Array
    attempt: Array
    seconds: Array
    skill: Array
    topic: Array
    length: Array
    limit: int
    uncertain: Array
    entropy: Array
    garbage: Array
    logit_sd: Array
    flip_share: Array
    flip_sd: Array
    other_share: Array
    temperature: Array
    top_p: Array
    sequence_sd: Array
    weights_sd: Array
    sharper: Array
    lag: Array
    shows_versions: bool
    update_sd: Array
    grad: Array
    lr: Array
    reference_kl: Array
    constant_reward: Array
    broken: Array
    evaluation: Array
    corruption: Array
    corrupted_share: float = 0.0
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.step)


def ramp(n: int, start: int, rows: int) -> Array:
    """Return 0 before `start`, 1 from `start + rows` on, linear between; a step where rows is 0."""
    return np.clip((np.arange(n) - start + 1) / max(1, rows), 0.0, 1.0)


def course_of(traits: Traits, rng: np.random.Generator) -> Course:
    """Return the course of a healthy run with these traits."""
    n = traits.rows
    step, attempt, seconds = _steps(traits, rng)
    last = n - 1
    progress = step / last
    start, end, constant = LEVELS[traits.shape]
    risen = (1 - np.exp(-progress / constant)) / (1 - np.exp(-1 / constant))
    if traits.shape == "plateau":
        risen = np.interp(progress, [0, 0.3, 0.65, 1], [0, 0.55, 0.6, 1])
    skill = start + (end - start) * risen
    length = traits.length * traits.growth**risen
    notes: dict[int, dict[str, Any]] = {}
    if traits.curriculum is not None:
        at = int(traits.curriculum * n)
        harder = np.arange(n) >= at
        skill = skill - 1.3 * harder
        length = length * np.where(harder, 1.6, 1.0)
        notes[at] = {"text": "curriculum: level 2", "resets_baseline": True}
    warm_up = int(rng.integers(5, 30))
    lr = np.minimum(1.0, (step + 1) / warm_up) * (1.0 - 0.9 * progress * bool(rng.random() < 0.5))
    half = traits.entropy ** (risen / 2)
    ones, zeros = np.ones(n), np.zeros(n)
    return Course(
        traits=traits,
        step=step,
        attempt=attempt,
        seconds=seconds,
        skill=skill,
        topic=_topics(n, traits.order, rng),
        length=length,
        limit=_limit(traits),
        uncertain=rng.uniform(0.24, 0.34) * half,
        entropy=half,
        garbage=zeros.copy(),
        **_engine(traits.engine, n, rng),
        other_share=zeros.copy(),
        temperature=ones.copy(),
        top_p=ones.copy(),
        sequence_sd=zeros.copy(),
        weights_sd=rng.uniform(0.03, 0.06) * lr,
        sharper=0.0025 * lr,
        lag=np.minimum(np.arange(n), traits.lag),
        shows_versions=traits.view != "log",
        update_sd=rng.uniform(0.01, 0.03) * lr,
        grad=_gradients(traits, n, rng),
        lr=float(rng.choice([1e-6, 5e-7, 2e-6, 1e-5])) * lr,
        reference_kl=0.0005
        + traits.reference * progress ** rng.uniform(0.7, 1.3) * np.exp(0.05 * rng.standard_normal(n)),
        constant_reward=np.zeros(n, bool),
        broken=np.zeros(n, bool),
        evaluation=zeros.copy(),
        corruption=np.full(n, "", object),
        notes=notes,
    )


def _steps(traits: Traits, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return step, attempt and seconds since the row before; an attempt may repeat steps of the one before it."""
    n = traits.rows
    step, attempt = np.arange(n), np.zeros(n, int)
    seconds = rng.uniform(40, 90) * np.exp(0.1 * rng.standard_normal(n))
    for share, back in traits.restarts:
        at = int(share * n)
        step[at:] -= back
        attempt[at:] += 1
        seconds[at] = rng.uniform(600, 40_000)
    return step, attempt, seconds


def _topics(n: int, spread: float, rng: np.random.Generator) -> Array:
    """Return the difficulty of the prompts of each row: datasets are ordered, so neighbours are alike."""
    topic, memory = np.empty(n), 0.8
    now = spread * rng.standard_normal()
    for row in range(n):
        now = memory * now + spread * np.sqrt(1 - memory**2) * rng.standard_normal()
        topic[row] = now
    return topic


LENGTH_SPREAD = 0.55
SHORTEST, LONGEST = 60, 2000
MODEST = 1.3
"""Standard deviations of the logarithm of a length between the median and a limit that cuts one response in ten."""


def _limit(traits: Traits) -> int:
    """Return the limit of response lengths: it cuts the wanted share at first, a tenth at most of what has grown."""
    quantile = np.quantile(np.random.default_rng(0).standard_normal(20_000), 1 - traits.truncated)
    at_start = traits.length * np.exp(LENGTH_SPREAD * quantile)
    grown = traits.length * traits.growth * np.exp(LENGTH_SPREAD * MODEST)
    return int(np.clip(max(at_start, grown) if traits.growth > 1.2 else at_start, SHORTEST * 2, LONGEST))


def _engine(kind: EngineKind, n: int, rng: np.random.Generator) -> dict[str, Array]:
    level = {"dense": rng.uniform(0.02, 0.06), "moe": rng.uniform(0.03, 0.05), "fp8": rng.uniform(0.08, 0.14)}[kind]
    share = rng.uniform(0.3, 0.45) if kind == "moe" else 0.0
    return {
        "logit_sd": level * np.exp(0.1 * rng.standard_normal(n)),
        "flip_share": share * np.exp(0.08 * rng.standard_normal(n)),
        "flip_sd": np.full(n, 0.75),
    }


def _gradients(traits: Traits, n: int, rng: np.random.Generator) -> Array:
    spikes = np.where(rng.random(n) < traits.spikes, rng.uniform(5, 25, n), 1.0)
    return float(rng.uniform(0.05, 0.6)) * np.exp(0.2 * rng.standard_normal(n)) * spikes
