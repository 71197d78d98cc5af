"""Every route that reads a run answers the same once its attempts were moved to the lake and deleted here."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.replay import replaying
from tests.fixtures.running_service import ILL, WELL, RecordedRuns
from tests.fixtures.s3 import BUCKET, s3_server
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.store.builders import stored_reports
from tests.store.lake.lakes import delete_moved, move_to_lake
from trmon.store import Store

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
    f"{RUN}/budget",
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
    if request.param == "a folder":
        recorded: RecordedRuns = request.getfixturevalue("recorded")
        return _collect(recorded.serve(recorded.finished, folder / "data", lake_url=f"{folder}/lake"), f"{folder}/lake")
    server: Postgres = request.getfixturevalue("postgres_server")
    url, lake_url = server.database(template=request.getfixturevalue("postgres_template")), f"s3://{BUCKET}/fleet"
    with (
        s3_server() as variables,
        in_environment(variables),
        WorkerProcess(url, log=folder / "worker.log", lake_url=lake_url),
    ):
        service = ThreadedService(folder / "data", database_url=url, lake_url=lake_url)
        with service.client() as client:
            with replaying(client, ILL, WELL):
                pass
            for run in (ILL, WELL):
                eventually(lambda run=run: client.get(f"/api/v1/runs/{run.key}").json()["state"], "finished".__eq__)
        return _collect(service, lake_url)


@contextmanager
def in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def _collect(service: ThreadedService, lake_url: str) -> Answers:
    try:
        with service.client() as client:
            client.post(f"{RUN}/notes", json={"text": "look here", "step": 3}).raise_for_status()
        service.restart()
        with service.client() as client:
            store: Store = service.app.state.components.store
            eventually(store.summaries.outdated, lambda waiting: not waiting)
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
