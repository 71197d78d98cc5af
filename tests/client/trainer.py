"""Settings with short intervals, batches, and the spooled messages, for tests that act as a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trmon_client.config.settings import ClientSettings, Limits, resolve_settings
from trmon_client.core import wire
from trmon_client.core.wire.segments import SUFFIX, scan_segment

SHORT = {
    "heartbeat_seconds": 3600.0,
    "retry_first_seconds": 0.01,
    "retry_cap_seconds": 0.02,
    "connect_timeout_seconds": 0.5,
    # Long: a service that answers late has what it was sent, and would be sent it again.
    "read_timeout_seconds": 30.0,
    "exit_timeout_seconds": 30.0,
    "store_timeout_seconds": 0.2,
}


def settings(
    tmp_path: Path,
    *,
    url: str | None = None,
    environment: dict[str, str] | None = None,
    limits: dict[str, Any] | None = None,
    **given: Any,
) -> ClientSettings:
    """Return the settings of run math/grpo that spools below a test's own folder."""
    arguments = {"project": "math", "run": "grpo", "url": url, "spool_dir": tmp_path / "spool", **given}
    return resolve_settings(arguments, environment=environment or {}, limits=Limits(**{**SHORT, **(limits or {})}))


def batch(n: int = 4, *, far: tuple[int, ...] = (), dead: tuple[int, ...] = (), seed: int = 0) -> dict[str, Any]:
    """Return arguments of log_batch for n sequences of 6 tokens; rows `far` are off-policy, mu of `dead` is NaN."""
    random = np.random.default_rng(seed)
    mu = random.normal(-1.0, 0.1, (n, 6))
    pi = mu + random.normal(0.0, 1e-3, (n, 6))
    pi[list(far)] += 1.0
    mu[list(dead)] = np.nan
    return {"rollout_logprobs": mu, "logprobs": np.minimum(pi, -1e-3), "mask": np.ones((n, 6))}


def spooled(tmp_path: Path) -> list[Any]:
    """Return the messages on disk, oldest first."""
    segments = sorted((tmp_path / "spool").rglob(f"*{SUFFIX}"))
    return [wire.decode(message) for path in segments for message in scan_segment(path.read_bytes()).messages]


def steps(messages: list[Any]) -> list[int]:
    """Return the steps of the reports among messages."""
    return [message.step for message in messages if isinstance(message, wire.Report)]
