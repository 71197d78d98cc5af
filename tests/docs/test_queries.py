"""The recipes of the page on queries, executed over runs in a lake and one in the database."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command import run_here
from tests.fixtures.replay import PROJECT, ReplayedRun, replaying
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from tests.store.builders import alert, commit
from tests.store.lake.lakes import delete_moved, move_to_lake
from trmon.config.settings import Settings
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity
from trmon.store import Store

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text("utf-8")
MECHANISMS, FALSE_PAGES, MASKED = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
STRICT = '{"name": "strict", "criteria": [{"statistic": "max_binary_kl", "pair": "total", "upper": 0.02}]}'

pytestmark = pytest.mark.slow

MOVED = ("stale", "healthy")


@dataclass(frozen=True)
class MovedRuns:
    """The folder of a database, and the lake that the runs `MOVED` are in."""

    data_dir: Path
    lake: Path


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> MovedRuns:
    """An ill run and a healthy one in a lake, of which the latter was paged for nothing, and one in the database."""
    folder = tmp_path_factory.mktemp("moved")
    made = MovedRuns(data_dir=folder / "data", lake=folder / "lake")
    service, live = ThreadedService(made.data_dir), RunKey(PROJECT, "live")
    with service.client() as client:
        with replaying(client, *(ReplayedRun(name, name) for name in MOVED)):
            pass
        for name in MOVED:
            path = f"/api/v1/runs/{PROJECT}/{name}"
            eventually(lambda path=path: client.get(path).json()["state"], "finished".__eq__)
        train(client, live, steps=range(4), end=False)
        eventually(lambda: len(client.get(f"/api/v1/runs/{live}/batches").json()["items"]), lambda n: n == 3)
    service.stop()
    with closing(Store.open(Settings(data_dir=made.data_dir).store_url)) as store:
        runs = [store.runs.get(RunKey(PROJECT, name), access=EVERYTHING) for name in MOVED]
        move_to_lake(store, str(made.lake), now=time.time() + 1)
        delete_moved(store)
        given = {"severity": Severity.PAGE, "state": AlertState.RESOLVED, "attempt_id": runs[1].attempt_id}
        commit(store, runs[1].id, alerts=[alert(run_id=runs[1].id, rule="nervous", **given)])
    return made


def answered(moved: MovedRuns, sql: str) -> list[dict[str, Any]]:
    shown = run_here("query", sql, "--format", "json", data_dir=str(moved.data_dir), lake_url=str(moved.lake))
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.stdout.splitlines()]


def test_the_mechanism_of_the_ill_run_is_found(moved: MovedRuns) -> None:
    [row] = answered(moved, MECHANISMS)
    assert (row["mechanism"], row["runs"]) == ("stale_rollouts", 1)


def test_the_page_on_the_healthy_run_is_false(moved: MovedRuns) -> None:
    assert answered(moved, FALSE_PAGES) == [{"rule": "nervous", "false_pages": 1, "runs": 1, "share": 1.0}]


def test_sql_and_a_what_if_mask_the_same_share(moved: MovedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    [of_lake] = answered(moved, MASKED.replace("n_tokens > 0", "n_tokens > 0 AND month IS NOT NULL"))
    shown = run_here("whatif", "--source", moved.lake, "--policy", STRICT, "--json")
    total = json.loads(shown.stdout)["total"]
    assert (of_lake["n_sequences"], of_lake["mask_rate"]) == (total["n_sequences"], total["mask_rate"])
    [with_live] = answered(moved, MASKED)
    assert with_live["n_sequences"] == total["n_sequences"] + 3 * 4 + 4

    monkeypatch.setenv("TRMON_LAKE_URL", str(moved.lake))
    namespace: dict[str, Any] = {}
    for cell in PYTHON:
        exec(compile(cell, "cell", "exec"), namespace)
    assert namespace["ill"] == [("stale_rollouts", 1)]
    assert namespace["masked"].rows() == [("math", pytest.approx(total["mask_rate"], rel=1e-12))]
    assert namespace["rates"] == [("math", pytest.approx(total["mask_rate"], rel=1e-12))]
