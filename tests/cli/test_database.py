"""Commands over a database: backup, archive, lake and audit log; one that is damaged is one line, never a traceback."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import duckdb
import httpx
import pytest
import zstandard

from tests.fixtures.command import run_here, run_python
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, statuses, step_report, train
from tests.fixtures.waiting import eventually
from tests.store.lake.lakes import put_ended_run
from trmon.domain.access import EVERYTHING, AuditAction
from trmon.domain.errors import NotReady
from trmon.domain.identity import RunKey
from trmon.store import Store
from trmon_client.core import wire

RUN = "/api/v1/runs/math/grpo"


@contextmanager
def serving(folder: Path) -> Iterator[httpx.Client]:
    """Start a service over a folder."""
    service = ThreadedService(folder)
    try:
        with service.client() as client:
            yield client
    finally:
        service.stop()


class Trainer(Thread):
    """Sends one step after the other until it is told to stop; `step` is the last one acknowledged."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__()
        self._client = client
        self._told = Event()
        self.step = -1

    def run(self) -> None:
        while not self._told.is_set():
            send_step(self._client, MATH, step=self.step + 1)
            self.step += 1

    def stop(self) -> None:
        self._told.set()
        self.join()


def test_a_backup_under_load_is_restored(process: ServiceProcess, tmp_path: Path) -> None:
    file = tmp_path / "backup.sqlite"
    with process.client() as client:
        trainer = Trainer(client)
        trainer.start()
        eventually(lambda: trainer.step, lambda step: step >= 30)
        acknowledged = trainer.step
        made = run_here("backup", file, "--data-dir", process.data_dir)
        refused = run_here("restore", file, "--data-dir", process.data_dir)
        trainer.stop()
    process.kill()
    assert (made.exit_code, made.stdout.startswith(f"{file}: ")) == (0, True), made.stderr
    assert (refused.exit_code, "a service uses" in refused.stderr) == (1, True)

    twin = tmp_path / "twin"
    assert run_here("restore", file, "--data-dir", twin).exit_code == 0
    with serving(twin) as client:
        resent = [statuses(client, MATH, step_report(step)) for step in range(trainer.step + 6)]
        send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(trainer.step + 5, None, 1)]))
        eventually(lambda: client.get(RUN).json()["state"], lambda state: state == "finished")
        series = client.get(f"{RUN}/signals", params={"names": "lr", "points": 10_000}).json()
    assert resent[: acknowledged + 1] == [["duplicate"]] * (acknowledged + 1)
    assert resent[-1] == ["stored"]
    assert series["step"] == list(range(trainer.step + 6))


def test_restoring_a_backup_without_a_token_says_that_the_service_is_open(tmp_path: Path) -> None:
    data, file = ("--data-dir", tmp_path / "data"), tmp_path / "backup.sqlite"
    run_here("migrate", *data)
    run_here("backup", file, *data)
    assert "trmon token create" in run_here("restore", file, *data).stdout
    run_here("token", "create", "root", "--scope", "admin", *data)
    run_here("backup", file, "--overwrite", *data)
    restored = run_here("restore", file, *data)
    assert (restored.exit_code, "trmon token create" in restored.stdout) == (0, False)


def test_a_token_of_a_database_that_was_made_for_it_is_told_where_that_is(tmp_path: Path) -> None:
    creating = ("token", "create", "--scope", "admin", "--data-dir", tmp_path / "data")
    first, second = run_here(*creating, "one"), run_here(*creating, "two")
    assert f"a new database was made for it, {tmp_path}/data/trmon.sqlite" in first.stderr
    assert (first.exit_code, first.stdout.count("\n"), second.stderr) == (0, 1, "")


ENDED, LIVE = RunKey("math", "grpo"), RunKey("math", "live")
STRICT = {"name": "strict", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 1e-4}]}


@pytest.fixture(scope="module")
def service(shared_service: ThreadedService, shared: httpx.Client) -> ThreadedService:
    """A service that has seen a run to its end, and half of another."""
    train(shared, ENDED, steps=range(5))
    shared.put(f"/api/v1/runs/{ENDED}/policy", json={"policy": STRICT, "reason": "try"}).raise_for_status()
    train(shared, LIVE, steps=range(4), end=False)
    eventually(lambda: len(answers(shared, LIVE)["batches"]["items"]), lambda n: n == 3)
    return shared_service


def answers(client: httpx.Client, key: RunKey) -> dict[str, Any]:
    """Return what a service says of a run, ids left out."""
    path = f"/api/v1/runs/{key}"
    asked = {
        "run": path,
        "batches": f"{path}/batches",
        "sequences": f"{path}/batches/2/sequences",
        "decisions": f"{path}/batches/2/decisions",
        "signals": f"{path}/signals?names=total_kl_k3,mask_rate,lr",
        "history": f"{path}/policy/history",
        "alerts": f"/api/v1/alerts?project={key.project}&run={key.run}",
    }
    said = {name: client.get(url).json() for name, url in asked.items()}
    # Of runs that are live in that service, and of its newest summary, which is made later.
    del said["run"]["mask_rate"], said["run"]["status"]
    return _without_ids(said | {"whatif": client.post(f"{path}/whatif", json={"policy": STRICT}).json()})


def _without_ids(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_without_ids(item) for item in answer]
    if isinstance(answer, dict):
        return {name: _without_ids(value) for name, value in answer.items() if name not in ("id", "attempt_id")}
    return answer


def test_an_imported_archive_answers_alike(service: ThreadedService, shared: httpx.Client, tmp_path: Path) -> None:
    before = {key: answers(shared, key) for key in (ENDED, LIVE)}
    exported = run_here("export", "math", tmp_path / "archive", "--data-dir", service.data_dir)
    assert exported.exit_code == 0, exported.stderr
    assert "2 runs, 8 batches, 9 reports, 36 sequences" in exported.stdout

    other = tmp_path / "other"
    imported = [run_here("import", tmp_path / "archive", "--data-dir", other) for _ in range(2)]
    assert imported[0].stdout.splitlines() == ["math/grpo: imported", "math/live: imported"], imported[0].stderr
    assert imported[1].stdout.splitlines() == ["math/grpo: already present", "math/live: already present"]

    with serving(other) as client:
        assert {key: answers(client, key) for key in (ENDED, LIVE)} == before
        for step in range(4, 6):
            send_step(client, LIVE, step=step)
        send(client, LIVE, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(5, None, 1)]))
        eventually(lambda: client.get(f"/api/v1/runs/{LIVE}").json()["state"], lambda state: state == "finished")
        series = client.get(f"/api/v1/runs/{LIVE}/signals", params={"names": "lr"}).json()
    assert series["step"] == list(range(6))


def test_duckdb_reads_the_service_s_numbers(service: ThreadedService, shared: httpx.Client, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    assert run_here("export", "math", root, "--data-dir", service.data_dir).exit_code == 0
    said = answers(shared, ENDED)

    def asked(select: str, table: str) -> list[tuple[Any, ...]]:
        files = f"read_parquet('{root}/table={table}/**/*.parquet', hive_partitioning = true)"
        return duckdb.sql(f"SELECT {select} FROM {files} WHERE run = 'grpo' ORDER BY ALL").fetchall()

    kl = said["signals"]["signals"]["total_kl_k3"]["last"]
    assert asked("step, signals.total_kl_k3, scalars.lr", "batches") == [
        (step, value, 1e-3) for step, value in enumerate(kl)
    ]
    columns = said["sequences"]["columns"]
    shown = [(row[1:]) for row in asked("step, place, n_tokens, total_sum_k3, accepted", "sequences") if row[0] == 2]
    accepted = said["sequences"]["decisions"][0]["accepted"]
    assert shown == list(zip(range(4), columns["n_tokens"], columns["total_sum_k3"], accepted, strict=True))
    assert asked("max(histogram_total)", "reports")[0][0] is not None
    assert asked("state, owner", "runs") == [("finished", "me")]


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    assert run_here("migrate", "--data-dir", tmp_path / "data").exit_code == 0
    unknown = run_here("export", "math", tmp_path / "archive", "--data-dir", tmp_path / "data")
    assert (unknown.exit_code, unknown.stderr) == (1, "trmon: no project 'math'\n")
    nothing = run_here("import", tmp_path, "--data-dir", tmp_path / "data")
    assert (nothing.exit_code, "export it again with `trmon export`" in nothing.stderr) == (1, True)


def test_without_pyarrow_it_says_what_brings_it(tmp_path: Path) -> None:
    open_migrated_store(tmp_path / "data" / "trmon.sqlite").close()
    code = "import sys; sys.modules['pyarrow'] = None; from trmon.cli import app; app()"
    refused = run_python(code, "export", "math", tmp_path / "archive", "--data-dir", tmp_path / "data")
    said = "trmon: archives need pyarrow; pip install 'trmon[export]' brings it\n"
    assert (refused.returncode, refused.stderr) == (1, said)


def test_commands_are_recorded_without_secrets(tmp_path: Path) -> None:
    data, file = ("--data-dir", tmp_path / "data"), tmp_path / "backup.sqlite"
    creating = ("token", "create", "ci", "--scope", "read", "--project", "math")
    done = [run_here(*one, *data) for one in (creating, ("token", "revoke", "ci"), ("backup", file), ("restore", file))]
    assert [one.exit_code for one in done] == [0] * 4
    secret = done[0].stdout.strip()
    with closing(Store.open(f"sqlite:///{tmp_path}/data/trmon.sqlite")) as store:
        entries = store.audit.list(access=EVERYTHING, after=None, limit=10).items
    assert [(entry.action, entry.target, entry.project) for entry in entries] == [
        (AuditAction.DATABASE_RESTORE.value, "trmon.sqlite", None),
        (AuditAction.TOKEN_REVOKE.value, "ci", "math"),
        (AuditAction.TOKEN_CREATE.value, "ci", "math"),
    ]
    assert {(entry.actor, entry.token_id) for entry in entries} == {(f"cli:{pwd.getpwuid(os.getuid()).pw_name}", None)}
    assert entries[0].after == {"from": str(file)}
    assert secret not in repr(entries)


LONG_AGO = 1_700_000_000.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a run that ended long ago."""
    with closing(open_migrated_store(tmp_path / "trmon.sqlite")) as store:
        put_ended_run(store, "one", now=LONG_AGO)
    return tmp_path


def run_with_lake(*arguments: object, lake: Path | str | None = None) -> tuple[int, str]:
    """Run a command and return its exit status and output."""
    done = run_here(*arguments, **({} if lake is None else {"lake_url": str(lake)}))
    return done.exit_code, done.output


def test_what_waits_moves_and_is_shown(data: Path) -> None:
    lake = data / "lake"
    assert run_with_lake("doctor", "--data-dir", data, lake=lake)[1].count("1 are due for more than a day") == 1
    assert "waiting:  1 attempts due, 0 ended" in run_with_lake("lake", "status", "--data-dir", data, lake=lake)[1]
    status, moved = run_with_lake("lake", "move", "--data-dir", data, lake=lake)
    assert status == 0
    assert "batch 1: 1 attempts, 3 reports, " in moved
    assert "10 rows deleted from the database" in moved
    shown = run_with_lake("lake", "status", "--data-dir", data, lake=lake)[1]
    assert "moved:    1 attempts in 1 batches, " in shown
    assert "waiting:  0 attempts due" in shown
    assert f"ok    lake: {lake}, 1 attempts moved" in run_with_lake("doctor", "--data-dir", data, lake=lake)[1]
    assert (
        "fail  lake: 1 attempts are in a lake, and TRMON_LAKE_URL is not set"
        in run_with_lake("doctor", "--data-dir", data)[1]
    )


def test_a_lake_that_is_away_is_named_with_what_waits(data: Path) -> None:
    blocked = data / "blocked"
    blocked.mkdir()
    (blocked / "reports").mkdir()
    (blocked / "reports" / "_delta_log").write_text("no folder")
    status, said = run_with_lake("doctor", "--data-dir", data, lake=blocked)
    assert status == 1
    assert f"fail  lake: the lake {blocked} failed" in said
    assert "1 attempts of ended runs wait" in said


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
