"""Add up the losses that clients report as counters since the start of each process."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from threading import Lock

from trmon.domain.model.identity import RunKey
from trmon_client.core import wire

MAX_SENDERS = 100_000
MAX_REASONS = 32
"""Clients name the reasons, and each becomes a label: further reasons count as `other`."""

LossSender = tuple[RunKey, str, int]
"""A run, a launch and its rank."""


class ClientLosses:
    """Keeps the latest counters of each sender; thread-safe."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._latest: OrderedDict[LossSender, dict[str, int]] = OrderedDict()
        self._lock = Lock()

    def increases(self, key: RunKey, message: wire.Message) -> Mapping[str, int]:
        """Return the increase of each reason since the sender's last message; never negative."""
        losses = getattr(message, "losses", None)
        if losses is None or not losses.dropped:
            return {}
        sender = (key, message.launch, message.rank)
        with self._lock:
            reported: Counter[str] = Counter()
            for reason, n in losses.dropped.items():
                reported[self._label(reason)] += n
            before = self._latest.pop(sender, {})
            latest = {reason: max(n, before.get(reason, 0)) for reason, n in reported.items()}
            self._latest[sender] = before | latest
            if len(self._latest) > MAX_SENDERS:
                self._latest.popitem(last=False)
        return +Counter({reason: n - before.get(reason, 0) for reason, n in latest.items()})

    def _label(self, reason: str) -> str:
        if reason not in self._reasons and len(self._reasons) >= MAX_REASONS:
            return "other"
        self._reasons.add(reason)
        return reason
