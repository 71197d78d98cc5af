"""The check of the lake for `trmon doctor`."""

from __future__ import annotations

import time

from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady
from trmon.domain.model.health_check import HealthCheckResult, failing_result, healthy_result, warning_result
from trmon.store import Store

LATE_SECONDS = 86_400.0
"""How much longer than `TRMON_LAKE_AFTER_SECONDS` an attempt may wait before that is worth a warning."""


def check_lake(settings: Settings, store: Store) -> HealthCheckResult | None:
    """Return whether the lake can be read and attempts move to it; None if none is configured and none was used."""
    now = time.time()
    overdue = store.lake_batches.status(now=now, after_seconds=settings.lake_after_seconds + LATE_SECONDS)
    if settings.lake_url is None:
        if not overdue.moved_attempts:
            return None
        found = f"{overdue.moved_attempts} attempts are in a lake, and TRMON_LAKE_URL is not set"
        return failing_result("lake", found, advice="set it as it was; until then these attempts cannot be read")
    try:
        store.lake(settings.lake_url).mover.check()
    except NotReady as error:
        waiting = f"{overdue.ended_attempts} attempts of ended runs wait in the database, beyond its limits"
        return failing_result("lake", f"{error}; {waiting}", advice="docs/lake.md says what each store needs")
    found = f"{settings.lake_url}, {overdue.moved_attempts} attempts moved"
    if overdue.due_attempts:
        return warning_result(
            "lake",
            f"{found}; {overdue.due_attempts} are due for more than a day",
            advice="run `trmon lake move` to see why, or look for lake_move_failed in the log",
        )
    return healthy_result("lake", found)
