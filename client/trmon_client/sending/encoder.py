"""The queue that the trainer fills, and the encoder's thread, which builds messages and starts the uploader."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from trmon_client.config.settings import ClientSettings, Limits
from trmon_client.core import wire
from trmon_client.error_guard import ErrorGuard, LossReason, WarnOnce
from trmon_client.process.identity import Identity, Ranks, resolve_identity
from trmon_client.sending.spool import Spool
from trmon_client.sending.transport import HttpTransport
from trmon_client.sending.uploader import RetryBuffer, Uploader


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that is built off the trainer's thread, from the process' identity and the losses so far.

    `size_bytes` is the approximate memory that it holds until then.
    """

    build: Callable[[Identity, wire.Losses], wire.Message]
    size_bytes: int = 512


class MessageQueue:
    """A bounded queue of one reader, whose `put` never waits.

    `put` and `close` may be called by several threads, and by a signal handler in the middle of either.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # It wakes the reader in 6 us where a Condition takes 16.
        self._messages: SimpleQueue[PendingMessage | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._n_put = self._put_bytes = 0
        # Written by the reader alone, which need not wait for the lock.
        self._n_read = self._read_bytes = 0
        self._is_closed = False
        self._is_read_out = False

    def put(self, message: PendingMessage) -> bool:
        """Append a message; False when there is no room or the queue is closed."""
        with self._lock:
            is_full = (
                len(self) >= self._limits.queue_reports
                or self._put_bytes - self._read_bytes + message.size_bytes > self._limits.queue_bytes
            )
            if self._is_closed or is_full:
                return False
            self._append(message)
            return True

    def get(self) -> PendingMessage | None:
        """Wait for the oldest message and return it; None when the queue is closed and empty."""
        message = None if self._is_read_out else self._messages.get()
        if message is None:
            self._is_read_out = True
            return None
        self._n_read += 1
        self._read_bytes += message.size_bytes
        return message

    def close(self, last: PendingMessage | None = None) -> None:
        """Accept only this last message, even without room, and no more; `get` still returns what is queued."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if last is not None:
                self._append(last)
            self._messages.put(None)

    def __len__(self) -> int:
        return self._n_put - self._n_read

    def _append(self, message: PendingMessage) -> None:
        self._n_put += 1
        self._put_bytes += message.size_bytes
        self._messages.put(message)


SPOOL_TIME_PART = 0.25
"""The part of the timeout of `close` that is reserved for writing unsent messages to disk."""

LONGEST_SECONDS = 1e8
"""The maximum timeout of `close`: a thread cannot wait for an infinite number of seconds."""


class Encoder:
    """Accepts messages without waiting, and brings them to the service or to disk in its own threads."""

    def __init__(
        self,
        settings: ClientSettings,
        ranks: Ranks,
        *,
        is_fork: bool,
        n_before: int,
        on_ack: Callable[[wire.Ack], None],
        error_guard: ErrorGuard,
    ) -> None:
        self._settings = settings
        self._ranks = ranks
        self._is_fork = is_fork
        self._n_before = n_before
        self._on_ack = on_ack
        self._error_guard = error_guard
        self._losses, self._warn_once = error_guard.losses, error_guard.warn_once
        self._queue = MessageQueue(settings.limits)
        spool = Spool(_spool_directory(settings), limits=settings.limits, losses=error_guard.losses)
        self._retry_buffer = RetryBuffer(spool, limits=settings.limits, error_guard=error_guard)
        self._transport = _transport(settings, error_guard.warn_once)
        self._is_closing = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="trmon-encoder", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, message: PendingMessage) -> bool:
        """Queue a message; False when there is no room, which is counted."""
        is_accepted = self._queue.put(message)
        if not is_accepted:
            self._losses.count(LossReason.QUEUE_FULL)
        return is_accepted

    def begin_close(self, timeout_seconds: float, *, last: PendingMessage | None = None) -> None:
        """Begin to send queued messages and the last one, and to spool the rest."""
        self._deadline = time.monotonic() + min(max(0.0, timeout_seconds), LONGEST_SECONDS)
        self._queue.close(last)
        self._is_closing.set()

    def wait_closed(self) -> None:
        """Return when all is sent or spooled, or after the timeout of `begin_close`."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))

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
        while (message := self._queue.get()) is not None:
            self._encode(message, identity)
        if uploader is not None:
            left = self._deadline - time.monotonic()
            uploader.close(left - SPOOL_TIME_PART * max(0.0, left))
        self._retry_buffer.close()
        if self._settings.url is not None and self._retry_buffer.spooled_bytes:
            folder = self._settings.run_spool_dir
            self._warn_once.warn("unsent", f"reports wait in {folder}: `trmon ingest {folder}` sends them")

    def _encode(self, message: PendingMessage, identity: Identity) -> None:
        try:
            built = message.build(identity, self._current_losses())
            # The last message reports the losses: space is reserved for it.
            self._retry_buffer.add(wire.encode(wire.with_safe_texts(built)), is_last=isinstance(built, wire.Finish))
        except Exception as error:  # noqa: BLE001  the edge of this loop: one bad message must not end the thread
            self._losses.count(LossReason.UNENCODABLE)
            self._warn_once.warn("unencodable", f"a message could not be built: {type(error).__name__}: {error}")

    def _current_losses(self) -> wire.Losses:
        return wire.Losses(
            dropped=self._losses.snapshot(),
            spooled_bytes=self._retry_buffer.spooled_bytes,
            queued=len(self._queue) + self._retry_buffer.queued,
            refused_policies=self._losses.refused_policies(),
            warnings=self._losses.warnings(),
        )

    def _uploader(self, identity: Identity) -> Uploader | None:
        """Return the started uploader; None if nothing can be sent."""
        if self._transport is None:
            return None
        uploader = Uploader(
            self._retry_buffer,
            transport=self._transport,
            heartbeat=lambda: wire.encode(
                wire.with_safe_texts(wire.Heartbeat(**identity.origin(), losses=self._current_losses()))
            ),
            on_ack=self._on_ack,
            limits=self._settings.limits,
            error_guard=self._error_guard,
        )
        try:
            uploader.start()
        except RuntimeError as error:  # the system cannot start another thread
            self._warn_once.warn("uploader", f"nothing can be sent, reports stay in the spool: {error}")
            return None
        return uploader


def _transport(settings: ClientSettings, warn_once: WarnOnce) -> HttpTransport | None:
    """Return the transport, made in the trainer's thread: imports or certificates loaded by another may hang a fork."""
    if settings.url is None:
        return None
    try:
        return HttpTransport(settings.url, token=settings.token, limits=settings.limits)
    except (ImportError, OSError, ValueError) as error:
        suspects = "the proxies (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) or certificates of the environment"
        warn_once.warn("transport", f"nothing can be sent, reports stay in the spool; check {suspects}: {error}")
        return None


def _spool_directory(settings: ClientSettings) -> Path:
    """Return a directory that no other process uses; names sort by start time."""
    started = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return settings.run_spool_dir / f"{started}-{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
