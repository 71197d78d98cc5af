"""The sender: the thread that builds and encodes what the trainer's thread leaves, and the courier behind it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trmon_client.config.settings import ClientSettings
from trmon_client.core import wire
from trmon_client.process.identity import Identity, resolve_identity
from trmon_client.process.ranks import Ranks
from trmon_client.safety.error_guard import ErrorGuard
from trmon_client.safety.losses import LossReason
from trmon_client.safety.warn_once import WarnOnce
from trmon_client.sending.queue import MessageQueue, PendingMessage
from trmon_client.sending.retry_buffer import RetryBuffer
from trmon_client.sending.spool import Spool
from trmon_client.sending.transport import HttpTransport, Transport
from trmon_client.sending.uploader import Uploader

SPILL_PART = 0.25
"""The part of the time of `close` that is kept for putting on disk what could not be sent."""

LONGEST_SECONDS = 1e8
"""What `close` waits at most: threads cannot wait for ever by a number."""


class Encoder:
    """Takes drafts without ever waiting, and gets them to the service or onto the disk by itself."""

    def __init__(
        self,
        settings: ClientSettings,
        ranks: Ranks,
        *,
        is_fork: bool,
        n_before: int,
        hear: Callable[[wire.Ack], None],
        error_guard: ErrorGuard,
    ) -> None:
        self._settings = settings
        self._ranks = ranks
        self._is_fork = is_fork
        self._n_before = n_before
        self._hear = hear
        self._losses = error_guard.losses
        self._notices = error_guard.notices
        self._outbox = MessageQueue(settings.limits)
        spool = Spool(_spool_directory(settings), limits=settings.limits, losses=error_guard.losses)
        self._retry_buffer = RetryBuffer(
            spool, limits=settings.limits, losses=error_guard.losses, notices=error_guard.notices
        )
        self._transport = _transport(settings, error_guard.notices)
        self._is_closing = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="trmon-sender", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, draft: PendingMessage) -> bool:
        """Leave a draft; False, counted, when there is no room."""
        is_taken = self._outbox.put(draft)
        if not is_taken:
            self._losses.count(LossReason.QUEUE_FULL)
        return is_taken

    def close(self, timeout_seconds: float, *, last: PendingMessage | None = None) -> None:
        """Send what waits and the last word, spool what cannot be sent; return when done or after the timeout."""
        timeout_seconds = min(max(0.0, timeout_seconds), LONGEST_SECONDS)
        self._deadline = time.monotonic() + timeout_seconds
        self._outbox.close(last)
        self._is_closing.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        identity = resolve_identity(
            self._settings,
            self._ranks,
            is_fork=self._is_fork,
            give_up=self._is_closing,
            n_before=self._n_before,
        )
        uploader = self._uploader(identity)
        self._retry_buffer.write_through(uploader is None)
        while (draft := self._outbox.take()) is not None:
            self._encode(draft, identity)
        if uploader is not None:
            left = self._deadline - time.monotonic()
            uploader.close(left - SPILL_PART * max(0.0, left))
        self._retry_buffer.close()

    def _encode(self, draft: PendingMessage, identity: Identity) -> None:
        try:
            self._retry_buffer.add(wire.encode(draft.build(identity, self._lost())))
        except Exception as error:  # noqa: BLE001  the edge of this loop: one bad draft must not end the thread
            self._losses.count(LossReason.UNENCODABLE)
            self._notices.say("unencodable", f"a message could not be built: {type(error).__name__}: {error}")

    def _lost(self) -> wire.Losses:
        return wire.Losses(
            dropped=self._losses.snapshot(),
            spooled_bytes=self._retry_buffer.spooled_bytes,
            queued=len(self._outbox) + self._retry_buffer.queued,
            refused_policies=self._losses.refused_policies(),
        )

    def _uploader(self, identity: Identity) -> Uploader | None:
        """Started; None where nothing can be sent."""
        if self._transport is None:
            return None
        uploader = Uploader(
            self._retry_buffer,
            transport=self._transport,
            heartbeat=lambda: wire.encode(wire.Heartbeat(**identity.origin(), losses=self._lost())),
            hear=self._hear,
            limits=self._settings.limits,
            losses=self._losses,
            notices=self._notices,
        )
        try:
            uploader.start()
        except RuntimeError as error:  # the system has no thread left
            self._notices.say("courier", f"nothing can be sent, reports stay in the spool: {error}")
            return None
        return uploader


def _transport(settings: ClientSettings, notices: WarnOnce) -> Transport | None:
    """Made in the trainer's thread: a fork while another thread imports or loads certificates may hang the child."""
    if settings.url is None:
        return None
    try:
        return HttpTransport(settings.url, token=settings.token, limits=settings.limits)
    except (ImportError, OSError, ValueError) as error:
        blamed = "the proxies (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) or certificates of the environment"
        notices.say("transport", f"nothing can be sent, reports stay in the spool; look at {blamed}: {error}")
        return None


def _spool_directory(settings: ClientSettings) -> Path:
    """A name that no other process has, sorted by start."""
    started = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return settings.run_spool_dir / f"{started}-{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
