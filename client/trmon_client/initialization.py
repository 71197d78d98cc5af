"""Starts monitoring a run: `trmon.init`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trmon_client.config.settings import resolve_settings
from trmon_client.monitor import Monitor


def init(
    *,
    project: str | None = None,
    run: str | None = None,
    config: Mapping[str, Any] | object | None = None,
    owner: str | None = None,
    tags: Sequence[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    policy: str | Mapping[str, Any] | None = None,
    mode: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    attempt: str | None = None,
    spool_dir: str | Path | None = None,
    record_dir: str | Path | None = None,
    record_steps: int | None = None,
    record_texts: bool | None = None,
    compiled: bool | None = None,
) -> Monitor:
    """Return the monitor of a run; arguments that are None are read from their TRMON_ variables.

    Args: project, run: names, required. url, token: of the service; without a url, reports go to `spool_dir`.
        policy: a preset's name or a spec; default `trm_auto`. mode: observe (default), enforce or off; TRMON_MODE
        overrides.
        rank, world_size: data-parallel; required if the process group also has other kinds of ranks.
        record_dir: a folder for the tokens of the last `record_steps` steps (8), written when an incident opens and
        when the process ends; off by default. record_texts: also some of the `texts` of `log_batch`.
        compiled: reduce batches on a CUDA device with Triton, whose first calls compile; off by default. Batches
        elsewhere are reduced as without it.
        attempt: a name for this start of the trainer; default the launcher's. config: any values that describe the run.
    Errors: ValueError naming the argument and its variable; never for network failures.
    """
    given = {**locals()}
    return Monitor(resolve_settings(given, environment=os.environ))
