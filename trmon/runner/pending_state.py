"""What of a run waits to be closed, and from where a restart has to read again to know it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trmon.domain.batches.assembly import Assembly
from trmon.domain.batches.trainer_scalars import PendingScalars
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import StoredNotice
from trmon.domain.state.run_update import Frontier
from trmon_client.core import wire


@dataclass(slots=True)
class PendingState:
    """Open batches, scalars of steps to come, and which notices said that a rank has left."""

    assembly: Assembly = field(default_factory=Assembly)
    shelf: PendingScalars = field(default_factory=PendingScalars)
    _finish_ids: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def has_batches(self) -> bool:
        """Whether a batch is open."""
        return bool(self.assembly.batches)

    def heed(self, notice: StoredNotice) -> None:
        """Take up what a notice means for batches that are open or to come."""
        message = notice.message
        if isinstance(message, wire.Scalars):
            self.shelf.put(notice, step=message.step)
        elif isinstance(message, wire.Start):
            self.assembly.enter(notice.attempt_id, message.rank)
            self._finish_ids.pop((notice.attempt_id, message.rank), None)
        elif isinstance(message, wire.Finish):
            self.assembly.leave(notice.attempt_id, message)
            self._finish_ids[notice.attempt_id, message.rank] = notice.id

    def forget_scalars(self, folded: BatchKey) -> None:
        """Drop the scalars of steps before the newest that was folded."""
        self.shelf.forget_before(folded, keeping=self._open_attempts())

    def settled(self, read: Frontier) -> Frontier:
        """Return how far a restart need not read reports again: up to the oldest one of an open batch."""
        oldest = self.assembly.oldest_report_id()
        return read if oldest is None else replace(read, report_id=oldest - 1)

    def recall_from(self, read: Frontier, *, newest: BatchKey | None) -> int:
        """Return the notice after which a restart reads again: scalars still wait in it, or a rank has left by it."""
        attempts = self._open_attempts() | ({newest.attempt_id} if newest else set())
        ids = [id_ for (attempt_id, _), id_ in self._finish_ids.items() if attempt_id in attempts]
        waiting = self.shelf.oldest_id()
        return min([*ids, *([] if waiting is None else [waiting]), read.notice_id + 1]) - 1

    def _open_attempts(self) -> set[int]:
        return {key.attempt_id for key in self.assembly.batches}
