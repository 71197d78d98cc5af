"""The open batches and unplaced scalars of a run, and from where a restart reads again to restore them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trmon.domain.batches.assembly import Assembly
from trmon.domain.batches.scalar_steps import PendingScalars
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import StoredNotice
from trmon.domain.state.run_update import Frontier
from trmon_client.core import wire


@dataclass(slots=True)
class PendingState:
    """Open batches, scalars of steps to come, and the notices in which ranks finished."""

    assembly: Assembly = field(default_factory=Assembly)
    scalars: PendingScalars = field(default_factory=PendingScalars)
    _finish_ids: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def has_batches(self) -> bool:
        """Whether a batch is open."""
        return bool(self.assembly.batches)

    def apply_notice(self, notice: StoredNotice) -> None:
        """Apply a notice to the batches that are open or to come."""
        message = notice.message
        if isinstance(message, wire.Scalars):
            self.scalars.add(notice, step=message.step)
        elif isinstance(message, wire.Start):
            self.assembly.rank_started(notice.attempt_id, message.rank)
            self._finish_ids.pop((notice.attempt_id, message.rank), None)
        elif isinstance(message, wire.Finish):
            self.assembly.rank_ended(notice.attempt_id, message)
            self._finish_ids[notice.attempt_id, message.rank] = notice.id

    def forget_scalars(self, folded: BatchKey) -> None:
        """Drop the scalars of steps before the newest folded batch."""
        self.scalars.forget_before(folded, keeping=self._open_attempts())

    def restart_frontier(self, read: Frontier) -> Frontier:
        """Return the frontier from which a restart reads reports: before the oldest report of an open batch."""
        oldest = self.assembly.oldest_report_id()
        return read if oldest is None else replace(read, report_id=oldest - 1)

    def reread_notices_after(self, read: Frontier, *, newest: BatchKey | None) -> int:
        """Return the notice id after which a restart reads notices again: before pending scalars and finished ranks."""
        attempts = self._open_attempts() | ({newest.attempt_id} if newest else set())
        ids = [id_ for (attempt_id, _), id_ in self._finish_ids.items() if attempt_id in attempts]
        oldest = self.scalars.oldest_id()
        return min([*ids, *([] if oldest is None else [oldest]), read.notice_id + 1]) - 1

    def _open_attempts(self) -> set[int]:
        return {key.attempt_id for key in self.assembly.batches}
