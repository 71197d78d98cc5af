"""Tests the database checks and the observations they return."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from tests.store.builders import append, execute, report_intake
from tests.store.conftest import ON_POSTGRES
from trmon.domain.health_check import HealthCheckResult, HealthLevel
from trmon.store import Store


def observed(store: Store) -> dict[str, HealthCheckResult]:
    """Return the observations by check."""
    return {one.name: one for one in store.examine()}


def test_a_migrated_database_passes_every_check(store: Store) -> None:
    append(store, report_intake())
    found = observed(store)
    assert {found[what].level for what in ("schema", "indexes")} == {HealthLevel.OK}


def test_a_dropped_index_is_reported(store: Store) -> None:
    execute(store, text("DROP INDEX ix_claim_run_id"))
    found = observed(store)
    assert "ix_claim_run_id on claim" in found["indexes"].detail
    assert found["indexes"].level is HealthLevel.FAIL


def test_a_missing_schema_is_reported_with_the_remedy_and_not_checked_further(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'trmon.sqlite'}")
    found = observed(store)
    store.close()
    assert set(found) == {"schema"}
    assert (found["schema"].level, found["schema"].advice) == (HealthLevel.FAIL, "run `trmon migrate`")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_flipped_byte_inside_a_report_is_reported_although_the_file_is_intact(tmp_path: Path, share: float) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'trmon.sqlite'}")
    store.migrate()
    append(store, report_intake())
    assert observed(store)["reports"].level is HealthLevel.OK
    flip = (
        "UPDATE report SET payload = CAST(substr(payload, 1, i) || x'FF' || substr(payload, i + 2) AS BLOB) "
        f"FROM (SELECT CAST(length(payload) * {share} AS INTEGER) AS i FROM report)"
    )
    execute(store, text(flip))
    found = observed(store)
    store.close()
    assert found["integrity"].level is HealthLevel.OK
    assert found["reports"].level is HealthLevel.FAIL
    assert found["reports"].detail.startswith("1 of 1 do not decode or differ from their digest; the first: math/grpo")


@ON_POSTGRES
def test_an_unsynced_server_and_missing_workers_are_reported(store: Store) -> None:
    found = observed(store)
    assert (found["durability"].level, found["durability"].detail[:5]) == (HealthLevel.FAIL, "fsync")
    assert found["clock"].level is HealthLevel.OK
    assert (found["leases"].level, found["leases"].advice) == (HealthLevel.FAIL, "start `trmon worker`")
    store.leases("one").renew()
    assert observed(store)["leases"].detail == "1 workers share 128 slots (one: 128)"
