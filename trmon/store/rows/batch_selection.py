"""Which batches of a run a read wants, and steps with their updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select

from trmon.domain.batches.batch import BatchRow
from trmon.store.schema import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSelection:
    """At most `limit` batches, in the order in which they closed or, `newest_first`, in the reverse order.

    `after` and `before` are ordinals that are left out.
    """

    limit: int
    newest_first: bool = False
    step: int | None = None
    after: int | None = None
    before: int | None = None

    def merged(self, *parts: Iterable[BatchRow]) -> list[BatchRow]:
        """Return the selection from those of several places."""
        rows = sorted((row for part in parts for row in part), key=lambda row: row.ordinal, reverse=self.newest_first)
        return rows[: self.limit]


@dataclass(frozen=True, slots=True)
class StepUpdates:
    """A step of an attempt with its first and last update; None, the whole rollout batch, comes first."""

    step: int
    first: int | None
    last: int | None


def selected_batches(found: Select[Any], selection: BatchSelection) -> Select[Any]:
    """Return a query for the selection from a query of rows of batches."""
    table = tables.batch.c
    if selection.step is not None:
        found = found.where(table.step == selection.step)
    if selection.after is not None:
        found = found.where(table.ordinal > selection.after)
    if selection.before is not None:
        found = found.where(table.ordinal < selection.before)
    return found.order_by(table.ordinal.desc() if selection.newest_first else table.ordinal).limit(selection.limit)
