"""The stored row of a closed batch, and the stored decisions over it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec
from msgspec import structs

from trmon.domain.identity import BatchKey
from trmon_client.core.column_schema import KlIs, Pair
from trmon_client.core.wire.messages import decodable

MAX_REASON_LENGTH = 300


class QuarantinePart(Enum):
    """The parts that can be quarantined; the `reason` label of trmon_quarantined_total."""

    REPORT = "report"
    NOTICE = "notice"
    BATCH = "batch"
    RULE = "rule"
    ROW = "row"
    CHECKPOINT = "checkpoint"
    ADAPTATION = "adaptation"
    ADVICE = "advice"
    HISTORY = "history"


@decodable
class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One part that could not be processed: its kind, its place, and the error."""

    part: QuarantinePart
    place: str
    reason: str


def quarantined(part: QuarantinePart, place: str, error: Exception | str) -> Quarantined:
    """Return the record of a part that failed with an error, or for a reason given as text."""
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return Quarantined(part=part, place=place, reason=reason[:MAX_REASON_LENGTH])


QUARANTINED_PARTS = "quarantined_parts"


class PolicyRole(Enum):
    """Whether the decision of a policy was returned to the trainer or only recorded."""

    ACTIVE = "active"
    SHADOW = "shadow"


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One (attempt, step, update) with the reports of all ranks merged.

    `ordinal` counts the batches of a run in the order in which they were folded, from 1; a revision keeps it.
    `signals` are those of formulas, section 5, and the derived ones such as mask_rate, NaN if they
    cannot be computed; `scalars` are sent by the trainer. `last_report_id` is the id of the newest report in the batch.
    `primary_pair` is None without a pair. `quarantined` lists the parts of the batch that could not be processed.
    `complete` is false if data is missing that is known to exist; if `unconfirmed`, more may be missing, since a rank
    has not said how many chunks it sent.
    """

    run_id: int
    key: BatchKey
    ordinal: int
    closed_at: float
    n_sequences: int = 0
    n_tokens: int = 0
    n_ranks: int
    missing_ranks: tuple[int, ...] = ()
    complete: bool = True
    revised: bool = False
    mode: str
    primary_pair: Pair | None = None
    kl_is: KlIs = "sampled"
    policy_hash: str | None = None
    mismatches: int = 0
    last_report_id: int = 0
    signals: dict[str, float]
    scalars: dict[str, float]
    quarantined: tuple[Quarantined, ...] = ()
    unconfirmed: bool = False

    @property
    def has_scalars_only(self) -> bool:
        """Whether no report of the batch has come, only scalars of its step."""
        return self.last_report_id == 0

    @property
    def known_complete(self) -> bool | None:
        """Whether the batch is complete; None if that is unknown."""
        return None if self.complete and self.unconfirmed else self.complete

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers by name: the counts, the scalars and the signals, of which the later take precedence."""
        counts = {"n_tokens": float(self.n_tokens), "n_sequences": float(self.n_sequences)}
        return {**counts, **self.scalars, **self.signals}

    def with_quarantined(self, parts: Iterable[Quarantined]) -> BatchRow:
        """Return the row with more quarantined parts, and their number as a signal for rules."""
        known = tuple(dict.fromkeys((*self.quarantined, *parts)))
        signals = {**self.signals, QUARANTINED_PARTS: float(len(known))}
        return structs.replace(self, quarantined=known, signals=signals)


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of one policy over one batch; `accepted` has one bit per sequence, by (rank, chunk, row)."""

    key: BatchKey
    policy_hash: str
    policy_name: str
    role: PolicyRole
    counts: dict[str, int]
    mask_rate: float
    accepted: bytes
