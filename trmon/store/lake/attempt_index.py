"""The keys of an attempt's batches in the lake, so that a read of some batches knows which rows it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.store.rows.batch_selection import BatchSelection, StepUpdates


@dataclass(frozen=True, slots=True, eq=False)
class AttemptIndex:
    """The steps, updates (-1: the whole rollout batch) and ordinals of an attempt, int64 [batches], by step."""

    steps: Any
    updates: Any
    ordinals: Any

    @classmethod
    def of(cls, *, steps: Any, updates: Any, ordinals: Any) -> AttemptIndex:
        """Return the index of batches in any order."""
        order = np.lexsort((updates, steps))
        return cls(steps[order], updates[order], ordinals[order])

    @property
    def n_bytes(self) -> int:
        """Its size in memory."""
        return int(self.steps.nbytes + self.updates.nbytes + self.ordinals.nbytes)

    def newest_steps(self, *, from_step: int | None, to_step: int | None, limit: int) -> list[StepUpdates]:
        """Return the newest steps in a range, both ends included, newest first."""
        first = 0 if from_step is None else np.searchsorted(self.steps, from_step, "left")
        last = len(self.steps) if to_step is None else np.searchsorted(self.steps, to_step, "right")
        steps, starts = np.unique(self.steps[first:last], return_index=True)
        ends = np.append(starts[1:], max(0, last - first))[: len(starts)] - 1
        newest = slice(max(0, len(steps) - limit), None)
        updates = self.updates[first:last]
        found = zip(
            steps[newest].tolist(),
            updates[starts[newest]].tolist(),
            updates[ends[newest]].tolist(),
            strict=True,
        )
        return [StepUpdates(step, _update(least), _update(most)) for step, least, most in found][::-1]

    def selected(self, selection: BatchSelection) -> Any:
        """Return the places of the batches of a selection, in its order."""
        wanted = np.ones(len(self.steps), bool)
        if selection.step is not None:
            wanted &= self.steps == selection.step
        if selection.after is not None:
            wanted &= self.ordinals > selection.after
        if selection.before is not None:
            wanted &= self.ordinals < selection.before
        places = np.flatnonzero(wanted)
        places = places[np.argsort(self.ordinals[places])]
        return (places[::-1] if selection.newest_first else places)[: selection.limit]


def _update(stored: int) -> int | None:
    return None if stored < 0 else stored
