"""The slots by which workers divide the runs, and who owns them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeAlias

SLOTS = 128
"""Processes lease slots rather than runs, so that the cost does not grow with the number of runs."""

_STRIDE = 79
"""Odd, and near 128 divided by the golden ratio: a process's share is spread evenly over the slots."""

Fences: TypeAlias = Mapping[int, int]
"""The slots that a process holds, each with its fencing token, which grows each time the slot is leased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHoldings:
    """The slots that a process holds, and the number of processes that share all slots."""

    fences: Fences
    n_workers: int

    @property
    def share(self) -> int:
        """The number of slots per process, rounded up."""
        return ceil(SLOTS / max(self.n_workers, 1))

    @property
    def missing(self) -> int:
        """How many more slots the process should lease once they are free."""
        return max(0, self.share - len(self.fences))

    @property
    def surplus(self) -> frozenset[int]:
        """The slots beyond its share, which the process should release: the last ones in spread order."""
        return frozenset(sorted(self.fences, key=spread_order)[self.share :])

    def without(self, slots: Collection[int]) -> SlotHoldings:
        """Return the holdings without some slots."""
        kept = {slot: fence for slot, fence in self.fences.items() if slot not in slots}
        return SlotHoldings(fences=kept, n_workers=self.n_workers)


def spread_order(slot: Any) -> Any:
    """Return the key by which slots, or a column of them, are taken: runs that start together have adjacent slots."""
    return slot * _STRIDE % SLOTS


def slot_of(run_id: int | None) -> int:
    """Return the slot of a run; work that belongs to no run is in the first slot."""
    return (run_id or 0) % SLOTS


def in_slots(run_ids: Collection[int], slots: Collection[int]) -> set[int]:
    """Return the runs that are in one of the slots."""
    return {run_id for run_id in run_ids if slot_of(run_id) in slots}


class Ownership:
    """The slots of runs that this worker owns: all, unless a subclass says otherwise."""

    def fences(self) -> Fences | None:
        """Return the slots that the worker holds, each with its fencing token; None if it owns all runs permanently."""
        return None

    def surplus(self) -> frozenset[int]:
        """Return the slots to release once no pass over their runs is in progress."""
        return frozenset()

    def release(self, slots: Collection[int]) -> None:
        """Release slots."""
