"""Count received messages, their sequences, and the losses that clients report."""

from __future__ import annotations

from trmon.domain.model.messages import PreparedMessage, WriteOutcome
from trmon.ingest.client_losses import ClientLosses
from trmon.metrics.counters import Counters


class IngestCounters:
    """Updates the service's counters for each message."""

    def __init__(self, counters: Counters) -> None:
        self._dropped = counters.dropped
        self._losses = ClientLosses()
        # Looking up a label costs more than counting.
        self._by_outcome = {outcome: counters.reports.labels(outcome.value) for outcome in WriteOutcome}
        self._invalid = counters.reports.labels("invalid")
        self._accepted, self._rejected = map(counters.sequences.labels, ("accepted", "rejected"))

    def count(self, prepared: PreparedMessage, outcome: WriteOutcome) -> None:
        """Count a message by what the store did with it."""
        self._by_outcome[outcome].inc()
        for reason, n in self._losses.increases(prepared.key, prepared.message).items():
            self._dropped.labels(reason).inc(n)
        if outcome is WriteOutcome.STORED and prepared.n_sequences:
            n_accepted = _count_bits(prepared.accepted, prepared.n_sequences)
            self._accepted.inc(n_accepted)
            self._rejected.inc(prepared.n_sequences - n_accepted)

    def count_invalid(self) -> None:
        """Count a message of a bundle that was refused."""
        self._invalid.inc()


def _count_bits(bits: bytes, n: int) -> int:
    """Return how many of the first n bits are set; the wire's bits are little-endian."""
    return (int.from_bytes(bits, "little") & ((1 << n) - 1)).bit_count()
