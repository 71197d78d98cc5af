"""Health checks of a database: schema, indexes, durability, clock, leases and damage."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from sqlalchemy import Connection, inspect, select

from trmon.domain.errors import Damaged, NotReady
from trmon.domain.health_check import HUNG_SECONDS, HealthCheckResult, failing_result, healthy_result, warning_result
from trmon.domain.ownership import SLOTS
from trmon.store import migrations
from trmon.store.database.engines import Engines
from trmon.store.repositories.judging import JudgingProgress
from trmon.store.repositories.leases import lease_holders
from trmon.store.rows import messages
from trmon.store.schema import tables

SKEW_SECONDS = 1.0
BAD_SKEW_SECONDS = 30.0
READ_AT_ONCE = 100
BEHIND_SECONDS = 300.0
"""Longer than batches wait for missing reports, by default; deploy/prometheus/rules has the same limit."""


def check_database(engines: Engines) -> Iterator[HealthCheckResult]:
    """Yield the results of all checks. Errors: NotReady if the database is unreachable."""
    with engines.reader.connect() as connection:
        schema = _schema(connection)
        yield schema
        if schema.advice:
            return
        yield _indexes(connection)
        if engines.is_shared:
            yield _durability(connection)
            yield _clock(connection)
            yield _connections(connection)
            yield _leases(connection)
        yield _judging(JudgingProgress(engines))
        if not engines.is_shared:
            integrity = _integrity(connection)
            yield integrity
            if not integrity.advice:
                yield _reports(connection)


def _schema(connection: Connection) -> HealthCheckResult:
    try:
        migrations.check_revision(connection)
    except NotReady as error:
        is_newer = migrations.is_newer(connection)
        return failing_result(
            "schema", str(error), advice="use a version that knows it" if is_newer else "run `trmon migrate`"
        )
    newer = ", of a newer trmon, which this version can use" if migrations.is_newer(connection) else ""
    return healthy_result("schema", f"revision {migrations.schema_revision(connection)}{newer}")


def _indexes(connection: Connection) -> HealthCheckResult:
    found = inspect(connection)
    missing = [
        f"{index.name} on {table.name}"
        for table in tables.metadata.sorted_tables
        for index in sorted(table.indexes, key=lambda index: str(index.name))
        if index.name not in {known["name"] for known in found.get_indexes(table.name)}
    ]
    if missing:
        return failing_result(
            "indexes", f"missing: {', '.join(missing)}", advice="create them as in trmon/store/schema/tables.py"
        )
    return healthy_result("indexes", "all present")


def _durability(connection: Connection) -> HealthCheckResult:
    off = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if _setting(connection, name) == "off"]
    if off:
        return failing_result(
            "durability",
            f"{', '.join(off)} off: a crash of the server loses acknowledged reports",
            advice=f"set {', '.join(off)} = on",
        )
    return healthy_result("durability", "commits are on disk")


def _clock(connection: Connection) -> HealthCheckResult:
    asked_at = time.time()
    theirs = float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())
    skew = theirs - (asked_at + time.time()) / 2
    found, advice = f"the database's is {skew:+.3f} s from this machine's", "synchronise both clocks, e.g. with chrony"
    if abs(skew) >= BAD_SKEW_SECONDS:
        return failing_result("clock", found, advice=advice)
    return healthy_result("clock", found) if abs(skew) < SKEW_SECONDS else warning_result("clock", found, advice=advice)


def _connections(connection: Connection) -> HealthCheckResult:
    most = int(_setting(connection, "max_connections"))
    used = int(connection.exec_driver_sql("SELECT count(*) FROM pg_stat_activity").scalar_one())
    found = f"{used} of {most} in use"
    if used > 0.8 * most:
        return warning_result("connections", found, advice="raise max_connections, or run fewer processes")
    return healthy_result("connections", found)


def _leases(connection: Connection) -> HealthCheckResult:
    rows = lease_holders(connection)
    held = {row.holder: row.n_slots for row in rows if row.holder is not None and row.seconds_left > 0}
    n_free = SLOTS - sum(held.values())
    shares = ", ".join(f"{holder}: {n}" for holder, n in held.items())
    if not held:
        return failing_result("leases", "no worker holds a slot: batches do not close", advice="start `trmon worker`")
    if n_free:
        advice = "check again in a moment; if this persists, read the workers' logs"
        return warning_result("leases", f"{n_free} of {SLOTS} slots have no worker ({shares})", advice=advice)
    return healthy_result("leases", f"{len(held)} workers share {SLOTS} slots ({shares})")


def _judging(progress: JudgingProgress) -> HealthCheckResult:
    age_seconds = progress.beat_age_seconds()
    behind_seconds = time.time() - progress.oldest_unprocessed_at()
    waits = f"the oldest report waits for {behind_seconds:.0f} s" if behind_seconds > 0 else "no report waits"
    if age_seconds is None:
        return healthy_result("judging", f"no service uses this file; {waits}")
    if age_seconds > HUNG_SECONDS:
        found = "there is no worker" if age_seconds == math.inf else f"no worker beats for {age_seconds:.0f} s"
        return failing_result("judging", f"{found}; {waits}", advice="read the worker's log; restart it if it hangs")
    if behind_seconds > BEHIND_SECONDS:
        advice = "a long import, or a run whose passes fail: look for run_pass_failed in the log"
        return warning_result("judging", waits, advice=advice)
    return healthy_result("judging", f"a worker made progress {age_seconds:.0f} s ago; {waits}")


def _integrity(connection: Connection) -> HealthCheckResult:
    found = " ".join(str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()).split())
    if found != "ok":
        return failing_result("integrity", found, advice="restore the newest backup with `trmon restore`")
    return healthy_result("integrity", "quick_check found no errors")


def _reports(connection: Connection) -> HealthCheckResult:
    """Read every stored report: SQLite has no checksums, so its own check finds no damage inside a value."""
    report, run = tables.report.c, tables.run.c
    query = select(run.project, run.name, report.step, report.rank, report.digest, report.payload).join_from(
        tables.report, tables.run
    )
    n_reports, damaged = 0, []
    for row in connection.execution_options(yield_per=READ_AT_ONCE).execute(query):
        n_reports += 1
        try:
            messages.check_report(row.payload, digest=row.digest)
        except Damaged as error:
            damaged.append(f"{row.project}/{row.name} step {row.step} rank {row.rank}: {error}")
    if damaged:
        found = f"{len(damaged)} of {n_reports} do not decode or differ from their digest; the first: {damaged[0]}"
        return failing_result("reports", found, advice="check the disk; restore a backup if you need their sequences")
    return healthy_result("reports", f"all {n_reports} decode and match their digests")


def _setting(connection: Connection, name: str) -> str:
    return str(connection.exec_driver_sql(f"SHOW {name}").scalar_one())
