"""The data-parallel rank, the attempt and the launch that this process reports under, and how it was started."""

from __future__ import annotations

import shlex
import socket
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trmon_client.config.run_config import sanitize
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


def launch_facts() -> dict[str, str]:
    """Return how this process was started: its command, its host, its Python, and the commit of its code in Git."""
    script, *arguments = sys.argv or [""]
    facts = {
        "command": shlex.join([Path(script).name, *arguments]),
        "host": socket.gethostname(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "git_commit": _git_commit(Path(script or ".").absolute().parent) or "",
    }
    return {name: sanitize(fact, at_most=MAX_FACT) for name, fact in facts.items() if fact}


MAX_FACT = 1000


def _git_commit(folder: Path) -> str | None:
    """Return the commit of the checkout that holds a folder, from its files: `git` may hang or be missing."""
    try:
        found = next((parent / ".git" for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
        if found is None:
            return None
        if found.is_file():  # of a worktree or a submodule
            found = found.parent / found.read_text().removeprefix("gitdir:").strip()
        head = (found / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name, shared = head[5:], found / "commondir"
        folders = [found, *([found / shared.read_text().strip()] if shared.exists() else [])]
        for one in folders:
            if (one / name).is_file():
                return (one / name).read_text().strip()
        packed = "\n".join((one / "packed-refs").read_text() for one in folders if (one / "packed-refs").is_file())
        return next((line[:40] for line in packed.splitlines() if line.endswith(f" {name}")), None)
    except (OSError, ValueError):
        return None


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
