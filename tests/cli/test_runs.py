"""`trmon runs`, `signals`, `delete` and `note` over a running service."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator

import httpx
import pytest
from rich.console import Console

from tests.fixtures.command import run_here
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, train
from trmon.cli.runs import note_table
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey
from trmon_client.api import NoteInfo

OTHER = RunKey("code", "ppo")
N_STEPS = 5


@pytest.fixture(scope="module")
def watched(shared_service: ThreadedService, shared: httpx.Client) -> str:
    """The URL of a service with a finished run, and one that continues."""
    train(shared, MATH, steps=range(N_STEPS))
    train(shared, OTHER, steps=range(2), end=False)
    await_batches(shared, OTHER, n=1)
    return shared_service.url


def test_runs_are_filtered(watched: str) -> None:
    def found(*filters: object) -> list[str]:
        shown = run_here("runs", "--json", *filters, url=watched)
        return [json.loads(line)["run"] for line in shown.stdout.splitlines()]

    assert found("--tag", "dapo", "--owner", "me") == ["ppo", "grpo"]
    assert found("--project", "math", "--state", "finished", "--limit", 1) == ["grpo"]
    assert found("--archived") == []


def test_signals_are_printed_for_a_spreadsheet_and_for_a_program(watched: str) -> None:
    names = run_here("signals", "math/grpo", url=watched).stdout.split()
    assert {"lr", "mask_rate", "total_kl_k3"} <= {*names}
    table = run_here("signals", "math/grpo", "lr", "total_kl_k3", "--steps", "1:3", "--csv", url=watched)
    assert table.exit_code == 0, table.stderr
    rows = [*csv.DictReader(table.stdout.splitlines())]
    assert [(row["step"], row["lr"]) for row in rows] == [("1", "0.001"), ("2", "0.001"), ("3", "0.001")]
    lines = run_here("signals", "math/grpo", "lr", "total_kl_k3", "--steps", "1:3", "--json", url=watched)
    read = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [str(row["signals"]["total_kl_k3"]) for row in read] == [row["total_kl_k3"] for row in rows]
    assert "0.001" in run_here("signals", "math/grpo", "lr", url=watched).stdout
    assert len(run_here("signals", "math/grpo", "lr", "--csv", "--points", 2, url=watched).stdout.splitlines()) == 3


def test_a_note_is_written_and_read(watched: str) -> None:
    written = run_here("note", "math/grpo", "lr raised", "--step", 3, url=watched)
    assert written.exit_code == 0, written.stderr
    assert "lr raised" in written.stdout
    [note] = [json.loads(line) for line in run_here("note", "math/grpo", "--json", url=watched).stdout.splitlines()]
    assert (note["text"], note["step"], note["author"]) == ("lr raised", 3, "local")
    made_safe = run_here("note", "math/grpo", "a\x1b[2Jb", url=watched)
    assert (made_safe.exit_code, "a\ufffd[2Jb" in made_safe.stdout) == (0, True)


def test_a_run_is_deleted_after_asking_by_an_admin_and_the_audit_log_says_so(service: ThreadedService) -> None:
    with service.client() as client:
        train(client)
        client.headers["Authorization"] = f"Bearer {make_token(client, 'root', Scope.ADMIN)}"
        reader = make_token(client, "reader", Scope.READ)
        root = client.headers["Authorization"].removeprefix("Bearer ")
        asked = run_here("delete", "math/grpo", answer="n\n", url=service.url, token=root)
        assert "Delete math/grpo (finished, at step 2) with all its data? [y/N]" in asked.stdout
        assert (asked.exit_code, client.get("/api/v1/runs/math/grpo").status_code) == (1, 200)
        refused = run_here("delete", "math/grpo", "--yes", url=service.url, token=reader)
        assert (refused.exit_code, "lacks the scope 'admin'" in refused.stderr) == (1, True)
        done = run_here("delete", "math/grpo", answer="y\n", url=service.url, token=root)
        assert (done.exit_code, "deleted math/grpo" in done.stdout) == (0, True), done.stderr
        assert client.get("/api/v1/runs/math/grpo").status_code == 404
        [entry] = client.get("/api/v1/audit", params={"action": "run.delete"}).json()["items"]
        assert (entry["actor"], entry["target"]) == ("root", "math/grpo")


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_a_time_names_its_zone() -> None:
    written = NoteInfo(id=1, step=62, text="lr halved", author="ada", at=1_760_000_000.0)
    text = io.StringIO()
    Console(file=text, width=100).print(note_table([written]))
    [line] = [line for line in text.getvalue().splitlines() if "ada" in line]
    assert line.split() == ["2025-10-09", "17:53:20", "JST", "ada", "62", "lr", "halved"]
