"""The reports of a fleet of trainers: realistic, and cheap to encode so that the sender is not the bottleneck."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np

from trmon.domain.policies import DEFAULT_POLICY
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset
from trmon_client.core.statistics import columns

PROJECT = "load"
ATTEMPT, LAUNCH = "first", "launch-1"
CONTENTS = 8
"""Distinct batches whose columns the reports use in turn."""
MAX_TOKENS = 512
DRIFTING_SPREAD, HEALTHY_SPREAD = 0.6, 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Runs with a number of ranks, each of which sends one report per step; from `drift_from` on they drift.

    With `drift_steps` they drift for that many steps, are healthy for as many, and drift again.
    """

    first_run: int = 0
    n_runs: int = 1
    n_ranks: int = 4
    n_sequences: int = 64
    drift_from: int | None = None
    drift_steps: int | None = None

    def run(self, index: int) -> str:
        return f"run-{self.first_run + index:05d}"

    def report(self, index: int, *, step: int, rank: int) -> bytes:
        """Return the report of one rank and step of a run as MessagePack, as trmon's client encodes it."""
        template = _template(self.n_sequences, (step * self.n_ranks + rank + index) % CONTENTS, self._is_drifting(step))
        report = msgspec.structs.replace(
            template,
            project=PROJECT,
            run=self.run(index),
            step=step,
            rank=rank,
            world_size=self.n_ranks,
            sent_at=time.time(),
            finished=[wire.ChunkCount(step, None, 1)],
        )
        return wire.encode(report)

    def _is_drifting(self, step: int) -> bool:
        if self.drift_from is None or step < self.drift_from:
            return False
        return self.drift_steps is None or (step - self.drift_from) // self.drift_steps % 2 == 0

    def raw_bytes(self) -> int:
        """Return the size of the columns and histograms of one report in bytes."""
        made = _columns(self.n_sequences, 0, False)
        return sum(array.nbytes for array in (*made.values(), *made.histograms.values()))

    def lane(self, number: int, *, of: int, steps: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Yield the reports of one connection: run, step and rank; each (run, rank) stays on one connection.

        A connection sends step by step, as trainers do, so that no rank of a run gets far ahead of another.
        """
        pairs = [(run, rank) for rank in range(self.n_ranks) for run in range(self.n_runs)]
        mine = pairs[number::of]
        for step in steps if mine else ():
            yield from ((run, step, rank) for run, rank in mine)


@cache
def _template(n_sequences: int, seed: int, is_drifting: bool) -> wire.Report:
    made = _columns(n_sequences, seed, is_drifting)
    policy = preset(DEFAULT_POLICY)
    return wire.Report(
        attempt=ATTEMPT,
        launch=LAUNCH,
        step=0,
        parcel=wire.pack_columns(made),
        policy=policy.hash,
        accepted=wire.pack_bits(decide(made, policy).accepted),
        scalars={"lr": 1e-6, "grad_norm": 0.31, "loss": -0.02, "entropy": 0.4},
    )


@cache
def _columns(n_sequences: int, seed: int, is_drifting: bool) -> Columns:
    """Return columns of three policies with noise between them and a few outlier tokens."""
    random = np.random.default_rng(seed)
    shape = (n_sequences, MAX_TOKENS)
    spread = DRIFTING_SPREAD if is_drifting else HEALTHY_SPREAD
    rollout = -random.gamma(0.4, 0.8, shape)
    old = np.minimum(rollout + random.normal(0, spread, shape) * random.gamma(0.5, 2.0, shape), 0)
    new = np.minimum(old + random.normal(0, 0.02, shape), 0)
    lengths = random.integers(MAX_TOKENS // 4, MAX_TOKENS + 1, n_sequences)
    return columns(
        rollout_logprobs=rollout.astype(np.float32),
        old_logprobs=old.astype(np.float32),
        logprobs=new.astype(np.float32),
        mask=np.arange(MAX_TOKENS) < lengths[:, None],
        advantages=random.normal(size=n_sequences),
        rewards=random.integers(0, 2, n_sequences).astype(float),
        group_ids=np.arange(n_sequences) // 4,
    )
