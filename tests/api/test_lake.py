"""Routes of runs in a lake: the same answers from there, and what to do where it cannot be read."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from tests.fixtures.command import run_here
from tests.fixtures.postgres import Postgres
from tests.fixtures.running_service import ILL, RecordedRuns
from tests.fixtures.s3 import BUCKET, S3Server, s3_lake
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from tests.store.builders import stored_reports
from tests.store.lake.lakes import delete_moved, move_to_lake
from trmon.domain.identity import RunKey
from trmon.store import Store
from trmon.store.schema import tables

RUN = f"/api/v1/runs/{ILL.key}"
SIGNALS = "reward_mean,mismatch_kl_k3,staleness_kl_k3,mask_rate,grad_norm,lr"
GETS = (
    "/api/v1/runs",
    RUN,
    f"{RUN}/attempts",
    f"{RUN}/signals/names",
    f"{RUN}/signals/scalars",
    f"{RUN}/signals?names={SIGNALS}",
    f"{RUN}/signals?names={SIGNALS}&updates=all&points=7",
    f"{RUN}/signals?names={SIGNALS}&from=3&to=9&digits=4",
    f"{RUN}/signals?names={SIGNALS}&format=csv",
    f"{RUN}/signals?names={SIGNALS}&format=parquet",
    f"{RUN}/signals?names={SIGNALS}&format=arrow&updates=all",
    f"{RUN}/signals?names=nothing_like_it",
    f"{RUN}/diagnosis",
    f"{RUN}/budget",
    "/api/v1/compare?runs=math/stale-8b,math/healthy-8b",
    "/api/v1/compare?runs=math/stale-8b&by=time",
    f"{RUN}/report.html",
    f"{RUN}/reasons",
    f"{RUN}/reasons?points=5&from=2",
    f"{RUN}/distribution",
    f"{RUN}/distribution?points=4",
    "/api/v1/fleet",
    "/api/v1/fleet/named?runs=math/stale-8b",
    f"{RUN}/batches",
    f"{RUN}/batches?order=oldest&limit=13",
    f"{RUN}/batches/4",
    f"{RUN}/batches/4?update=1",
    f"{RUN}/batches/4?update=99",
    f"{RUN}/batches/99999",
    f"{RUN}/batches/4/decisions",
    f"{RUN}/batches/4/sequences",
    f"{RUN}/batches/4/sequences?update=0&first=2&limit=3&turns=true",
    f"{RUN}/policy",
    f"{RUN}/policy/history",
    f"{RUN}/notes",
    f"{RUN}/adaptation",
    "/api/v1/alerts?run=stale-8b",
)
POSTS = {"whatif": {"policy": "trm"}, "whatif of a range": {"policy": "geo_mask", "from_step": 3, "to_step": 8}}
CASES = (*GETS, *POSTS, "alert events")
_TIME = re.compile(rb"<time.*?</time>")


@dataclass(frozen=True)
class Answers:
    """What a service answered while the run was in its database, and once it was only in the lake."""

    stored: dict[str, tuple[int, bytes]]
    moved: dict[str, tuple[int, bytes]]


@pytest.fixture(scope="module", params=["a folder", pytest.param("s3", marks=pytest.mark.server("postgres"))])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers over SQLite and a folder, and over PostgreSQL and S3."""
    folder = tmp_path_factory.mktemp("lake-reads")
    recorded: RecordedRuns = request.getfixturevalue("recorded")
    if request.param == "a folder":
        return _collect(recorded.serve(recorded.finished, folder / "data", lake_url=f"{folder}/lake"), f"{folder}/lake")
    server: Postgres = request.getfixturevalue("postgres_server")
    url = server.database(template=request.getfixturevalue("postgres_template"))
    (folder / "recorded").mkdir()
    shutil.copy(recorded.finished, folder / "recorded" / "trmon.sqlite")
    for moved in (
        run_here("export", ILL.key.project, folder / "archive", "--data-dir", folder / "recorded"),
        run_here("import", folder / "archive", database_url=url),
    ):
        assert moved.exit_code == 0, moved.stderr
    with pytest.MonkeyPatch.context() as patch, s3_lake(patch) as lake_url:
        return _collect(ThreadedService(folder / "data", database_url=url, lake_url=lake_url), lake_url)


def _collect(service: ThreadedService, lake_url: str) -> Answers:
    try:
        with service.client() as client:
            client.post(f"{RUN}/notes", json={"text": "look here", "step": 3}).raise_for_status()
        service.restart()
        with service.client() as client:
            store: Store = service.app.state.components.store
            stored = _ask(client)
            move_to_lake(store, lake_url, now=time.time() + 3600)
            delete_moved(store)
            assert not stored_reports(store, 1)
            return Answers(stored, _ask(client))
    finally:
        service.stop()


def _ask(client: httpx.Client) -> dict[str, tuple[int, bytes]]:
    answers = {path: client.get(path) for path in GETS}
    answers |= {what: client.post(f"{RUN}/whatif", json=body) for what, body in POSTS.items()}
    [alert, *_] = answers["/api/v1/alerts?run=stale-8b"].json()["items"]
    answers["alert events"] = client.get("/api/v1/alerts/events", params={"identity": alert["identity"]})
    return {what: (answer.status_code, _TIME.sub(b"", answer.content)) for what, answer in answers.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_route_answers_the_same_from_the_lake(answers: Answers, case: str) -> None:
    status, content = answers.stored[case]
    assert answers.moved[case] == (status, content)
    assert status in (200, 400, 404)


def test_the_answers_are_of_a_run_with_data(answers: Answers) -> None:
    of_nothing = {case for case, (status, _) in answers.stored.items() if status != 200}
    assert of_nothing == {
        f"{RUN}/signals?names=nothing_like_it",
        f"{RUN}/batches/4?update=99",
        f"{RUN}/batches/99999",
    }


MOVED = "/api/v1/runs/math/moved"
READS = (f"{MOVED}/batches", f"{MOVED}/batches/1/sequences", f"{MOVED}/signals?names=total_kl_k3", f"{MOVED}/budget")

IMPORTING_DELTALAKE = tuple(
    f"trmon.store.lake.{name}" for name in ("delta_tables", "files", "history", "mover", "reader", "runs")
)


def serve_moved_run(data_dir: Path, lake_url: str) -> ThreadedService:
    """Return a service with a run that was moved to a lake, and one that was not."""
    service = ThreadedService(data_dir, lake_url=lake_url)
    try:
        with service.client() as client:
            train(client, RunKey("math", "moved"))
            store = service.app.state.components.store
            move_to_lake(store, lake_url, now=time.time() + 3600)
            delete_moved(store)
            assert [client.get(path).status_code for path in READS] == [200] * len(READS)
            train(client, RunKey("math", "stored"))
    except BaseException:
        service.stop()
        raise
    return service


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the lake."""
    return tmp_path_factory.mktemp("failures") / "lake"


@pytest.fixture(scope="module")
def moved(lake_folder: Path) -> Iterator[ThreadedService]:
    """A service with a lake in a folder, which each test restarts; those that damage something stand last."""
    service = serve_moved_run(lake_folder.parent / "data", str(lake_folder))
    yield service
    service.stop()


def problems(service: ThreadedService) -> set[tuple[int, str]]:
    """Return the status and detail of each route that reads the moved run, after checking that all else continues."""
    with service.client() as client:
        answers = [client.get(path) for path in READS]
        assert_all_else_goes_on(client)
    return {(answer.status_code, answer.json()["detail"]) for answer in answers}


def assert_all_else_goes_on(client: httpx.Client) -> None:
    """Check what reads no moved rows, and that another run is taken and read."""
    of_moved = (MOVED, f"{MOVED}/attempts", f"{MOVED}/diagnosis")
    for path in ("/api/v1/runs", *of_moved, "/api/v1/fleet", "/api/v1/runs/math/stored/batches"):
        assert client.get(path).status_code == 200, path
    train(client, RunKey("math", f"new-{time.time_ns()}"))


def test_without_a_lake_url_the_answer_says_what_to_set(moved: ThreadedService) -> None:
    moved.restart(lake_url=None)
    assert problems(moved) == {
        (503, "the run was moved to a lake, but TRMON_LAKE_URL is not set; set it to the lake of this database")
    }


def test_an_empty_folder_is_no_lake(moved: ThreadedService, tmp_path: Path) -> None:
    moved.restart(lake_url=str(tmp_path / "elsewhere"))
    [(status, detail)] = problems(moved)
    assert status == 503
    assert detail.startswith(f"the run is in the lake {tmp_path / 'elsewhere'}, which cannot be read")
    assert "check TRMON_LAKE_URL" in detail


def test_without_the_extra_the_answer_says_what_to_install(
    moved: ThreadedService, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("deltalake", *IMPORTING_DELTALAKE))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    moved.restart(lake_url=str(lake_folder))
    [(status, detail)] = problems(moved)
    assert status == 503
    assert detail.endswith("needs deltalake; pip install 'trmon[lake]' brings it")


def test_a_file_that_is_damaged_fails_its_run_alone(moved: ThreadedService, lake_folder: Path) -> None:
    moved.restart(lake_url=str(lake_folder))
    [file] = (lake_folder / "reports").rglob("*.parquet")
    file.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    with moved.client() as client:
        assert client.get(READS[1]).status_code == 500
        assert client.get(READS[0]).status_code == 200
        assert_all_else_goes_on(client)


def test_the_lake_of_another_database_lacks_the_run(moved: ThreadedService, lake_folder: Path) -> None:
    # Databases of tests are copies of one, with its identity.
    other = update(tables.database_identity).values(id="another")
    moved.app.state.components.store.writer.submit(lambda transaction: transaction.connection.execute(other)).result()
    moved.restart(lake_url=str(lake_folder))
    assert problems(moved) == {
        (503, "the lake lacks attempt 1, which was moved to it; set TRMON_LAKE_URL to the lake of this database")
    }


def test_a_bucket_that_is_away_answers_again_once_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = S3Server()
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    service = serve_moved_run(tmp_path / "data", f"s3://{BUCKET}/away")
    try:
        bucket.stop()
        service.restart()
        began = time.monotonic()
        [(status, detail)] = problems(service)
        assert time.monotonic() - began < 60.0
        assert status == 503
        assert "cannot be read (" in detail
        assert "runs in the database are not affected" in detail
        bucket.start()
        with service.client() as client:
            for path in READS:
                eventually(lambda path=path: client.get(path).status_code, lambda status: status == 200)
    finally:
        service.stop()
        bucket.stop()
