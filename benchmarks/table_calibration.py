"""Simulates runs and shows what a calibrated trm_auto keeps of healthy ones and rejects of drifts; prints Markdown.

PYTHONPATH=. python benchmarks/table_calibration.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.adaptation.calibration import calibrate
from trmon.domain.adaptation.proposal import PolicySample
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.statistics import columns

K3 = (0.0005, 0.002, 0.005)
LENGTHS = ((64, 64), (512, 512), (2048, 2048), (8192, 8192), (64, 8192))
"""The shortest and the longest response of a run."""
SEQUENCES, STEPS, UPDATES = 104, 20, 4
LATER_STEPS = 8
DEGREES_OF_FREEDOM = 8
"""Of Student's t: the noise of a logit has heavier tails than a normal one."""
SEQUENCE_SPREAD, STEP_SPREAD = 0.25, 0.08
"""Log-normal spreads of the scale of d between sequences, and between steps."""
STALENESS = 0.02
"""The scale of staleness for each update, and for each 20 steps of the run."""


@dataclass(frozen=True, slots=True)
class EngineNoise:
    """The mismatch of two engines: noise on a token's logit, so that certain tokens hardly differ."""

    scale: float
    shortest: int
    longest: int

    def batch(self, random: np.random.Generator, *, step: int, update: int, drift: float = 1.0) -> Columns:
        """Return the columns of one update; `drift` multiplies the noise, and with it small d."""
        lengths = self._lengths(random)
        shape = (SEQUENCES, int(lengths.max()))
        old = np.minimum(-random.gamma(0.35, 1.6, shape), -1e-7)
        logit = old - np.log(-np.expm1(old))
        spread = np.exp(random.normal(0, SEQUENCE_SPREAD, (SEQUENCES, 1)) + random.normal(0, STEP_SPREAD))
        noise = self.scale * drift * spread * random.standard_t(DEGREES_OF_FREEDOM, shape)
        moved = STALENESS * (update + step / 20) * random.normal(size=shape)
        given: dict[str, Any] = {
            "rollout_logprobs": -np.logaddexp(0.0, noise - logit),
            "old_logprobs": old,
            "logprobs": -np.logaddexp(0.0, -moved - logit),
            "mask": np.arange(shape[1]) < lengths[:, None],
        }
        return columns(**given)

    def _lengths(self, random: np.random.Generator) -> Any:
        """Return lengths that are log-uniform between the shortest and the longest."""
        low, high = np.log([self.shortest, self.longest])
        return np.rint(np.exp(random.uniform(low, high, SEQUENCES))).astype(int)


@dataclass(frozen=True, slots=True)
class Kept:
    """Shares of the sequences that policies keep; `rejected_10x`: of those with 10 times d."""

    trm: float
    trm_auto: float
    rejected_10x: float
    policy: Policy


def scale_of(k3: float) -> float:
    """Return the scale of noise whose mean k3 per token is a value, by bisection on one large sample."""
    low, high = 1e-3, 1.0
    for _ in range(12):
        middle = (low * high) ** 0.5
        noise = EngineNoise(middle, 512, 512)
        found = noise.batch(np.random.default_rng(1), step=0, update=0)
        mean = found["mismatch_sum_k3"].sum() / found["n_tokens"].sum()
        low, high = (middle, high) if mean < k3 else (low, middle)
    return low


def simulate(k3: float, lengths: tuple[int, int], *, seed: int = 0, later: int = LATER_STEPS) -> Kept:
    """Calibrate trm_auto on the last updates of 20 steps, and decide every update of later steps by it."""
    random = np.random.default_rng(seed)
    noise = EngineNoise(scale_of(k3), *lengths)
    asked = preset("trm_auto")
    last = (noise.batch(random, step=20 + step, update=UPDATES - 1) for step in range(STEPS))
    calibrated = calibrate([PolicySample.of(batch, asked) for batch in last], asked, findings=())
    assert calibrated is not None
    policy = calibrated.policy
    healthy = list(updates(noise, random, steps=range(40, 40 + later)))
    drifted = updates(noise, random, steps=range(40, 40 + later), drift=10.0)
    return Kept(
        trm=kept(healthy, preset("trm")),
        trm_auto=kept(healthy, policy),
        rejected_10x=1.0 - kept(drifted, policy),
        policy=policy,
    )


def updates(
    noise: EngineNoise, random: np.random.Generator, *, steps: Sequence[int], drift: float = 1.0
) -> Iterator[Columns]:
    """Yield one update of each step, the first, second, third and last in turn."""
    for step in steps:
        yield noise.batch(random, step=step, update=step % UPDATES, drift=drift)


def kept(batches: Any, policy: Policy) -> float:
    """Return the share of all sequences that a policy accepts."""
    accepted = [decide(batch, policy).accepted for batch in batches]
    return float(np.concatenate(accepted).mean())


def main() -> None:
    """Print the table of docs/policies.md."""
    print("| kl_k3 | response length | `trm` keeps | `trm_auto` keeps | 10 x d rejected | mean_k3 | max_abs_d |")
    print("|---|---|---|---|---|---|---|")
    for k3 in K3:
        for shortest, longest in LENGTHS:
            found = simulate(k3, (shortest, longest))
            length = f"{longest:,}" if shortest == longest else f"{shortest} to {longest:,}"
            bounds = {one.statistic: one.upper for one in found.policy.criteria if one.where == "kl_not_exact"}
            shares = " | ".join(f"{share:.1%}" for share in (found.trm, found.trm_auto, found.rejected_10x))
            print(f"| {k3:g} | {length} | {shares} | {bounds['mean_k3']:.3g} | {bounds['max_abs_d']:.3g} |", flush=True)


if __name__ == "__main__":
    main()
