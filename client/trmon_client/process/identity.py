"""The data-parallel rank, the attempt and the launch that this process reports under."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

from trmon_client.config.settings import (
    ClientSettings,
    attempt_id,
    initialized_distributed,
    launch_id,
    rank_hint,
    restart_count,
)


@dataclass(frozen=True, slots=True)
class Ranks:
    """A data-parallel rank; unverified if the ranks may be other than data-parallel."""

    rank: int = 0
    world_size: int = 1
    is_unverified: bool = False


def discover_ranks(settings: ClientSettings) -> Ranks:
    """Return the ranks that were passed, else torch.distributed's, else the launcher's.

    Ranks count as data-parallel only in a process group without smaller groups, or for a single process: tensor,
    pipeline, context and expert parallelism all create groups, and so does a DeviceMesh of several dimensions.
    """
    if settings.rank is not None and settings.world_size is not None:
        return Ranks(settings.rank, settings.world_size)
    distributed = initialized_distributed()
    if distributed is not None:
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
        return Ranks(rank, world_size, _has_smaller_groups(distributed, world_size))
    rank, world_size = rank_hint(settings.launcher)
    return Ranks(rank, world_size, world_size > 1)


def _has_smaller_groups(distributed: Any, world_size: int) -> bool:
    # No public function lists the groups; without this attribute, ranks of several processes stay unverified.
    world = getattr(distributed.distributed_c10d, "_world", None)
    groups = getattr(world, "pg_group_ranks", None)
    if groups is None:
        return world_size > 1
    return any(1 < len(members) < world_size for members in groups.values())


STORE_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a message; an attempt that is local has not been agreed on by the ranks."""

    project: str
    run: str
    attempt: str
    launch: str
    ranks: Ranks
    is_attempt_local: bool = False

    def origin(self) -> dict[str, Any]:
        """Return the fields of `wire.Origin` for a message made now."""
        return {
            "project": self.project,
            "run": self.run,
            "attempt": self.attempt,
            "launch": self.launch,
            "rank": self.ranks.rank,
            "world_size": self.ranks.world_size,
            "sent_at": time.time(),
        }


def resolve_identity(
    settings: ClientSettings, ranks: Ranks, *, is_fork: bool, give_up: threading.Event, n_before: int = 0
) -> Identity:
    """Return the identity; read rank 0's start id from the process group's store if there is a group.

    The attempt is that of the settings, else the launcher's, else rank 0's start id, else local. A forked child gets a
    launch of its own: its numbering starts at 0 again, and two processes under one launch could not be distinguished.
    So does a monitor that follows `n_before` others of the run in this process; the ranks agree on its launch if
    all of them make as many monitors. Args: give_up: set when the monitor closes.
    """
    own_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    shared_id = None if is_fork else _start_id(settings, own_id, give_up)
    named = settings.attempt or attempt_id(settings.launcher)
    shared_launch = None if is_fork else shared_id or launch_id(settings.launcher)
    if shared_launch is not None and n_before:
        shared_launch = f"{shared_launch}-{n_before + 1}"
    return Identity(
        project=settings.project,
        run=settings.run,
        attempt=named or shared_id or own_id,
        launch=shared_launch or own_id,
        ranks=ranks,
        is_attempt_local=named is None and shared_id is None,
    )


def _start_id(settings: ClientSettings, own_id: str, give_up: threading.Event) -> str | None:
    distributed = initialized_distributed()
    if distributed is None:
        return None
    # torchrun keeps the store and its keys when it restarts the workers.
    key = f"trmon/start/{settings.project}/{settings.run}/{restart_count(settings.launcher)}"
    try:
        store = distributed.distributed_c10d._get_default_store()
        if distributed.get_rank() == 0 and not store.check([key]):
            store.set(key, own_id)
        return _poll(store, key, settings.limits.store_timeout_seconds, give_up)
    except (RuntimeError, AttributeError, ValueError):
        return None  # the store is gone, or this torch has none: the id stays local and is marked so


def _poll(store: Any, key: str, timeout_seconds: float, give_up: threading.Event) -> str | None:
    # A blocking wait would keep the trainer from using the store's connection.
    until = time.monotonic() + timeout_seconds
    while not store.check([key]):
        if time.monotonic() >= until or give_up.wait(STORE_POLL_SECONDS):
            return None
    return str(store.get(key).decode())
