"""What a session hands its messages to: the encoder, or another sender in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trmon_client.config.settings import ClientSettings
from trmon_client.core import wire
from trmon_client.process.ranks import Ranks
from trmon_client.safety.error_guard import ErrorGuard
from trmon_client.sending.queue import PendingMessage


class MessageSender(Protocol):
    """Takes the messages of a session; `begin_close` is called once, before `wait_closed`."""

    def start(self) -> None:
        """Get ready for messages."""

    def put(self, message: PendingMessage) -> bool:
        """Accept a message; False when it is lost."""

    def begin_close(self, timeout_seconds: float, *, last: PendingMessage | None = None) -> None:
        """Accept the last message, and begin to close."""

    def wait_closed(self) -> None:
        """Wait until the sender is closed, or its timeout is over."""


class MakeSender(Protocol):
    """Makes the sender of a session."""

    def __call__(
        self,
        settings: ClientSettings,
        ranks: Ranks,
        *,
        is_fork: bool,
        n_before: int,
        on_ack: Callable[[wire.Ack], None],
        error_guard: ErrorGuard,
    ) -> MessageSender:
        """Return a sender that has not started. Args: n_before: how many monitors of the run ended in this process."""
