"""Retries: how long to wait after a failed attempt, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts, and the wait between them: it doubles from `backoff_seconds` up to ten minutes."""

    max_attempts: int
    backoff_seconds: float

    def wait_seconds(self, attempts: int) -> float:
        """Return the wait after a number of failed attempts, from 1."""
        return float(min(self.backoff_seconds * 2.0 ** min(attempts - 1, 32), MAX_BACKOFF_SECONDS))
