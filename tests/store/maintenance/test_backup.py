"""Tests backup and restore: a consistent file taken during writes, restored only if no service runs."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from tests.store.builders import NOW, append, commit, report_intake, stored_reports
from tests.store.children import appending, restore_until_killed, run_child
from trmon.domain.errors import Conflict, NotReady
from trmon.domain.pipeline.publish import Frontier
from trmon.store import Store
from trmon.store.database.sqlite import exclusive_use, sqlite_file_of
from trmon.store.maintenance.backup import back_up
from trmon.store.maintenance.restore import restore_backup

ENOUGH = 200


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a file: these tests apply to SQLite only."""
    return f"sqlite:///{tmp_path}/data/trmon.db"


def steps_in(url: str) -> list[int]:
    store = Store.open(url)
    found = [stored.report.step for stored in stored_reports(store, 1)]
    store.close()
    return found


def test_a_backup_during_writes_holds_every_report_acknowledged_before_it(url: str, tmp_path: Path) -> None:
    with appending(url) as (_, pipe):
        acknowledged = [pipe.recv()[0] for _ in range(ENOUGH)]
        copy = back_up(url, tmp_path / "backup.sqlite")
        while pipe.recv()[0] < 2 * ENOUGH:
            pass  # let the child write more

    restored = f"sqlite:///{tmp_path}/restored/trmon.db"
    restore_backup(restored, copy.file)
    found = steps_in(restored)
    assert set(acknowledged) <= set(found)
    assert found == list(range(len(found)))
    assert len(found) <= len(steps_in(url))


def test_a_backup_is_one_file_readable_by_its_owner_only(store: Store, url: str, tmp_path: Path) -> None:
    append(store, report_intake())
    folder = tmp_path / "backups"
    folder.mkdir()
    copy = back_up(url, folder / "backup.sqlite")
    assert [path.name for path in folder.iterdir()] == ["backup.sqlite"]
    assert stat.S_IMODE(copy.file.stat().st_mode) == 0o600
    assert copy.n_bytes == copy.file.stat().st_size > 0


def test_an_existing_file_is_overwritten_only_on_request(store: Store, url: str, tmp_path: Path) -> None:
    file = tmp_path / "backup.sqlite"
    file.write_text("mine")
    with pytest.raises(Conflict, match="already exists"):
        back_up(url, file)
    assert file.read_text() == "mine"
    back_up(url, file, overwrite=True)
    assert file.read_bytes().startswith(b"SQLite format 3")
    with pytest.raises(Conflict, match="is the database itself"):
        back_up(url, Path(url.removeprefix("sqlite:///")), overwrite=True)


def test_a_damaged_database_is_not_backed_up(store: Store, url: str, tmp_path: Path) -> None:
    append(store, *(report_intake(step=step) for step in range(64)))
    store.close()
    with Path(url.removeprefix("sqlite:///")).open("r+b") as file:
        file.seek(20 * 8192)
        file.write(b"\xff" * 8192 * 4)
    with pytest.raises(NotReady, match="damaged"):
        back_up(url, tmp_path / "backup.sqlite")
    assert not list(tmp_path.glob("*backup*"))


def test_the_command_for_postgresql_is_named_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as said:
        back_up("postgresql+psycopg://me:secret@db:5432/trmon", tmp_path / "b.dump")
    with pytest.raises(NotReady, match=r"pg_restore --no-owner --dbname=URL .*b\.dump"):
        restore_backup("postgresql://me:secret@db/trmon", tmp_path / "b.dump")
    assert f"pg_dump --format=custom --file={tmp_path}/b.dump postgresql://me@db:5432/trmon" in str(said.value)


def test_restore_is_refused_while_a_service_runs(store: Store, url: str, tmp_path: Path) -> None:
    append(store, report_intake(step=0))
    copy = back_up(url, tmp_path / "backup.sqlite")
    with pytest.raises(Conflict, match="a service uses"):
        restore_backup(url, copy.file)
    append(store, report_intake(step=1))
    store.check()


def test_restore_keeps_the_previous_database(store: Store, url: str, tmp_path: Path) -> None:
    append(store, report_intake(step=0))
    copy = back_up(url, tmp_path / "backup.sqlite")
    append(store, report_intake(step=1))
    store.close()
    first, second = restore_backup(url, copy.file), restore_backup(url, copy.file)
    assert steps_in(url) == [0]
    assert first.replaced is not None
    assert first.replaced != second.replaced
    assert steps_in(f"sqlite:///{first.replaced}") == [0, 1]


def test_a_killed_restore_leaves_the_old_or_the_new_database(store: Store, url: str, tmp_path: Path) -> None:
    append(store, report_intake(step=0))
    copy = back_up(url, tmp_path / "backup.sqlite")
    append(store, report_intake(step=1))
    store.close()
    place, found = Path(url.removeprefix("sqlite:///")), []
    for n in range(1, 10):
        status = run_child(restore_until_killed, url, copy.file, n_changes=n)
        assert place.exists(), f"killed before change {n}, it left no database"
        found.append(steps_in(url))
        if status == 0:
            break
    assert (found[0], found[-1]) == ([0, 1], [0])
    assert all(steps in ([0, 1], [0]) for steps in found)
    assert steps_in(f"{url}.replaced-1") == [0, 1]


def test_restore_is_refused_while_a_service_starts(store: Store, url: str, tmp_path: Path) -> None:
    copy = back_up(url, tmp_path / "backup.sqlite")
    store.close()
    with exclusive_use(url), pytest.raises(NotReady, match="a service uses"):
        restore_backup(url, copy.file)


def test_restore_is_refused_next_to_a_leftover_wal_of_another_database(url: str, tmp_path: Path) -> None:
    with appending(url) as (_, pipe):
        pipe.recv()
        copy = back_up(url, tmp_path / "backup.sqlite")
        while pipe.recv()[0] < ENOUGH:
            pass
    place = Path(url.removeprefix("sqlite:///"))
    place.rename(tmp_path / "moved.db")
    with pytest.raises(Conflict, match=r"trmon\.db-wal is a leftover log of another database"):
        restore_backup(url, copy.file)
    place.with_name("trmon.db-wal").rename(tmp_path / "moved.db-wal")
    restore_backup(url, copy.file)
    assert len(steps_in(url)) < len(steps_in(f"sqlite:///{tmp_path}/moved.db"))


def test_ids_are_not_reused_after_the_newest_rows_were_pruned(store: Store, url: str, tmp_path: Path) -> None:
    append(store, *(report_intake(step=step) for step in range(3)))
    commit(store, 1, frontier=Frontier(report_id=3))
    store.retention.prune(now=NOW + 10, max_age_seconds=1.0, max_bytes_per_run=1 << 40, max_bytes=1 << 40)
    copy = back_up(url, tmp_path / "backup.sqlite")
    restored = f"sqlite:///{tmp_path}/restored/trmon.db"
    restore_backup(restored, copy.file)
    other = Store.open(restored)
    append(other, report_intake(step=3))
    assert [stored.id for stored in stored_reports(other, 1)] == [4]
    other.close()


@pytest.mark.parametrize("damage", [b"no database", b"CREATE TABLE", b"CREATE INDEX"], ids=["header", "table", "index"])
def test_a_damaged_database_is_replaced_and_kept(store: Store, url: str, tmp_path: Path, damage: bytes) -> None:
    append(store, report_intake())
    copy = back_up(url, tmp_path / "backup.sqlite")
    store.close()
    file = sqlite_file_of(url)
    content = file.read_bytes()
    at = 0 if damage == b"no database" else content.index(damage)
    file.write_bytes(content[:at] + b"\xff" * 64 + content[at + 64 :])
    log = file.with_name(f"{file.name}-wal")
    log.write_bytes(b"of no use to the restored database")
    restored = restore_backup(url, copy.file)
    assert restored.replaced is not None
    assert restored.replaced.read_bytes()[at : at + 64] == b"\xff" * 64
    assert not log.exists()
    again = Store.open(url)
    assert len(stored_reports(again, 1)) == 1
    again.close()


def test_a_file_that_is_not_a_backup_is_not_restored(store: Store, url: str, tmp_path: Path) -> None:
    store.close()
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    connection.close()
    with pytest.raises(NotReady, match="is not a database of trmon"):
        restore_backup(url, other)
    with pytest.raises(NotReady, match="is not a file"):
        restore_backup(url, tmp_path / "nothing")
    Store.open(url).close()


def test_a_backup_with_a_newer_schema_is_not_restored(store: Store, url: str, tmp_path: Path) -> None:
    copy = back_up(url, tmp_path / "backup.sqlite")
    with sqlite3.connect(copy.file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(NotReady, match="schema 9999, which a newer trmon wrote"):
        restore_backup(f"sqlite:///{tmp_path}/elsewhere/trmon.db", copy.file)
    assert not (tmp_path / "elsewhere" / "trmon.db").exists()
