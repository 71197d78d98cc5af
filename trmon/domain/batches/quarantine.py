"""Quarantine: parts that could not be processed are recorded with their error, and processing goes on."""

from __future__ import annotations

from enum import Enum

import msgspec

from trmon_client.core.wire.decodable_types import decodable

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
