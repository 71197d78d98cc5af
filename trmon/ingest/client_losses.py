"""What clients say they lost: counters since the start of each process, added up as they grow."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from threading import Lock

from trmon.domain.model.identity import RunKey
from trmon_client.core import wire

MAX_SENDERS = 100_000
MAX_REASONS = 32
"""Reasons are the clients' words and become labels: later ones count as `other`."""

Sender = tuple[RunKey, str, int]
"""A run, a launch and its rank."""


class ClientLosses:
    """The newest counters of each sender; may be called from any thread."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._newest: OrderedDict[Sender, dict[str, int]] = OrderedDict()
        self._lock = Lock()

    def grown(self, key: RunKey, message: wire.Message) -> Mapping[str, int]:
        """Return how much each reason grew since the sender's last message; never less than nothing."""
        losses = getattr(message, "losses", None)
        if losses is None or not losses.dropped:
            return {}
        sender = (key, message.launch, message.rank)
        with self._lock:
            said: Counter[str] = Counter()
            for reason, n in losses.dropped.items():
                said[self._known(reason)] += n
            before = self._newest.pop(sender, {})
            newest = {reason: max(n, before.get(reason, 0)) for reason, n in said.items()}
            self._newest[sender] = before | newest
            if len(self._newest) > MAX_SENDERS:
                self._newest.popitem(last=False)
        return +Counter({reason: n - before.get(reason, 0) for reason, n in newest.items()})

    def _known(self, reason: str) -> str:
        if reason not in self._reasons and len(self._reasons) >= MAX_REASONS:
            return "other"
        self._reasons.add(reason)
        return reason
