"""Stop and count the client's failures before they reach the trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trmon_client.safety.losses import LossCounter, LossReason
from trmon_client.safety.warn_once import WarnOnce

T = TypeVar("T")


class ErrorGuard:
    """Runs the client's work for the trainer and lets no Exception out; holds the counted losses and the warnings."""

    def __init__(self) -> None:
        self.losses = LossCounter()
        self.warn_once = WarnOnce()

    def guard(self, work: Callable[[], T], *, otherwise: T) -> T:
        """Return the result of `work`, or `otherwise` if it fails."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001  the edge of the client: training goes on after any failure
            self.record(error)
            return otherwise

    def record(self, error: Exception) -> None:
        """Count a failure, and warn once."""
        self.losses.count(LossReason.INTERNAL)
        kind = type(error).__name__
        self.warn_once.warn(f"failure {kind}", f"a call failed and was not reported: {kind}: {error}")

    def warn_of_misuse(self, kind: str, text: str) -> None:
        """Say once on stderr, and on the run, that the trainer's calls contradict what the client expects."""
        self.losses.add_warning(kind, text)
        self.warn_once.warn(kind, text)
