"""Leases: which process may write what becomes of which runs, when several share the work."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

SLOTS = 128
"""Runs are leased by the slot, so that ten thousand runs cost no more to hold than ten."""

Fences: TypeAlias = Mapping[int, int]
"""The slots that a process holds, each with its fence: a number that grows whenever the slot is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHoldings:
    """What a process holds, and among how many processes the slots are shared."""

    fences: Fences
    n_workers: int

    @property
    def share(self) -> int:
        """How many slots are its own, if all take as many."""
        return ceil(SLOTS / max(self.n_workers, 1))

    @property
    def missing(self) -> int:
        """How many more slots it should take, once they are free."""
        return max(0, self.share - len(self.fences))

    @property
    def surplus(self) -> frozenset[int]:
        """Slots that it should give up, so that the others get theirs: the largest ones."""
        return frozenset(sorted(self.fences)[self.share :])

    def without(self, slots: Collection[int]) -> SlotHoldings:
        """Return the same without some slots."""
        kept = {slot: fence for slot, fence in self.fences.items() if slot not in slots}
        return SlotHoldings(fences=kept, n_workers=self.n_workers)


def slot_of(run_id: int | None) -> int:
    """Return the slot of a run; what belongs to none is in the first."""
    return (run_id or 0) % SLOTS


def in_slots(run_ids: Collection[int], slots: Collection[int]) -> set[int]:
    """Return those runs that are in any of the slots."""
    return {run_id for run_id in run_ids if slot_of(run_id) in slots}
