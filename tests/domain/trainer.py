"""Reports of a trainer for tests, with real columns and decisions, healthy or with a fault."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np

from trmon.domain.identity import BatchKey, ReportKey
from trmon.domain.messages import StoredReport
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.statistics import columns

Health = Literal["healthy", "corrupt", "noisy"]

POLICY = preset("trm")


@cache
def made(health: Health = "healthy", *, n: int = 8, length: int = 32, seed: int = 0) -> Columns:
    """Return the columns of a batch: engines that agree; padded log-probs; or engines that differ by noise."""
    rng = np.random.default_rng(seed)
    old = -rng.gamma(0.5, 0.8, (n, length))
    rollout = np.minimum(old + rng.normal(0, 1.5 if health == "noisy" else 1e-4, (n, length)), 0.0)
    if health == "corrupt":
        rollout[:, ::4] = 0.0
        old[:, ::4] = -12.0
    return columns(
        rollout_logprobs=rollout,
        old_logprobs=old,
        logprobs=np.minimum(old + rng.normal(0, 1e-4, (n, length)), 0.0),
        mask=np.ones((n, length), bool),
        advantages=rng.normal(size=n),
        rewards=rng.random(n),
        truncated=np.zeros(n, bool),
    )


def report(step: int, *, health: Health = "healthy", policy: Policy | None = POLICY, **fields: Any) -> wire.Report:
    """Return a report as a client sends it; `chunk`, `rank`, `finished` and others by name."""
    content = fields.pop("content", None) or made(health, seed=fields.get("rank", 0))
    given: dict[str, Any] = {
        "attempt": "a",
        "launch": "launch-1",
        "sent_at": 1000.0 + 10.0 * step,
        "parcel": wire.pack_columns(content),
        "policy": policy.hash if policy else None,
        "accepted": wire.pack_bits(decide(content, policy).accepted) if policy else None,
    }
    return wire.Report(step=step, **{**given, **fields})


def finished(*places: tuple[int, int | None, int]) -> list[wire.ChunkCount]:
    """Return chunk counts from (step, update, chunks)."""
    return [wire.ChunkCount(*place) for place in places]


def stored(message: wire.Report, *, id_: int, at: float = 0.0, attempt_id: int = 1) -> StoredReport:
    """Return a report as the log returns it."""
    content = wire.unpack_columns(message)
    standing = message.accepted or wire.pack_bits(np.ones(content.n_sequences, bool))
    return StoredReport(
        id=id_,
        run_id=1,
        key=ReportKey(BatchKey(attempt_id, message.step, message.update), message.rank, message.chunk),
        received_at=at,
        accepted=standing,
        n_sequences=content.n_sequences,
        n_tokens=int(content["n_tokens"].sum()),
        report=message,
        columns=lambda: content,
    )
