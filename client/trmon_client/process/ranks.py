"""Which data-parallel rank this process is, without a collective and without importing torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from trmon_client.config.launcher import rank_hint
from trmon_client.config.settings import ClientSettings


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


def initialized_distributed() -> Any | None:
    """Return torch.distributed if the trainer has imported and initialised it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _has_smaller_groups(distributed: Any, world_size: int) -> bool:
    # No public function lists the groups; without this attribute, ranks of several processes stay unverified.
    world = getattr(distributed.distributed_c10d, "_world", None)
    groups = getattr(world, "pg_group_ranks", None)
    if groups is None:
        return world_size > 1
    return any(1 < len(members) < world_size for members in groups.values())
