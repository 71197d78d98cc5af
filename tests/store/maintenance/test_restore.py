"""The checks of a database, and what is done to one that was restored to an earlier time."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from tests.store.builders import (
    NOW,
    append,
    batch,
    batch_key,
    commit,
    execute,
    report_intake,
    start_intake,
    stored_reports,
)
from tests.store.conftest import ON_POSTGRES
from trmon.domain.access import EVERYTHING, AuditAction
from trmon.domain.errors import Conflict, Fenced
from trmon.domain.health_check import HealthCheckResult, HealthLevel
from trmon.domain.identity import RunKey
from trmon.store import Store
from trmon.store.database import engines_of
from trmon.store.maintenance.restore import SKIPPED_IDS, RestoredState, prepare_restored
from trmon.store.repositories.leases import Leases, check_fences


def observed(store: Store) -> dict[str, HealthCheckResult]:
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
    store.leases("one", lease_seconds=10.0).renew()
    assert observed(store)["leases"].detail == "1 workers share 128 slots (one: 128)"


def fill(url: str) -> None:
    store = Store.open(url)
    append(store, start_intake(), report_intake(step=3))
    commit(store, 1, batches=(batch(batch_key(1, 3), run_id=1, ordinal=1),))
    store.close()


def prepare(url: str) -> RestoredState:
    return prepare_restored(url, access=EVERYTHING, now=NOW)


def test_ids_that_may_have_been_given_out_since_are_not_given_out_again(migrated_url: str) -> None:
    fill(migrated_url)
    prepare(migrated_url)
    store = Store.open(migrated_url)
    [old, new] = append(store, report_intake(step=4), report_intake(run="later"))
    assert old.run_id == 1
    assert new.run_id > SKIPPED_IDS
    assert [stored.id > SKIPPED_IDS for stored in stored_reports(store, 1)] == [False, True]
    store.close()


def test_open_runs_say_that_reports_may_be_lost_and_the_audit_log_that_it_was_restored(migrated_url: str) -> None:
    fill(migrated_url)
    state = prepare(migrated_url)
    assert state.newest_report_at is not None
    assert state.open_runs == 1
    store = Store.open(migrated_url)
    [note] = store.notes.list(RunKey("math", "grpo"), access=EVERYTHING).items
    assert (note.step, note.at) == (3, NOW)
    assert "are lost, unless their trainer sends them again" in note.text
    [entry] = store.audit.list(access=EVERYTHING, action=AuditAction.DATABASE_RESTORE).items
    assert entry.after == {"newest_report_at": state.newest_report_at}
    store.close()


@pytest.mark.server("postgres")
def test_a_worker_that_outlived_the_restore_writes_nothing(postgres_url: str) -> None:
    engines = engines_of(postgres_url)
    fences = Leases(engines.writing, holder="outlived", lease_seconds=10.0).renew().fences
    engines.dispose()
    prepare(postgres_url)
    with engines.writing.begin() as connection, pytest.raises(Fenced):
        check_fences(connection, fences)
    assert Leases(engines.writing, holder="new", lease_seconds=10.0).renew().fences[0] == fences[0] + SKIPPED_IDS + 1
    engines.dispose()


@ON_POSTGRES
@pytest.mark.usefixtures("store")
def test_a_database_that_processes_use_is_left_as_it_is(migrated_url: str) -> None:
    with pytest.raises(Conflict, match="stop them all"):
        prepare(migrated_url)
