"""The courier: the thread that carries the backlog to the service and hears its answers."""

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

DENIED_ADVICE = "give a token that may ingest into this project as token= or TRMON_TOKEN (see `trmon token`)"
AWAY_ADVICE = "training goes on, reports wait in the spool and are sent when it answers"


class Uploader:
    """Sends what waits, oldest first, one request at a time; retries with growing, jittered pauses."""

    def __init__(
        self,
        retry_buffer: RetryBuffer,
        *,
        transport: Transport,
        heartbeat: Callable[[], bytes],
        hear: Callable[[wire.Ack], None],
        limits: Limits,
        losses: LossCounter,
        notices: WarnOnce,
    ) -> None:
        self._retry_buffer = retry_buffer
        self._transport = transport
        self._heartbeat = heartbeat
        self._hear = hear
        self._limits = limits
        self._losses = losses
        self._notices = notices
        self._n_failures = 0
        self._bundle_messages = limits.bundle_messages
        self._retry_at = 0.0
        self._heartbeat_at = time.monotonic() + limits.heartbeat_seconds
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trmon-courier", daemon=True)

    def start(self) -> None:
        """Begin to carry."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """Try once more at once, then stop; return when stopped or after the timeout."""
        self._is_closing.set()
        self._retry_buffer.wake()
        self._thread.join(max(0.0, timeout_seconds))

    def _run(self) -> None:
        self._retry_buffer.open()
        while not self._is_closing.is_set():
            self._retry_buffer.wait(self._pause_seconds())
            if self._pause_seconds() <= 0 and not self._is_closing.is_set():
                self._turn()
        n_failures = self._n_failures
        while not self._retry_buffer.is_empty and self._n_failures <= n_failures:
            self._turn()
        self._transport.close()

    def _pause_seconds(self) -> float:
        due = self._heartbeat_at
        if not self._retry_buffer.is_empty:
            due = self._retry_at
        elif self._n_failures:
            due = max(due, self._retry_at)
        return max(0.0, due - time.monotonic())

    def _turn(self) -> None:
        try:
            messages = self._retry_buffer.take(self._bundle_messages)
            extra = [self._heartbeat()] if time.monotonic() >= self._heartbeat_at else []
            if messages or extra:
                self._settle(self._transport.send([*messages, *extra]), messages)
        except OSError as error:  # no file can be opened now
            self._fail(UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{type(error).__name__}: {error}"))
        except Exception as error:  # noqa: BLE001  the edge of this loop: a defect must not end the thread
            self._losses.count(LossReason.INTERNAL)
            self._fail(UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{type(error).__name__}: {error}"))

    def _settle(self, reply: UploadResult, messages: Sequence[bytes]) -> None:
        if reply.outcome is UploadOutcome.ANSWERED:
            self._succeed(reply, len(messages))
        elif reply.outcome is UploadOutcome.REFUSED:
            self._refuse(reply, len(messages))
        else:
            self._fail(reply)

    def _succeed(self, reply: UploadResult, n_messages: int) -> None:
        if self._n_failures >= self._limits.failures_before_spool:
            self._notices.say("again", "the service answers again; what waited in the spool is being sent")
        self._n_failures = 0
        self._bundle_messages = self._limits.bundle_messages
        self._retry_buffer.acknowledge(n_messages)
        self._retry_buffer.write_through(False)
        if len(reply.acks) > n_messages:
            self._heartbeat_at = time.monotonic() + self._limits.heartbeat_seconds
        for ack in reply.acks:
            self._note(ack)
            self._hear(ack)

    def _note(self, ack: wire.Ack) -> None:
        if ack.status == "conflict":
            self._losses.count(LossReason.CONFLICT)
            self._notices.say("conflict", f"another report stands under the same identity: {ack.problem}")
        elif ack.status == "invalid":
            self._losses.count(LossReason.REFUSED)
            self._notices.say("refused", f"the service refused a message: {ack.problem}")

    def _refuse(self, reply: UploadResult, n_messages: int) -> None:
        # One message can spoil a bundle: halve it until the culprit stands alone.
        if n_messages > 1:
            self._bundle_messages = n_messages // 2
            return
        self._losses.count(LossReason.REFUSED, n_messages)
        self._notices.say("refused", f"the service refused a message: {reply.detail}")
        self._retry_buffer.acknowledge(n_messages)
        self._heartbeat_at = time.monotonic() + self._limits.heartbeat_seconds

    def _fail(self, reply: UploadResult) -> None:
        self._n_failures += 1
        # A denial lasts until someone acts: nothing is won by keeping messages in memory.
        if reply.outcome is UploadOutcome.DENIED:
            self._notices.say("denied", f"{reply.detail}; {DENIED_ADVICE}")
            self._retry_buffer.write_through(True)
        elif self._n_failures >= self._limits.failures_before_spool:
            self._notices.say("away", f"the service cannot be reached ({reply.detail}); {AWAY_ADVICE}")
            self._retry_buffer.write_through(True)
        longest = self._limits.retry_first_seconds * 2.0 ** min(self._n_failures - 1, 16)
        pause = min(longest, self._limits.retry_cap_seconds) * random.uniform(0.5, 1.0)  # noqa: S311
        self._retry_at = time.monotonic() + max(pause, reply.retry_after_seconds)
