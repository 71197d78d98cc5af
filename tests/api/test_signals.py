"""A run's signals over HTTP, as JSON, CSV, parquet and Arrow, and the marks of its course."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import OwnRun, own_run
from tests.fixtures.trainer import step_report
from tests.fixtures.waiting import eventually
from trmon.api.signals import FORMATS
from trmon.store.repositories.signals import NAMED_BATCHES
from trmon_client.core import wire


@pytest.fixture(scope="module")
def trained(shared: httpx.Client) -> OwnRun:
    run = own_run(shared)
    run.train(steps=range(10))
    return run


def read(run: OwnRun, query: str) -> httpx.Response:
    return run.ask("GET", f"/signals?{query}")


def test_an_unknown_signal_is_refused_in_every_format_and_one_of_the_catalogue_is_not(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN, sequence=0))
    names = "total_kl_k3,mask_rate,incomplete,entropy,mask_rate:geo_mask"
    series = read(run, f"names={names}").json()
    assert (series["step"], series["signals"].keys()) == ([], set(names.split(",")))
    run.send(report(step=0, scalars={"learning_rate": 1e-3, "count": 0.5}))
    run.send(wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(0, None, 1)]))
    eventually(lambda: run.get()["state"], lambda state: state == "finished")
    suggestions = {
        "mask_rat": "; did you mean mask_rate",
        "learning_rat": "; did you mean learning_rate",
        "mask_rate:geo_mas": "; did you mean mask_rate:geo_mask",
        "unheard_of": " is not a known signal; GET /api/v1/signals",
    }
    for form, (name, suggestion) in product(FORMATS, suggestions.items()):
        refused = read(run, f"names=total_kl_k3,{name}&format={form}")
        assert refused.status_code == 400
        assert f"'{name}' is not a known signal" in refused.json()["detail"]
        assert suggestion in refused.json()["detail"]
    # A trainer may name a scalar as a column of positions is named.
    [row] = csv.DictReader(read(run, "names=count&format=csv").text.splitlines())
    assert (row["count"], row["count.last"]) == ("1", "0.5")


def test_openapi_has_the_media_type_of_every_format(trained: OwnRun) -> None:
    paths = trained.client.get("/api/v1/openapi.json").json()["paths"]
    described = paths["/api/v1/runs/{project}/{run}/signals"]["get"]["responses"]["200"]["content"].keys()
    answers = [read(trained, f"names=lr&format={form}") for form in FORMATS]
    assert {answer.headers["content-type"].partition(";")[0] for answer in answers} == described


def test_csv_has_one_column_per_signal(trained: OwnRun) -> None:
    rows = list(csv.DictReader(read(trained, "names=lr,entropy&format=csv").text.splitlines()))
    assert [int(row["step"]) for row in rows] == list(range(10))
    assert {(row["lr"], row["entropy"], row["update"]) for row in rows} == {("0.001", "", "")}
    reduced = read(trained, "names=lr&format=csv&points=2").text
    assert reduced.splitlines()[0].endswith("lr.min,lr.max,lr.mean,lr.last")


READERS: dict[str, Callable[[Any], Any]] = {
    "parquet": pq.read_table,
    "arrow": lambda file: pa.ipc.open_stream(file).read_all(),
}


@pytest.mark.parametrize("form", READERS)
def test_arrow_keeps_every_number(trained: OwnRun, form: str) -> None:
    def table(query: str) -> Any:
        return READERS[form](pa.BufferReader(read(trained, f"{query}&format={form}").content))

    series = read(trained, "names=total_kl_k3,lr,entropy").json()
    found = table("names=total_kl_k3,lr,entropy").to_pydict()
    assert (found["step"], found["update"]) == (list(range(10)), [None] * 10)
    assert found["total_kl_k3"] == series["signals"]["total_kl_k3"]["last"]
    assert all(math.isnan(value) for value in found["entropy"])
    assert table("names=lr&points=2").column_names[-4:] == ["lr.min", "lr.max", "lr.mean", "lr.last"]


def test_without_pyarrow_the_other_formats_are_named(trained: OwnRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused, fine = (read(trained, f"names=lr&format={form}") for form in ("parquet", "csv"))
    assert (refused.status_code, refused.json()["field"]) == (400, "format")
    assert "pip install 'trmon[export]'; json and csv do not" in refused.json()["detail"]
    assert fine.status_code == 200


def test_scalars_have_the_meaning_of_their_names_also_those_of_old_steps(run: OwnRun) -> None:
    """An evaluation of the first step is older than the steps whose names the list of a run holds."""
    steps = range(NAMED_BATCHES + 40)
    usual = {"rewards/format/mean": 0.9, "grad_norm": 1.0, "frac_reward_zero_std": 0.0}
    first = usual | {"eval_rewards/format/mean": 0.5, "rewards/a,b/mean": 0.1}
    sent = (wire.Scalars(**ORIGIN, sequence=step, step=step, values=usual if step else first) for step in steps)
    run.send(*sent, wire.Finish(**ORIGIN, sequence=len(steps)))
    eventually(lambda: run.get()["status"]["judged_step"], lambda step: step == steps[-1])
    assert "eval_rewards/format/mean" not in run.get("/signals/names")
    assert run.get("/signals/scalars") == [
        {"name": "eval_rewards/format/mean", "part": "evaluation", "words": "format", "signal": None},
        {"name": "rewards/format/mean", "part": "reward", "words": "format", "signal": None},
    ]
    found = read(run, "names=eval_rewards/format/mean&statistics=max").json()
    assert found["signals"]["eval_rewards/format/mean"]["max"][0] == 0.5


def test_a_restart_and_a_jump_of_the_learning_rate_are_marks_of_their_steps(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN, config={"lr": 1e-3}))
    run.send(*(step_report(step) for step in range(4)))
    eventually(lambda: len(run.get("/batches")["items"]) == 3)
    again = {"attempt": "second", "launch": "launch-2"}
    run.send(wire.Start(**again, config={"lr": 2e-3}))
    for step in range(3, 9):
        scalars = {"lr": 1e-3 if step < 6 else 2e-3}
        run.send(msgspec.structs.replace(step_report(step), scalars=scalars, **again))
    eventually(lambda: run.get()["last_step"] == 8 and len(run.get("/batches")["items"]) >= 8)
    marks = {mark["step"]: (mark["kind"], mark["words"]) for mark in run.get("/marks")}
    assert marks[6] == ("change", "learning rate 0.001 → 0.002")
    assert [(step, kind) for step, (kind, _) in marks.items() if kind == "restart"] == [(3, "restart")]
    assert run.get("/marks?attempt_id=99999999") == []


def test_a_checkpoint_is_a_mark_and_the_one_to_go_back_to(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN))
    for step in range(14):
        content = columns(seed=step, n_invalid=[1, 0, 0, 0]) if step >= 8 else None
        run.send(step_report(step, content=content))
        if step in (4, 10):
            told = wire.SavedCheckpoint(step, f"/c/{step}?token=hush-hush-hush-1")
            run.send(wire.Pause(**ORIGIN, sequence=step, checkpoint=told))
    path = "/c/4?token=***"
    remedy = eventually(lambda: run.get("/diagnosis").get("remedy") or {}, lambda known: known.get("checkpoint_step"))
    assert (remedy["checkpoint_step"], remedy["checkpoint_path"]) == (4, path)
    assert run.get()["checkpoints"] == [{"step": 4, "path": path}, {"step": 10, "path": "/c/10?token=***"}]
    assert {"step": 4, "kind": "checkpoint", "words": f"checkpoint {path}"} in run.get("/marks")
    mitigate = next(one for one in run.get("/runbook")["stages"] if one["stage"] == "mitigate")
    assert f"Checkpoint to go back to: {path} (step 4)." in mitigate["lines"]
    assert run.get()["warnings"] == []
