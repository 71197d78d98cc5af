"""Data that 0.2.0 wrote, opened by this version: a database, an archive, a spool, a body on the wire."""

from __future__ import annotations

import math
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import zstandard

from tests.client.trainer import batch, settings
from tests.fixtures.command import run_here
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon_client.core import wire
from trmon_client.core.column_schema import TURN_COLUMNS, TURN_STEMS
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.monitor import Monitor

RECORDED = Path(__file__).parents[1] / "fixtures" / "data_of_0_2_0"
"""See its README."""
Serving = Callable[..., ThreadedService]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory with the database."""
    folder = tmp_path / "data"
    folder.mkdir()
    compressed = (RECORDED / "trmon.sqlite.zst").read_bytes()
    (folder / "trmon.sqlite").write_bytes(zstandard.ZstdDecompressor().decompress(compressed))
    (folder / "trmon.sqlite").chmod(0o600)
    return folder


@pytest.fixture
def spool_dir(tmp_path: Path) -> Path:
    """A spool directory with the segment."""
    folder = tmp_path / "spool" / "math" / "spooled" / "former"
    folder.mkdir(parents=True)
    shutil.copy(RECORDED / "spool.seg", folder / "00000000.seg")
    return tmp_path / "spool"


def read(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(f"/api/v1/runs/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def closed(client: httpx.Client, run: str) -> list[int]:
    """Return the steps of the closed batches of a run, in order."""
    return sorted(batch["step"] for batch in read(client, f"{run}/batches", limit=50)["items"])


def whatif(client: httpx.Client, run: str) -> int:
    """Return over how many steps' stored sequences another policy decides."""
    answer = client.post(f"/api/v1/runs/{run}/whatif", json={"policy": "geo_mask"})
    assert answer.status_code == 200, answer.text
    found = answer.json()["range"]
    return int(found["n_steps"] - found["n_steps_without_reports"])


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Return a function that starts services over a data directory; all end with the test."""
    with ExitStack() as stack:

        def start(folder: Path, **settings: Any) -> ThreadedService:
            service = ThreadedService(folder, **settings)
            stack.callback(service.stop)
            return service

        yield start


def test_a_database_opens_with_everything_in_it(serving: Serving, data_dir: Path) -> None:
    service = serving(data_dir)
    with service.client() as client:
        runs = {f"{run['project']}/{run['run']}": run for run in client.get("/api/v1/runs").json()["items"]}
        assert {name: run["state"] for name, run in runs.items() if name != "math/live"} == {
            "math/finished": "finished",
            "math/crashed": "crashed",
            "math/spooled": "finished",
            "code/archived": "finished",
        }
        assert runs["math/crashed"]["end"]["reason"] == "exception"
        assert closed(client, "math/finished") == list(range(24))
        row = read(client, "math/finished/batches/3")
        assert (row["complete"], row["scalars"]) == (True, {"grad_norm": 1.0, "entropy": 0.5})
        assert math.isclose(row["signals"]["reward_mean"], 0.5)
        series = read(client, "math/finished/signals", names="total_kl_k3,grad_norm")
        assert series["step"] == list(range(24))
        alerts = client.get("/api/v1/alerts", params={"project": "math"}).json()["items"]
        assert {(alert["run"], alert["rule"]) for alert in alerts} >= {("crashed", "crashed")}
        diagnosis = read(client, "math/finished/diagnosis")
        # A run that ended under 0.2.0 is not judged again; its stored incident remains.
        assert (diagnosis["rows"], diagnosis["unmeasured"]) == (0, [])
        assert diagnosis["incident"]["title"] == "variance blowup"
        assert whatif(client, "math/finished") == 24
        assert client.get("/metrics").status_code == 200


def test_a_live_run_of_a_database_goes_on(serving: Serving, data_dir: Path, tmp_path: Path) -> None:
    service = serving(data_dir)
    given = settings(tmp_path, url=service.url, run="live", attempt="first")
    with Monitor(given) as monitor:
        for step in range(5, 30):
            monitor.log_batch(step=step, **batch(seed=step), rewards=np.linspace(0.0, 1.0, 4))
    with service.client() as client:
        eventually(lambda: read(client, "math/live"), lambda run: run["state"] == "finished")
        eventually(lambda: closed(client, "math/live"), lambda steps: steps == list(range(30)))
        assert read(client, "math/live")["end"]["reason"] == "closed"


def test_what_a_client_of_0_2_0_sends_again_after_the_upgrade_is_known(
    serving: Serving, data_dir: Path, spool_dir: Path
) -> None:
    service = serving(data_dir)
    for _ in range(2):
        again = run_here("ingest", spool_dir, "--url", service.url)
        assert (again.exit_code, again.stdout) == (0, "6 duplicate\n"), again.stderr
    with service.client() as client:
        assert closed(client, "math/spooled") == [0, 1, 2, 3]


def one_turn_each(columns: Columns) -> wire.PackedTurns:
    """Return what 0.2.0 did not know: the turns of sequences."""
    names = ["n_tokens", *(f"{pair}_{stem}" for pair in columns.pairs for stem in TURN_STEMS)]
    n_turns = np.ones(columns.n_sequences, np.int64)
    by_name = {name: np.ones(columns.n_sequences, TURN_COLUMNS[name].dtype) for name in names}
    return wire.pack_turns(TurnColumns(n_turns, by_name))


def test_a_report_with_a_field_that_0_2_0_ignored_is_known(serving: Serving, data_dir: Path) -> None:
    bundle = msgspec.msgpack.decode((RECORDED / "bundle.msgpack").read_bytes())
    reports = [wire.decode(msgspec.msgpack.encode(one)) for one in bundle["messages"] if one["kind"] == "report"]
    assert reports
    service = serving(data_dir)
    with service.client() as client:
        for sent in reports:
            again = msgspec.structs.replace(sent, turns=one_turn_each(wire.columns_of_packed(sent, sent.parcel)))
            answer = client.post(
                f"/api/v1/runs/{sent.project}/{sent.run}/reports",
                content=wire.encode(again),
                headers={"Content-Type": wire.MSGPACK},
            )
            assert (answer.status_code, wire.decode_ack(answer.content).status) == (200, "duplicate")


def test_a_spool_is_uploaded(service: ThreadedService, spool_dir: Path) -> None:
    uploaded = run_here("ingest", spool_dir, "--url", service.url)
    assert (uploaded.exit_code, uploaded.stdout) == (0, "6 stored\n"), uploaded.stderr
    with service.client() as client:
        eventually(lambda: read(client, "math/spooled"), lambda run: run["state"] == "finished")
        assert closed(client, "math/spooled") == [0, 1, 2, 3]
        assert all(row["complete"] for row in read(client, "math/spooled/batches")["items"])


def test_a_body_on_the_wire_is_accepted_once(service: ThreadedService) -> None:
    body = (RECORDED / "bundle.msgpack").read_bytes()
    with service.client() as client:
        for outcome in ("stored", "duplicate"):
            answer = client.post("/api/v1/reports", content=body, headers={"Content-Type": wire.MSGPACK})
            acks = wire.decode_acks(answer.content).acks
            assert [ack.status for ack in acks] == [outcome] * 6
        eventually(lambda: closed(client, "math/spooled"), lambda steps: steps == [0, 1, 2, 3])


def test_the_next_process_of_a_run_sends_its_spool_of_0_2_0(
    service: ThreadedService, spool_dir: Path, tmp_path: Path
) -> None:
    given = settings(tmp_path, url=service.url, run="spooled", attempt="second")
    with Monitor(given) as monitor:
        monitor.log_batch(step=4, **batch())
    with service.client() as client:
        eventually(lambda: closed(client, "math/spooled"), lambda steps: steps == [0, 1, 2, 3, 4])


def test_an_archive_is_imported(serving: Serving, tmp_path: Path) -> None:
    with tarfile.open(RECORDED / "archive.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    imported = run_here("import", tmp_path / "archive", "--data-dir", tmp_path / "data")
    assert (imported.exit_code, imported.stdout) == (0, "code/archived: imported\n"), imported.stderr
    service = serving(tmp_path / "data")
    with service.client() as client:
        run = read(client, "code/archived")
        assert (run["state"], run["config"], run["owner"]) == ("finished", {"lr": 1e-6}, "me")
        assert closed(client, "code/archived") == list(range(6))
        assert read(client, "code/archived/batches/3")["complete"] is True
        assert whatif(client, "code/archived") == 6
