"""`trmon doctor`: checks settings, rules, receivers, database, disk and access, and gives advice for each problem."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from trmon.api.http.auth import check_bind
from trmon.config.rules import active_rules_of
from trmon.config.settings import Settings, unknown_variables
from trmon.domain.errors import NotReady
from trmon.domain.health_check import HealthCheckResult, failing_result, healthy_result, warning_result
from trmon.notify.registry import ADVICE, DeliveryCheck
from trmon.store import Store
from trmon.store.database.engines import is_shared
from trmon.store.database.sqlite import explaining_damage, sqlite_file_of

LATE_SECONDS = 86_400.0
"""How much longer than `TRMON_LAKE_AFTER_SECONDS` an attempt may wait before that is worth a warning."""
MIN_FREE_BYTES = 1 << 30
MIN_FREE_SHARE = 0.05
GIBIBYTE = 1 << 30


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
        store.lake(settings.lake_url).check()
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


def check_installation(settings: Settings, *, variables: Iterable[str] = ()) -> Iterator[HealthCheckResult]:
    """Yield the result of each check, with advice where it fails.

    Args: variables: the names of the environment's variables.
    """
    for name, near in unknown_variables(variables):
        advice = f"did you mean {near}?" if near else "docs/reference/settings.md lists all settings"
        yield warning_result("settings", f"{name} is not a setting and has no effect", advice=advice)
    yield _rules(settings)
    yield _links(settings)
    yield _receivers(settings)
    if not is_shared(settings.store_url) and not sqlite_file_of(settings.store_url).exists():
        yield failing_result(
            "database", f"{sqlite_file_of(settings.store_url)} does not exist", advice="`trmon serve` creates it"
        )
        return
    try:
        store = Store.open(settings.store_url, lake_url=settings.lake_url)
    except NotReady as error:
        yield failing_result("database", str(error), advice="fix this first; no other check can run")
        return
    try:
        with explaining_damage(settings.store_url):
            found = list(store.examine())
            yield from found
            if store.folder is not None:
                yield _disk(store.folder)
            if not any(one.name == "schema" and one.advice for one in found):
                yield _bind(settings, store)
                if (lake := check_lake(settings, store)) is not None:
                    yield lake
    except NotReady as error:
        yield failing_result("database", str(error), advice="fix this first")
    finally:
        store.close()


def _rules(settings: Settings) -> HealthCheckResult:
    try:
        rules = active_rules_of(settings)
    except NotReady as error:
        return failing_result("rules", str(error), advice="correct the file; `trmon rules check` shows the line")
    return healthy_result("rules", f"{len(rules().rules)} active")


def _links(settings: Settings) -> HealthCheckResult:
    if settings.public_url is None:
        return warning_result(
            "links", "alerts have no link to the page", advice="set TRMON_PUBLIC_URL to the service's own URL"
        )
    return healthy_result("links", settings.public_url)


def _receivers(settings: Settings) -> HealthCheckResult:
    try:
        with closing(DeliveryCheck(settings)) as delivery:
            problem = delivery.find()
    except NotReady as error:
        return failing_result("receivers", str(error), advice="correct the setting; docs/alerts.md explains each")
    if problem:
        return warning_result("receivers", f"{problem}: alerts are shown on the page only", advice=ADVICE)
    return healthy_result("receivers", ", ".join(settings.receivers))


def _disk(folder: Path) -> HealthCheckResult:
    usage = shutil.disk_usage(folder)
    found = f"{usage.free / GIBIBYTE:.1f} of {usage.total / GIBIBYTE:.1f} GiB free at {folder}"
    if usage.free < MIN_FREE_BYTES or usage.free < MIN_FREE_SHARE * usage.total:
        return failing_result("disk", found, advice="free disk space, or lower TRMON_RETENTION_BYTES")
    return healthy_result("disk", found)


def _bind(settings: Settings, store: Store) -> HealthCheckResult:
    try:
        check_bind(settings, store.tokens)
    except NotReady as error:
        return failing_result("access", str(error), advice="create a token first, or remove these settings")
    if not store.tokens.ever_created():
        return healthy_result("access", f"{settings.host}, open to every user of this machine until the first token")
    if not store.tokens.has_admin(now=time.time()):
        return failing_result(
            "access",
            "no token of scope admin is valid",
            advice="create one: `trmon token create NAME --scope admin`",
        )
    return healthy_result("access", f"{settings.host}, a token is required")
