"""Keeps the client's failures from the trainer, counts what it lost, and prints each warning once."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from trmon_client.core.redaction import redact


class LossReason(str, Enum):
    """Why the service will not receive something that the trainer logged."""

    QUEUE_FULL = "queue_full"
    """Reports were logged faster than they could be encoded, and neither memory nor the spool had room."""
    SPOOL_FULL = "spool_full"
    """The oldest spooled messages were deleted to make room for newer ones."""
    SPOOL_ERROR = "spool_error"
    """The process ended with messages that could not be written to the spool."""
    DAMAGED = "damaged"
    """A spooled record was torn or failed its checksum."""
    UNREAD = "unread"
    """A spooled segment has another version or may not be read; it stays on disk for a client that can read it."""
    REFUSED = "refused"
    """The service rejected the message as invalid."""
    CONFLICT = "conflict"
    """The service holds another payload under the same identity."""
    UNENCODABLE = "unencodable"
    """A message could not be built or encoded."""
    SCALAR = "scalar"
    """A scalar is not a number, has an invalid name, or exceeds the maximum number."""
    CLOSED = "closed"
    """The trainer logged after `close()`."""
    INTERNAL = "internal"
    """A call failed inside the client and returned a neutral result."""


MAX_REFUSED_POLICIES = 16
MAX_WARNINGS = 16
MAX_WARNING_LENGTH = 500


class LossCounter:
    """Counts losses by reason since the start of the process, from any thread; keeps refused policies and warnings."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may count in the middle of a count.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._refused: dict[str, str] = {}
        self._warnings: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"LossCounter({self.snapshot()})"

    def count(self, loss: LossReason, n: int = 1) -> None:
        """Add n losses."""
        with self._lock:
            self._counts[loss.value] += n

    def snapshot(self) -> dict[str, int]:
        """Return the counts so far, by reason; reasons that never occurred are absent."""
        with self._lock:
            return dict(self._counts)

    def add_refused_policy(self, policy_hash: str, why: str) -> None:
        """Record why a policy from the service was refused; the first MAX_REFUSED_POLICIES are kept."""
        with self._lock:
            if len(self._refused) < MAX_REFUSED_POLICIES:
                self._refused.setdefault(policy_hash, why)

    def refused_policies(self) -> dict[str, str]:
        """Return the reason for each refused policy, by hash."""
        with self._lock:
            return dict(self._refused)

    def add_warning(self, kind: str, text: str) -> None:
        """Record a mistake in the trainer's calls, which the service shows on the run; the first of a kind is kept."""
        with self._lock:
            if len(self._warnings) < MAX_WARNINGS:
                self._warnings.setdefault(kind, text[:MAX_WARNING_LENGTH])

    def warnings(self) -> dict[str, str]:
        """Return the recorded mistakes by kind."""
        with self._lock:
            return dict(self._warnings)


class WarnOnce:
    """Prints each warning once per process; a broken stderr is ignored."""

    def __init__(self) -> None:
        self._printed: dict[str, object] = {}

    def warn(self, key: str, text: str) -> None:
        """Print one line unless the key has been used before."""
        caller = object()
        # One operation, without a lock, which a signal handler could wait for in vain.
        if self._printed.setdefault(key, caller) is not caller:
            return
        try:
            sys.stderr.write(f"trmon: {redact(_printable(text))}\n")
        except (OSError, ValueError, AttributeError, RuntimeError):
            return  # closed, missing (pythonw), or in use by the code that a signal interrupted


def _printable(text: str) -> str:
    """Return text with escapes for control characters, which an answer of the service can contain."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


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
        except Exception as error:  # noqa: BLE001  the edge of the client: training continues after any failure
            self.record(error)
            return otherwise

    def record(self, error: Exception) -> None:
        """Count a failure, and say so once, on the run too."""
        self.losses.count(LossReason.INTERNAL)
        kind = type(error).__name__
        self.warn_of_misuse(f"failure {kind}", f"a call failed and was not reported: {kind}: {error}")

    def count_closed(self, call: str) -> None:
        """Count a call after `close()`, and say once that it sends nothing."""
        self.losses.count(LossReason.CLOSED)
        text = "is called after close(), and nothing is sent any more; a decision is still made by the last policy"
        self.warn_once.warn("closed", f"{call} {text}")

    def warn_of_misuse(self, kind: str, text: str) -> None:
        """Say once on stderr, and on the run, that the trainer's calls contradict what the client expects."""
        self.losses.add_warning(kind, text)
        self.warn_once.warn(kind, text)


REJECTED_STEPS, REMIND_STEPS = 5, 100
"""After so many steps without a sequence in the loss the console says so, and again after so many more."""


class RejectedSteps:
    """Says on stderr that an enforced policy rejects every sequence; told of calls by the encoder's thread alone."""

    def __init__(self, warn_once: WarnOnce) -> None:
        self._warn_once = warn_once
        self._step: int | None = None
        self._has_accepted = True
        self._rejected = 0

    def see(self, step: int, *, n_sequences: int, n_accepted: int, policy: str) -> None:
        """Note the decision of one call, of which a step may have several."""
        if step != self._step:
            self._end_step(policy)
            self._step, self._has_accepted = step, n_sequences == 0
        self._has_accepted = self._has_accepted or n_accepted > 0

    def _end_step(self, policy: str) -> None:
        self._rejected = 0 if self._has_accepted else self._rejected + 1
        if self._rejected >= REJECTED_STEPS and (self._rejected - REJECTED_STEPS) % REMIND_STEPS == 0:
            self._warn_once.warn(
                f"all rejected {self._step}",
                f"the policy {policy} rejected every sequence of the last {self._rejected} steps (step {self._step}): "
                "nothing is in the loss. See the run's page for the cause; TRMON_MODE=observe trains on all of them",
            )
