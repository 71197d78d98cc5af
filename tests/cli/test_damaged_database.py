"""Commands and the service over a database or a backup whose bytes have changed: one line each, never a traceback."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from tests.fixtures.command import run_here
from tests.fixtures.service import ThreadedService
from trmon.domain.errors import NotReady

RECORDED = Path(__file__).parents[1] / "fixtures" / "data_of_0_2_0" / "trmon.sqlite.zst"
PAGE = 8192
FILE = "trmon.sqlite"

Damage = Callable[[Path, random.Random], None]


def flip(data: bytearray, places: list[int], choice: random.Random) -> None:
    for place in places:
        data[place] ^= choice.randrange(1, 256)


def at(places: Callable[[int, random.Random], list[int]]) -> Damage:
    """Return what changes the bytes of a file at some places. Args: places: of a size."""

    def damage(file: Path, choice: random.Random) -> None:
        data = bytearray(file.read_bytes())
        flip(data, places(len(data), choice), choice)
        file.write_bytes(data)

    return damage


def in_values(file: Path, choice: random.Random) -> None:
    """Change a byte of some texts and blobs, and put values of another type in some cells."""
    with closing(sqlite3.connect(file)) as database:
        database.text_factory = bytes
        names = [row[0].decode() for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in choice.choices([name for name in names if not name.startswith("sqlite_")], k=12):
            found = database.execute(f"SELECT rowid, * FROM {table}")
            columns, rows = [column[0] for column in found.description], found.fetchall()
            if not rows:
                continue
            row, index = choice.choice(rows), choice.randrange(1, len(columns))
            kind = f"typeof({columns[index]})"
            [stored] = database.execute(f"SELECT {kind} FROM {table} WHERE rowid = ?", row[:1]).fetchone()
            value, cast = choice.choice([b"\xff\0", "{", -1, 1 << 62]), "?"
            if isinstance(row[index], bytes) and row[index]:
                changed = bytearray(row[index])
                flip(changed, [choice.randrange(len(changed))], choice)
                value, cast = bytes(changed), "CAST(? AS TEXT)" if stored == b"text" else "?"
            try:
                database.execute(f"UPDATE {table} SET {columns[index]} = {cast} WHERE rowid = ?", [value, row[0]])
            except sqlite3.IntegrityError:
                continue
        database.commit()


def in_the_log(file: Path, choice: random.Random) -> None:
    """Leave a log that was not merged, with changed bytes."""
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.executemany("INSERT INTO project VALUES (?, 1.0)", [[f"p{i}"] for i in range(300)])
        database.execute("UPDATE alert_event SET at = at + 1")
        database.commit()
        log = bytearray(file.with_name(f"{file.name}-wal").read_bytes())
        whole = file.read_bytes()
    flip(log, choice.choices(range(len(log)), k=choice.choice([1, 30])), choice)
    file.write_bytes(whole)
    file.with_name(f"{file.name}-wal").write_bytes(log)


def cut_off(file: Path, choice: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: choice.randrange(file.stat().st_size)])


DAMAGES: dict[str, Damage] = {
    "the header": at(lambda _, choice: choice.choices(range(100), k=3)),
    "the schema": at(lambda _, choice: choice.choices(range(100, PAGE), k=8)),
    "heads of pages": at(lambda size, choice: [page * PAGE for page in choice.choices(range(1, size // PAGE), k=9)]),
    "a byte anywhere": at(lambda size, choice: [choice.randrange(size)]),
    "bytes everywhere": at(lambda size, choice: choice.choices(range(size), k=2000)),
    "values": in_values,
    "the log": in_the_log,
    "the end": cut_off,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound database in a folder, and an archive beside it."""
    folder = tmp_path_factory.mktemp("sound")
    (folder / FILE).write_bytes(zstandard.ZstdDecompressor().decompress(RECORDED.read_bytes()))
    assert run_here("migrate", "--data-dir", folder).exit_code == 0
    assert run_here("export", "math", folder / "archive", "--data-dir", folder).exit_code == 0
    return folder


N_SEEDS = 3
READING = (
    ("doctor",),
    ("backup", "{tmp}/backup.sqlite"),
    ("export", "math", "{tmp}/archive"),
    ("query", "SELECT count(*), max(owner) FROM runs"),
    ("query", "SELECT * FROM batches"),
    ("query", "SELECT * FROM alerts"),
    ("token", "list"),
    ("lake", "status"),
)
WRITING = (
    ("restore", "{sound}/trmon.sqlite"),
    ("token", "create", "trainer", "--scope", "read"),
    ("import", "{sound}/archive", "--project", "other"),
    ("migrate",),
)


@pytest.mark.parametrize("seed", range(N_SEEDS))
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_commands_answer_with_one_line(damage: Damage, seed: int, sound: Path, tmp_path: Path) -> None:
    """Each seed has a third of the commands; those that write have the database to themselves."""
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(sound / FILE, data / FILE)
    damage(data / FILE, random.Random(seed))
    for command in WRITING[seed::N_SEEDS]:
        shutil.copytree(data, tmp_path / command[0])
        status = answered(command, sound=sound, tmp=tmp_path, data=tmp_path / command[0])
        assert (command[0], status) != ("restore", 1)
    shutil.copytree(data, tmp_path / "as-it-was")
    answered(("restore", "{tmp}/as-it-was/trmon.sqlite"), sound=sound, tmp=tmp_path, data=tmp_path / "restored")
    for command in READING[seed::N_SEEDS]:
        answered(command, sound=sound, tmp=tmp_path, data=data)


def answered(command: tuple[str, ...], *, sound: Path, tmp: Path, data: Path) -> int:
    """Return the exit status of a command that ends without a traceback, and with one line where it fails."""
    done = run_here(*(word.format(sound=sound, tmp=tmp) for word in command), "--data-dir", data)
    assert done.exit_code in (0, 1), (command, done.output)
    assert "Traceback" not in done.output, command
    if done.exit_code == 1 and command[0] != "doctor":
        assert len(done.stderr.strip().splitlines()) == 1, (command, done.output)
    return done.exit_code


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_the_service_refuses_to_start_or_answers(damage: Damage, sound: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(sound / FILE, data / FILE)
    damage(data / FILE, random.Random(1))
    try:
        service = ThreadedService(data)
    except NotReady:
        return
    with service.client() as client:
        for path in ("runs", "fleet", "alerts", "runs/math/finished", "runs/math/finished/signals?names=grad_norm"):
            answer = client.get(f"/api/v1/{path}")
            assert answer.json() is not None
            assert answer.status_code != 500 or "damaged" in answer.text, answer.text
    service.stop()
