"""One pass over a lake: move what can move, delete what is to go, and merge small files once a day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trmon.store.lake.lake_mover import LakeMover, MovedBatch
from trmon.store.lake.moved_rows import MovedRows

COMPACTION_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePass:
    """What a pass did: the lake batches that moved, and how many rows, runs and files it deleted or merged."""

    batches: tuple[MovedBatch, ...]
    deleted_rows: int
    deleted_runs: int
    merged_files: int


class Lake:
    """The lake of a database, for the process that moves attempts to it."""

    def __init__(self, mover: LakeMover, moved_rows: MovedRows) -> None:
        self.mover = mover
        self._moved_rows = moved_rows
        self._compacted_at: float | None = None

    def run_pass(
        self, *, now: float, after_seconds: float, may_continue: Callable[[], bool] = lambda: True
    ) -> LakePass:
        """Move all attempts that can move and delete their rows; run again after an error, nothing is lost.

        Args: now: seconds on the server's clock; after_seconds: how long a run must have been idle; may_continue:
        called between steps.
        Errors: NotReady if the lake cannot be read or written, or has other rows than the database.
        """
        moved: list[MovedBatch] = []
        n_rows = 0
        while may_continue() and (batch := self.mover.move_next(now=now, after_seconds=after_seconds)) is not None:
            moved.append(batch)
            n_rows += self._moved_rows.delete(may_continue=may_continue)
        # What an earlier pass moved and did not delete, since it was stopped.
        n_rows += self._moved_rows.delete(may_continue=may_continue)
        n_runs = self.mover.delete_runs(now=now) if may_continue() else 0
        n_files = 0
        if may_continue() and (self._compacted_at is None or now - self._compacted_at >= COMPACTION_SECONDS):
            n_files = self.mover.compact(now=now)
            self._compacted_at = now
        return LakePass(batches=tuple(moved), deleted_rows=n_rows, deleted_runs=n_runs, merged_files=n_files)
