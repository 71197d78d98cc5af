"""`trmon import` of logs: into a real service, once or again, and what a person reads afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from tests.fixtures.service import ThreadedService
from tests.fixtures.tracker_logs import TRACKER_LOGS, unpacked_mlflow_store
from tests.fixtures.waiting import eventually
from trmon.cli import app
from trmon.cli.import_ import run_name

N_STEPS = 30
BROKEN_AT = 20
START = 1_700_000_000.0


def row(step: int) -> dict[str, Any]:
    """A line of verl's file logger."""
    metrics = {
        "actor/lr": 1e-6,
        "actor/grad_norm": 90.0 if step == BROKEN_AT else 0.3,
        "critic/score/mean": 0.5,
        "rollout_corr/kl": 1e-4,
        "rollout_corr/k3_kl": 1e-4 if step < BROKEN_AT else 0.2,
        "training/rollout_actor_probs_pearson_corr": 0.999 if step < BROKEN_AT else 0.2,
        "mine/seen": step,
        "_timestamp": START + 60.0 * step,
    }
    return {"step": step, "data": metrics}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A run of 30 steps, whose engines disagree from step 20 on."""
    path = tmp_path / "grpo 7b.jsonl"
    write(path, range(N_STEPS))
    return path


def write(path: Path, steps: range) -> None:
    path.write_text("".join(json.dumps(row(step)) + "\n" for step in steps))


def run_import(service: ThreadedService, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, arguments), "--project", "math", "--url", service.url])


def read(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_imported_log_is_a_run_with_rows_charts_alerts_and_a_diagnosis(service: ThreadedService, log: Path) -> None:
    done = run_import(service, log)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "math/grpo-7b: 30 steps imported (jsonl, verl's metric names)\n"
    path = "/api/v1/runs/math/grpo-7b"
    with service.client() as client:
        run = eventually(lambda: read(client, path), lambda run: run["state"] == "finished")
        assert (run["last_step"], run["config"]["imported"]["framework"]) == (N_STEPS - 1, "verl")
        names = "mismatch_kl_k3,reward_mean,mine/seen,_timestamp"
        signals = read(client, f"{path}/signals", names=names, points=N_STEPS)["signals"]
        assert signals["mismatch_kl_k3"]["last"] == [1e-4] * BROKEN_AT + [0.2] * (N_STEPS - BROKEN_AT)
        assert signals["mine/seen"]["last"] == list(range(N_STEPS))
        assert signals["_timestamp"]["last"][-1] == START + 60.0 * (N_STEPS - 1)
        assert signals["reward_mean"]["last"] == [0.5] * N_STEPS
        assert "gradient_spike" in {alert["rule"] for alert in read(client, "/api/v1/alerts")["items"]}
    diagnosed = CliRunner().invoke(app, ["diagnose", "math/grpo-7b", "--url", service.url, "--json"])
    assert json.loads(diagnosed.stdout)["primary"] == "A"


def test_an_import_again_changes_nothing_and_a_longer_log_adds_its_steps(service: ThreadedService, log: Path) -> None:
    write(log, range(10))
    assert "10 steps imported" in run_import(service, log, "--run", "grpo").stdout
    path = "/api/v1/runs/math/grpo"

    def seen(client: httpx.Client) -> Any:
        batches = read(client, f"{path}/batches", limit=50)["items"]
        return [(batch["step"], batch["signals"], batch.get("revised")) for batch in batches]

    with service.client() as client:
        before = eventually(lambda: seen(client), lambda rows: len(rows) == 10)
        again = run_import(service, log, "--run", "grpo")
        assert again.stdout == "math/grpo: 10 steps already present (jsonl, verl's metric names)\n"
        assert seen(client) == before
        write(log, range(N_STEPS))
        assert run_import(service, log, "--run", "grpo").exit_code == 0
        rows = eventually(lambda: seen(client), lambda rows: len(rows) == N_STEPS)
    assert sorted(row[0] for row in rows) == list(range(N_STEPS))


def test_a_restart_is_a_second_attempt_and_bad_lines_are_named(service: ThreadedService, log: Path) -> None:
    lines = [json.dumps(row(step)) for step in (0, 1, 2, 3)]
    lines += ['{"step": 4, "da', json.dumps({"step": 2, "data": row(2)["data"] | {"note": "resumed"}})]
    lines += [json.dumps(row(3)), '{"step": 4, "lo']
    log.write_text("\n".join(lines))
    done = run_import(service, log)
    assert done.exit_code == 1
    assert "6 steps in 2 attempts imported" in done.stdout
    assert [line.split(": ", 1)[1] for line in done.stderr.splitlines()] == [
        "line 5: is not a JSON object",
        "line 6: note: 'resumed' is not a number; left out",
        "line 6: goes back to step 2; imported as another attempt",
        "line 8: is not a JSON object",
    ]
    with service.client() as client:
        path = "/api/v1/runs/math/grpo-7b/batches"
        batches = eventually(lambda: read(client, path)["items"], lambda found: len(found) == 6)
    assert sorted(batch["step"] for batch in batches) == [0, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("recording", "run", "steps"),
    [
        ("tensorboard/grpo", "grpo", range(1, 7)),
        ("wandb/offline-run-20231114_221320-trmon01", "offline-run-20231114_221320-trmon01", range(1, 7)),
        ("mlflow/mlflow.db/grpo", "grpo", range(1, 7)),
    ],
    ids=["tensorboard", "wandb", "mlflow"],
)
def test_what_a_tracker_recorded_is_a_run_with_charts_and_a_diagnosis(
    recording: str, run: str, steps: range, service: ThreadedService, tmp_path: Path
) -> None:
    name = recording.partition("/")[0]
    log = unpacked_mlflow_store(tmp_path) / "grpo" if name == "mlflow" else TRACKER_LOGS / recording
    done = run_import(service, log)
    said = f"math/{run}: {len(steps)} steps imported ({name}, verl's metric names)\n"
    assert (done.exit_code, done.stderr, done.stdout) == (0, "", said)
    again = run_import(service, log)
    assert (again.exit_code, again.stdout) == (0, said.replace("imported", "already present"))
    path = f"/api/v1/runs/math/{run}"
    with service.client() as client:
        eventually(lambda: read(client, path), lambda run: run["state"] == "finished")
        names = "mine/seen,_timestamp,grad_norm,loss,mismatch_kl_k3"
        signals = read(client, f"{path}/signals", names=names, points=len(steps))["signals"]
    assert signals["mine/seen"]["last"] == list(steps)
    assert signals["_timestamp"]["last"] == [START + 60.0 * step for step in steps]
    assert signals["mismatch_kl_k3"]["last"] == pytest.approx([0.001 * step for step in steps])
    assert [signals[name]["last"].index(value) for name, value in (("grad_norm", "inf"), ("loss", None))] == [3, 4]
    for given in (f"math/{run}", str(log)):
        diagnosed = CliRunner().invoke(app, ["diagnose", given, "--url", service.url, "--json"])
        assert diagnosed.exit_code == 0, diagnosed.stderr
        assert "primary" in json.loads(diagnosed.stdout).get("diagnosis", json.loads(diagnosed.stdout))


def test_a_log_that_grew_within_its_first_step_adds_the_rest(service: ThreadedService, tmp_path: Path) -> None:
    recorded = next((TRACKER_LOGS / "tensorboard" / "grpo").iterdir())
    events = tmp_path / recorded.name
    for n_bytes in (100, 200, None):
        events.write_bytes(recorded.read_bytes()[:n_bytes])
        done = run_import(service, events, "--run", "grpo")
        assert "refuses" not in done.stderr

    def seen(client: httpx.Client) -> Any:
        path = "/api/v1/runs/math/grpo/signals"
        # A name is known once a step with it has closed.
        if "mine/seen" not in read(client, f"{path}/names"):
            return []
        return read(client, path, names="mine/seen", points=6)["signals"]["mine/seen"]["last"]

    with service.client() as client:
        assert eventually(lambda: seen(client), lambda values: len(values) == 6) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize(
    ("name", "run"),
    [("a.b c.log", "a.b-c"), ("math/trainer_state.json", "math"), ("qwen/checkpoint-9/trainer_state.json", "qwen")],
)
def test_a_run_has_the_name_of_its_log(name: str, run: str, tmp_path: Path) -> None:
    assert run_name(tmp_path / name) == run


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("{log}",), "--project: is required to import a log"),
        (("{log}", "{log}", "--project", "math", "--run", "a"), "--run: is for one log"),
        (("{log}", "--project", "math", "--data-dir", "data"), "--data-dir: is for archives"),
        (("{log}", "--project", "math", "--url", "http://127.0.0.1:9"), "no service answers at http://127.0.0.1:9"),
        (("none.jsonl", "--project", "math"), "none.jsonl: cannot be read"),
    ],
)
def test_what_cannot_be_imported_is_one_line(arguments: tuple[str, ...], reason: str, log: Path) -> None:
    refused = CliRunner().invoke(app, ["import", *(argument.format(log=log) for argument in arguments)])
    assert refused.exit_code == 1
    assert reason in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
