"""Encoded messages that wait for the service, in memory or in the spool, and the thread that uploads them."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from trmon_client.config.settings import Limits
from trmon_client.core import wire
from trmon_client.error_guard import ErrorGuard, LossReason
from trmon_client.sending.spool import Spool, fitting_prefix
from trmon_client.sending.transport import HttpTransport, UploadOutcome, UploadResult


class RetryBuffer:
    """Keeps messages in order from `add` to `acknowledge`: the ones in flight, then the spool, then memory.

    Messages move from memory to the spool when memory is half full, and at once while `write_through` is on. It is
    thread-safe.
    """

    def __init__(self, spool: Spool, *, limits: Limits, error_guard: ErrorGuard) -> None:
        self._spool = spool
        self._limits = limits
        self._losses, self._warn_once = error_guard.losses, error_guard.warn_once
        self._changed = threading.Condition()
        self._memory: deque[bytes] = deque()
        self._memory_bytes = 0
        self._in_flight: list[bytes] = []
        self._is_in_flight_spooled = False
        self._write_through = False
        self._has_changed = False
        self._is_closed = False

    def open(self) -> None:
        """Adopt the spools that dead processes of this run left."""
        with self._changed:
            try:
                self._spool.adopt()
            except OSError as error:
                self._warn_once.warn("adopt", f"cannot read what earlier processes left in the spool ({error})")

    def add(self, message: bytes, *, is_last: bool = False) -> None:
        """Append a message; drop and count it only if neither memory nor the spool has room, and it is not the last."""
        with self._changed:
            self._memory.append(message)
            self._memory_bytes += len(message)
            if self._write_through or self._fills(0.5):
                self._move_to_spool()
            if self._fills(1.0) and not is_last:
                self._memory_bytes -= len(self._memory.pop())
                self._losses.count(LossReason.QUEUE_FULL)
            self._notify()

    def next_bundle(self, n_messages: int) -> list[bytes]:
        """Return the oldest messages, at most n: the same ones until they are acknowledged, and none after `close`."""
        with self._changed:
            if self._is_closed:
                return []
            if not self._in_flight:
                self._load_in_flight(n_messages)
            return self._in_flight[:n_messages]

    def acknowledge(self, n: int) -> None:
        """Remove the first n messages in flight."""
        with self._changed:
            if self._is_closed:
                return
            del self._in_flight[:n]
            if self._is_in_flight_spooled:
                self._spool.advance(n)

    def write_through(self, is_on: bool) -> None:
        """Turn on or off that every message goes to disk at once, as while the service is unreachable."""
        with self._changed:
            self._write_through = is_on
            if is_on and not self._is_closed:
                self._return_in_flight()
                self._move_to_spool()

    def close(self) -> None:
        """Write unacknowledged messages to disk; count those that cannot be written as losses."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._return_in_flight()
            self._move_to_spool()
            if self._memory:
                self._losses.count(LossReason.SPOOL_ERROR, len(self._memory))
                text = f"{len(self._memory)} messages are lost: the service did not take them, and the spool cannot"
                self._warn_once.warn("lost", text)
            self._spool.close()

    def wait(self, timeout_seconds: float) -> None:
        """Wait until a message is added or `wake` is called, also since the last wait, or until the timeout."""
        with self._changed:
            if not self._has_changed:
                self._changed.wait(timeout_seconds)
            self._has_changed = False

    def wake(self) -> None:
        """Make `wait` return."""
        with self._changed:
            self._notify()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send; messages that `close` wrote to disk are for another process."""
        with self._changed:
            return self._is_closed or (not (self._in_flight or self._memory) and self._spool.is_empty)

    @property
    def queued(self) -> int:
        """The number of messages in memory."""
        return len(self._memory) + (0 if self._is_in_flight_spooled else len(self._in_flight))

    @property
    def spooled_bytes(self) -> int:
        """The size of the messages on disk."""
        with self._changed:
            return self._spool.size_bytes

    def _load_in_flight(self, n_messages: int) -> None:
        size_bytes = self._limits.bundle_bytes
        self._in_flight = self._spool.peek(n_messages=n_messages, size_bytes=size_bytes)
        self._is_in_flight_spooled = bool(self._in_flight)
        if not self._in_flight:
            self._in_flight = fitting_prefix(self._memory, n_messages=n_messages, size_bytes=size_bytes)
            for message in self._in_flight:
                self._memory.popleft()
                self._memory_bytes -= len(message)

    def _fills(self, part: float) -> bool:
        return (
            len(self._memory) > part * self._limits.queue_reports
            or self._memory_bytes > part * self._limits.queue_bytes
        )

    def _notify(self) -> None:
        self._has_changed = True
        self._changed.notify_all()

    def _return_in_flight(self) -> None:
        if self._is_in_flight_spooled or not self._in_flight:
            return
        if not self._spool.is_empty:
            with suppress(OSError):
                self._spool.prepend(self._in_flight)
                self._in_flight = []
                return
            if not self._is_closed:
                return  # in flight they stay before what is spooled
        self._memory.extendleft(reversed(self._in_flight))
        self._memory_bytes += sum(map(len, self._in_flight))
        self._in_flight = []

    def _move_to_spool(self) -> None:
        try:
            while self._memory:
                self._spool.append(self._memory[0])
                self._memory_bytes -= len(self._memory.popleft())
        except (OSError, ValueError) as error:  # ValueError: a path that the file system does not accept
            reason = getattr(error, "strerror", None) or error
            hint = (
                f"training continues, {self._limits.queue_reports} messages can wait in memory, and others are lost "
                "and counted until there is space; or set TRMON_SPOOL_DIR to a folder that can be written"
            )
            self._warn_once.warn("spool", f"cannot write to the spool {self._spool.directory}: {reason}; {hint}")


DENIED_HINT = (
    "training continues, and reports wait in the spool; pass a token with the ingest scope of this project as token= "
    "or TRMON_TOKEN (see `trmon token`)"
)
UNREACHABLE_HINT = "training continues, reports wait in the spool and are sent when it answers"

_JITTER = random.Random()  # noqa: S311
"""Its own generator: a number drawn from the shared one would change what a seeded trainer draws next."""


class Uploader:
    """Sends messages oldest first, one request at a time; retries with growing, jittered pauses."""

    def __init__(
        self,
        retry_buffer: RetryBuffer,
        *,
        transport: HttpTransport,
        heartbeat: Callable[[], bytes],
        on_ack: Callable[[wire.Ack], None],
        limits: Limits,
        error_guard: ErrorGuard,
    ) -> None:
        self._retry_buffer = retry_buffer
        self._transport = transport
        self._heartbeat = heartbeat
        self._on_ack = on_ack
        self._limits = limits
        self._losses, self._warn_once = error_guard.losses, error_guard.warn_once
        self._n_failures = 0
        self._bundle_messages = limits.bundle_messages
        self._retry_at = 0.0
        self._heartbeat_at = time.monotonic() + limits.heartbeat_seconds
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trmon-uploader", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """Try once more at once, then stop; return when the thread has ended or after the timeout."""
        self._is_closing.set()
        self._retry_buffer.wake()
        self._thread.join(max(0.0, timeout_seconds))

    def _run(self) -> None:
        self._retry_buffer.open()
        while not self._is_closing.is_set():
            self._retry_buffer.wait(self._pause_seconds())
            if self._pause_seconds() <= 0 and not self._is_closing.is_set():
                self._send_next()
        n_failures = self._n_failures
        while not self._retry_buffer.is_empty and self._n_failures <= n_failures:
            self._send_next()
        self._transport.close()

    def _pause_seconds(self) -> float:
        due = self._heartbeat_at
        if not self._retry_buffer.is_empty:
            due = self._retry_at
        elif self._n_failures:
            due = max(due, self._retry_at)
        return max(0.0, due - time.monotonic())

    def _send_next(self) -> None:
        try:
            messages = self._retry_buffer.next_bundle(self._bundle_messages)
            extra = [self._heartbeat()] if time.monotonic() >= self._heartbeat_at else []
            if messages or extra:
                self._handle_result(self._transport.send([*messages, *extra]), messages)
        except Exception as error:  # noqa: BLE001  the edge of this loop: a defect must not end the thread
            if not isinstance(error, OSError):  # one means, for example, that there is no free file descriptor
                self._losses.count(LossReason.INTERNAL)
            self._fail(UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{type(error).__name__}: {error}"))

    def _handle_result(self, result: UploadResult, messages: Sequence[bytes]) -> None:
        if result.outcome is UploadOutcome.ANSWERED:
            self._succeed(result, len(messages))
        elif result.outcome is UploadOutcome.REFUSED:
            self._refuse(result, len(messages))
        else:
            self._fail(result)

    def _succeed(self, result: UploadResult, n_messages: int) -> None:
        if self._n_failures >= self._limits.failures_before_spool:
            self._warn_once.warn("again", "the service answers again; the spooled reports are being sent")
        self._n_failures = 0
        self._bundle_messages = self._limits.bundle_messages
        self._retry_buffer.acknowledge(n_messages)
        self._retry_buffer.write_through(False)
        if len(result.acks) > n_messages:
            self._heartbeat_at = time.monotonic() + self._limits.heartbeat_seconds
        for ack in result.acks:
            self._report_problem(ack)
            self._on_ack(ack)

    def _report_problem(self, ack: wire.Ack) -> None:
        if ack.status == "conflict":
            text = (
                f"the service has another report under the same step, update, rank and chunk: {ack.problem}; "
                "do two processes report for one rank (pass rank= and world_size=), or did an old step return?"
            )
            self._losses.count(LossReason.CONFLICT)
            self._losses.add_warning("repeated_chunk", text)
            self._warn_once.warn("conflict", text)
        elif ack.status == "invalid":
            self._losses.count(LossReason.REFUSED)
            self._warn_once.warn("refused", f"the service refused a message: {ack.problem}")

    def _refuse(self, result: UploadResult, n_messages: int) -> None:
        # One message can spoil a bundle: halve the bundle until the bad message is alone.
        if n_messages > 1:
            self._bundle_messages = n_messages // 2
            return
        self._losses.count(LossReason.REFUSED, n_messages)
        self._warn_once.warn("refused", f"the service refused a message: {result.detail}")
        self._retry_buffer.acknowledge(n_messages)
        self._heartbeat_at = time.monotonic() + self._limits.heartbeat_seconds

    def _fail(self, result: UploadResult) -> None:
        self._n_failures += 1
        # A denial lasts until someone fixes the token: keeping messages in memory gains nothing.
        if result.outcome is UploadOutcome.DENIED:
            self._warn_once.warn("denied", f"{result.detail}; {DENIED_HINT}")
            self._retry_buffer.write_through(True)
        elif self._n_failures >= self._limits.failures_before_spool or self._is_closing.is_set():
            self._warn_once.warn("away", f"the service cannot be reached ({result.detail}); {UNREACHABLE_HINT}")
            self._retry_buffer.write_through(True)
        longest = self._limits.retry_first_seconds * 2.0 ** min(self._n_failures - 1, 16)
        pause = min(longest, self._limits.retry_cap_seconds) * _JITTER.uniform(0.5, 1.0)
        self._retry_at = time.monotonic() + max(pause, result.retry_after_seconds)
