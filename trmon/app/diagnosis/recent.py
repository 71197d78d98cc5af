"""The newest steps of a run, as a diagnosis reads them."""

from __future__ import annotations

import sys

from trmon.domain.access import Access
from trmon.domain.diagnosis import READINGS, History
from trmon.domain.errors import NotFound
from trmon.domain.runs import Run
from trmon.store import Store

STEPS = 256
"""How many of the newest steps are read; a finding that is older is told as this old."""


def recent(store: Store, run: Run, *, access: Access) -> History:
    """Return the newest 256 steps of a run, every update of them. Errors: NotFound before its first batch."""
    steps = store.signals.series(run.id, names=(), access=access, points=sys.maxsize).step
    if not len(steps):
        raise NotFound("batch of", str(run.key))
    rows = store.signals.series(
        run.id,
        names=READINGS,
        access=access,
        from_step=int(steps[-STEPS:][0]),
        points=sys.maxsize,
        updates="all",
    )
    return History.of_rows(
        step=rows.step, update=rows.update, values={name: band.last for name, band in rows.bands.items()}
    )
