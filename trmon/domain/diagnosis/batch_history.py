"""The history of batch rows, as a diagnosis reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trmon.domain.batches.batch import BatchRow
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.required_signals import REQUIRED_SIGNALS


def history_of_batches(rows: Sequence[BatchRow]) -> History:
    """Return the history of one or more rows, in the run's order."""
    numbers = [{**row.scalars, **row.signals} for row in rows]
    names = [name for name in REQUIRED_SIGNALS if any(name in row for row in numbers)]
    return History.of_rows(
        step=[row.key.step for row in rows],
        update=[-1 if row.key.update is None else row.key.update for row in rows],
        values={name: [row.get(name, math.nan) for row in numbers] for name in names},
    )
