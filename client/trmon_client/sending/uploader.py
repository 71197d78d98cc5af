"""The thread that uploads the retry buffer to the service and handles the answers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from trmon_client.config.limits import Limits
from trmon_client.core import wire
from trmon_client.safety.losses import LossCounter, LossReason
from trmon_client.safety.warn_once import WarnOnce
from trmon_client.sending.retry_buffer import RetryBuffer
from trmon_client.sending.transport import Transport, UploadOutcome, UploadResult

DENIED_HINT = "pass a token with the ingest scope of this project as token= or TRMON_TOKEN (see `trmon token`)"
UNREACHABLE_HINT = "training continues, reports wait in the spool and are sent when it answers"

_JITTER = random.Random()  # noqa: S311
"""Its own generator: a number drawn from the shared one would change what a seeded trainer draws next."""


class Uploader:
    """Sends messages oldest first, one request at a time; retries with growing, jittered pauses."""

    def __init__(
        self,
        retry_buffer: RetryBuffer,
        *,
        transport: Transport,
        heartbeat: Callable[[], bytes],
        on_ack: Callable[[wire.Ack], None],
        limits: Limits,
        losses: LossCounter,
        warn_once: WarnOnce,
    ) -> None:
        self._retry_buffer = retry_buffer
        self._transport = transport
        self._heartbeat = heartbeat
        self._on_ack = on_ack
        self._limits = limits
        self._losses = losses
        self._warn_once = warn_once
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
        except OSError as error:  # for example, the process has no free file descriptor
            self._fail(UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{type(error).__name__}: {error}"))
        except Exception as error:  # noqa: BLE001  the edge of this loop: a defect must not end the thread
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
