"""The surface: where whatever goes wrong inside the client stops, counted, before it reaches the trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trmon_client.safety.losses import LossCounter, LossReason
from trmon_client.safety.warn_once import WarnOnce

T = TypeVar("T")


class ErrorGuard:
    """Runs the client's work for the trainer and never lets an Exception out; keeps what was lost and said."""

    def __init__(self) -> None:
        self.losses = LossCounter()
        self.notices = WarnOnce()

    def guard(self, work: Callable[[], T], *, otherwise: T) -> T:
        """Return what `work` returns, or `otherwise` where it fails."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001  the client's surface: the trainer goes on, whatever this is
            self.note(error)
            return otherwise

    def note(self, error: Exception) -> None:
        """Count a failure, and say it once."""
        self.losses.count(LossReason.INTERNAL)
        kind = type(error).__name__
        self.notices.say(f"failure {kind}", f"a call failed and was not reported: {kind}: {error}")
