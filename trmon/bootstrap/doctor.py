"""The doctor: looks at everything that a service needs, and says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from trmon.api.http.auth import check_bind
from trmon.config.active_rules import active_rules_of
from trmon.config.environment_check import unknown_variables
from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady
from trmon.domain.model.health_check import HealthCheckResult, failing_result, healthy_result, warning_result
from trmon.store import Store
from trmon.store.database.connect import is_shared
from trmon.store.database.sqlite import sqlite_file_of

MIN_FREE_BYTES = 1 << 30
MIN_FREE_SHARE = 0.05
GIBIBYTE = 1 << 30


def check_installation(settings: Settings, *, variables: Iterable[str] = ()) -> Iterator[HealthCheckResult]:
    """Yield what there is to say of the settings, the database, its disk and the way in.

    Args: variables: the names of those in the environment.
    """
    for name, near in unknown_variables(variables):
        advice = f"{near} is one" if near else "docs/reference/settings.md lists those there are"
        yield warning_result("settings", f"{name} is no setting, and changes nothing", advice=advice)
    yield _rules(settings)
    yield _links(settings)
    if not is_shared(settings.store_url) and not sqlite_file_of(settings.store_url).exists():
        yield failing_result(
            "database", f"there is no file {sqlite_file_of(settings.store_url)}", advice="`trmon serve` makes it"
        )
        return
    try:
        store = Store.open(settings.store_url)
    except NotReady as error:
        yield failing_result("database", str(error), advice="see above; nothing else can be looked at")
        return
    try:
        found = list(store.examine())
        yield from found
        if store.folder is not None:
            yield _disk(store.folder)
        if not any(one.what == "schema" and one.advice for one in found):
            yield _bind(settings, store)
    except NotReady as error:
        yield failing_result("database", str(error), advice="see above")
    finally:
        store.close()


def _rules(settings: Settings) -> HealthCheckResult:
    try:
        rules = active_rules_of(settings)
    except NotReady as error:
        return failing_result("rules", str(error), advice="correct the file; `trmon rules check` shows the place")
    return healthy_result("rules", f"{len(rules())} in force")


def _links(settings: Settings) -> HealthCheckResult:
    if settings.public_url is None:
        return warning_result(
            "links", "alerts cannot name the page", advice="set TRMON_PUBLIC_URL to where people reach it"
        )
    return healthy_result("links", settings.public_url)


def _disk(folder: Path) -> HealthCheckResult:
    usage = shutil.disk_usage(folder)
    found = f"{usage.free / GIBIBYTE:.1f} of {usage.total / GIBIBYTE:.1f} GiB free at {folder}"
    if usage.free < MIN_FREE_BYTES or usage.free < MIN_FREE_SHARE * usage.total:
        return failing_result("disk", found, advice="free some space, or lower TRMON_RETENTION_BYTES")
    return healthy_result("disk", found)


def _bind(settings: Settings, store: Store) -> HealthCheckResult:
    try:
        check_bind(settings, store.tokens)
    except NotReady as error:
        return failing_result("way in", str(error), advice="make a token first, or listen on loopback")
    return healthy_result(
        "way in", f"{settings.host}, " + ("tokens are needed" if store.tokens.any() else "loopback only")
    )
