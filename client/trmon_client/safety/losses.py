"""What the client lost, by reason: reported in-band, so that a gap in a run explains itself."""

from __future__ import annotations

import threading
from collections import Counter
from enum import Enum


class LossReason(str, Enum):
    """Why something the trainer logged will not arrive."""

    QUEUE_FULL = "queue_full"
    """Reports came faster than they could be written down, and the spool could not take them either."""
    SPOOL_FULL = "spool_full"
    """The oldest spooled messages made room for newer ones."""
    SPOOL_ERROR = "spool_error"
    """The process ended with messages that the spool could not take."""
    DAMAGED = "damaged"
    """A spooled record was torn or failed its checksum."""
    UNREAD = "unread"
    """A spooled segment is of another version; it stays on disk for one that can read it."""
    REFUSED = "refused"
    """The service answered that the message is invalid."""
    CONFLICT = "conflict"
    """The service holds another payload under the same identity."""
    UNENCODABLE = "unencodable"
    """A message could not be built or encoded."""
    SCALAR = "scalar"
    """A scalar is not a number, has no usable name or is one too many."""
    INTERNAL = "internal"
    """A call of the trainer failed inside the client; it got a neutral answer."""


MAX_REFUSED_POLICIES = 16


class LossCounter:
    """Counts losses by reason since the start of the process, from any thread, and keeps refused policies."""

    def __init__(self) -> None:
        # Of a thread's own, whose signal handlers may count too.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._refused: dict[str, str] = {}

    def count(self, loss: LossReason, n: int = 1) -> None:
        """Add n losses."""
        with self._lock:
            self._counts[loss.value] += n

    def snapshot(self) -> dict[str, int]:
        """Return the counts so far, by reason; reasons that never occurred are absent."""
        with self._lock:
            return dict(self._counts)

    def refuse(self, policy_hash: str, why: str) -> None:
        """Note why a policy of the service's was not taken; the first MAX_REFUSED_POLICIES are kept."""
        with self._lock:
            if len(self._refused) < MAX_REFUSED_POLICIES:
                self._refused.setdefault(policy_hash, why)

    def refused_policies(self) -> dict[str, str]:
        """Return why each refused policy was not taken, by its hash."""
        with self._lock:
            return dict(self._refused)
