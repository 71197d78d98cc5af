"""Findings in the trainer's own tracker: real packages, offline, beside what the trainer logs there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import mlflow
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from tests.peers.conftest import run_program

TRAINER = """
import sys, time
from tests.client.trainer import batch
import trmon_client as trmon

{begin}
monitor = trmon.init(project="math", run="tiny", tracker={tracker!r})
told = 0
for step in range(300):
    given = batch(16, seed=step)
    if step >= 12:
        given["rollout_logprobs"][:, ::2] = 0.0
    if step == 13:
        monitor.checkpoint(10, "/c/10")
    decision = monitor.log_batch(step=step, **given)
    {log}
    time.sleep(0.1)
    told = told + (((decision.advice or {{}}).get("incident") or {{}}).get("severity") == "page")
    if told > 5:
        break
monitor.close(None)
{end}
"""
PAGED = "trmon: dropped log-probs"
CORRUPT = "trmon/corrupt_logprobs"

pytestmark = pytest.mark.timeout(300)


def train(folder: Path, service: httpx.Client, *, tracker: str, begin: str = "", log: str = "", end: str = "") -> str:
    """Train with log-probs that are dropped from step 12 on, and return what was written to stderr."""
    code = TRAINER.format(tracker=tracker, begin=begin, log=log or "pass", end=end)
    done = run_program(code, folder, service, MLFLOW_TRACKING_URI=f"sqlite:///{folder}/mlflow.db")
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_tensorboard_has_a_gauge_a_finding_and_the_page(tmp_path: Path, service: httpx.Client) -> None:
    train(tmp_path, service, tracker=f"tensorboard:{tmp_path}/tb")
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    gauges = {event.step: event.value for event in events.Scalars(CORRUPT)}
    assert 12 < min(gauges) < 30
    assert {*gauges.values()} <= {1.0, 2.0}
    assert 2.0 in gauges.values()
    (page,) = events.Tensors("trmon/page/text_summary")
    assert PAGED.encode() in page.tensor_proto.string_val[0]


def test_mlflow_has_them_in_its_active_run(tmp_path: Path, service: httpx.Client) -> None:
    train(tmp_path, service, tracker="mlflow", begin="import mlflow\nmlflow.start_run()", end="mlflow.end_run()")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])
    assert run.data.tags["trmon.page"].startswith(PAGED)
    assert run.data.metrics[CORRUPT] == 2.0
    assert min(metric.step for metric in client.get_metric_history(run.info.run_id, CORRUPT)) > 12


def records(file: Path) -> list[Any]:
    """Return the records of a run that wandb kept offline: its file is a LevelDB log after seven bytes."""
    data, at, parts, found = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts, at = parts + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):
            found.append(wandb_internal_pb2.Record.FromString(parts))
            parts = b""
    return found


def test_wandb_has_them_in_the_trainers_own_rows_and_alerts_of_the_page(tmp_path: Path, service: httpx.Client) -> None:
    begin, log = 'import wandb\nwandb.init(project="math")', 'wandb.log({"loss": step / 100}, step=step)'
    train(tmp_path, service, tracker="wandb", begin=begin, log=log, end="wandb.finish()")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    found = records(file)
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in one.history.item}
        for one in found
        if one.WhichOneof("record_type") == "history"
    ]
    assert [(row["_step"], row["loss"]) for row in rows] == [(step, step / 100) for step in range(len(rows))]
    assert 2 in {row.get(CORRUPT) for row in rows}
    assert all(row["trmon/judged_step"] <= row["_step"] for row in rows if CORRUPT in row)
    (alert,) = [one.alert for one in found if one.WhichOneof("record_type") == "alert"]
    assert (alert.title, alert.level) == (PAGED, "ERROR")
    assert "Checkpoint to go back to: /c/10" in alert.text


def test_a_tracker_that_fails_is_said_once_and_the_training_goes_on(tmp_path: Path, service: httpx.Client) -> None:
    begin = "import mlflow\nmlflow.start_run()\nmlflow.MlflowClient.log_batch = None"
    said = train(tmp_path, service, tracker="mlflow", begin=begin)
    assert said.count("findings are not sent to mlflow any more: TypeError") == 1
    assert service.get("/api/v1/runs/math/tiny").json()["end_phrase"] == "closed"
