"""Signals over HTTP: the catalogue, and a run's history as JSON, CSV, parquet and Arrow."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.messages import ORIGIN, report
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon.api.signals import FORMATS
from trmon.domain.diagnosis.features import REQUIRED_SIGNALS
from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.core import wire
from trmon_client.core.signals.catalogue import SIGNALS, TRAINER_SCALARS

PATH = "/api/v1/runs/math/grpo/signals"


@pytest.fixture
def run(client: httpx.Client) -> httpx.Client:
    train(client, steps=range(10))
    return client


def test_the_catalogue_describes_every_signal(client: httpx.Client) -> None:
    signals = client.get("/api/v1/signals").json()
    names = {signal["name"] for signal in signals}
    assert names > SIGNALS.keys() | DERIVED.keys() | TRAINER_SCALARS.keys()
    assert names >= set(REQUIRED_SIGNALS) - {"n_tokens", "mask_rate:geo_mask"}
    assert all(signal["description"] and signal["formula"] and signal["unit"] and signal["words"] for signal in signals)


def test_a_run_lists_its_signals_and_scalars(run: httpx.Client) -> None:
    names = run.get(f"{PATH}/names").json()
    assert {"total_kl_k3", "mask_rate", "mask_rate:geo_mask", "lr"} <= set(names)


def test_a_short_history_is_exact(run: httpx.Client) -> None:
    series = run.get(PATH, params={"names": "total_kl_k3,lr,entropy"}).json()
    assert series["exact"] is True
    assert series["step"] == list(range(10))
    assert series["update"] == [None] * 10
    assert series["signals"]["lr"]["last"] == [1e-3] * 10
    assert series["signals"]["entropy"]["last"] == [None] * 10
    batch = run.get("/api/v1/runs/math/grpo/batches/3").json()
    assert series["signals"]["total_kl_k3"]["mean"][3] == batch["signals"]["total_kl_k3"]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("mask_rat", "; did you mean mask_rate"),
        ("kl_k3", "; did you mean "),
        ("learning_rat", "; did you mean learning_rate"),
        ("mask_rate:geo_mas", "; did you mean mask_rate:geo_mask"),
        ("unheard_of", " is not a known signal; GET /api/v1/signals"),
    ],
)
def test_a_signal_that_does_not_exist_is_refused_in_every_format(
    client: httpx.Client, name: str, suggestion: str
) -> None:
    send(client, MATH, report(step=0, scalars={"learning_rate": 1e-3}))
    send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(0, None, 1)]))
    eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run["state"] == "finished")
    for form in FORMATS:
        refused = client.get(PATH, params={"names": f"total_kl_k3,{name}", "format": form})
        assert refused.status_code == 400
        assert f"'{name}' is not a known signal" in refused.json()["detail"]
        assert suggestion in refused.json()["detail"]


def test_names_of_the_catalogue_are_legal_before_the_first_step(client: httpx.Client) -> None:
    send(client, MATH, wire.Start(**ORIGIN, sequence=0))
    names = "total_kl_k3,mask_rate,incomplete,entropy,mask_rate:geo_mask"
    series = client.get(PATH, params={"names": names})
    assert (series.status_code, series.json()["step"]) == (200, [])
    assert series.json()["signals"].keys() == set(names.split(","))


def test_openapi_has_the_media_type_of_every_format(run: httpx.Client) -> None:
    operation = run.get("/api/v1/openapi.json").json()["paths"]["/api/v1/runs/{project}/{run}/signals"]["get"]
    described = operation["responses"]["200"]["content"].keys()
    answers = [run.get(PATH, params={"names": "lr", "format": form}) for form in FORMATS]
    assert {answer.headers["content-type"].partition(";")[0] for answer in answers} == described


def test_a_long_history_is_reduced_to_points(run: httpx.Client) -> None:
    exact = run.get(PATH, params={"names": "total_kl_k3"}).json()["signals"]["total_kl_k3"]["last"]
    series = run.get(PATH, params={"names": "total_kl_k3", "points": 2}).json()
    band = series["signals"]["total_kl_k3"]
    assert (series["exact"], series["step"], series["count"]) == (False, [4, 9], [5, 5])
    assert band["min"] == [min(exact[:5]), min(exact[5:])]
    assert band["max"] == [max(exact[:5]), max(exact[5:])]
    assert band["mean"] == pytest.approx([sum(exact[:5]) / 5, sum(exact[5:]) / 5])


def test_a_range_includes_both_ends(run: httpx.Client) -> None:
    assert run.get(PATH, params={"names": "lr", "from": 2, "to": 4}).json()["step"] == [2, 3, 4]


def test_csv_has_one_column_per_signal(run: httpx.Client) -> None:
    answer = run.get(PATH, params={"names": "lr,entropy", "format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [int(row["step"]) for row in rows] == list(range(10))
    assert {(row["lr"], row["entropy"], row["update"]) for row in rows} == {("0.001", "", "")}
    reduced = run.get(PATH, params={"names": "lr", "format": "csv", "points": 2}).text
    assert reduced.splitlines()[0].endswith("lr.min,lr.max,lr.mean,lr.last")


def test_statistics_and_digits_can_be_selected(run: httpx.Client) -> None:
    query = {"names": "total_kl_k3", "points": "2", "statistics": "min,mean", "digits": "3"}
    found = run.get(PATH, params=query).json()["signals"]["total_kl_k3"]
    whole = run.get(PATH, params={"names": "total_kl_k3", "points": 2}).json()["signals"]["total_kl_k3"]
    assert set(found) == {"min", "mean"}
    assert set(whole) == {"min", "max", "mean", "last"}
    assert found["mean"] == [float(f"{value:.3g}") for value in whole["mean"]]
    refused = run.get(PATH, params={**query, "statistics": "median"})
    assert refused.status_code == 400
    assert "min, max, mean, last" in refused.text


@pytest.mark.parametrize(
    ("form", "media_type", "read"),
    [
        ("parquet", "application/vnd.apache.parquet", pq.read_table),
        ("arrow", "application/vnd.apache.arrow.stream", lambda file: pa.ipc.open_stream(file).read_all()),
    ],
)
def test_arrow_keeps_every_number(run: httpx.Client, form: str, media_type: str, read: Callable[[Any], Any]) -> None:
    series = run.get(PATH, params={"names": "total_kl_k3,lr,entropy"}).json()
    answer = run.get(PATH, params={"names": "total_kl_k3,lr,entropy", "format": form})
    assert answer.headers["content-type"] == media_type
    table = read(pa.BufferReader(answer.content)).to_pydict()
    assert table["step"] == list(range(10))
    assert table["update"] == [None] * 10
    assert table["total_kl_k3"] == series["signals"]["total_kl_k3"]["last"]
    assert all(math.isnan(value) for value in table["entropy"])
    reduced = read(pa.BufferReader(run.get(PATH, params={"names": "lr", "format": form, "points": 2}).content))
    assert reduced.column_names[-4:] == ["lr.min", "lr.max", "lr.mean", "lr.last"]


def test_a_scalar_named_like_a_position_column_gets_another_name(client: httpx.Client) -> None:
    send(client, MATH, report(step=0, scalars={"count": 0.5}))
    send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(0, None, 1)]))
    eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run["state"] == "finished")
    answer = client.get(PATH, params={"names": "count", "format": "csv"}).text
    [row] = csv.DictReader(answer.splitlines())
    assert (row["count"], row["count.last"]) == ("1", "0.5")


def test_without_pyarrow_the_other_formats_are_named(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    # A service in this process may have used it in a former test.
    monkeypatch.delitem(sys.modules, "trmon.api.signals", raising=False)
    monkeypatch.delattr("trmon.api.signals", raising=False)
    train(client)
    refused = client.get(PATH, params={"names": "lr", "format": "parquet"})
    fine = client.get(PATH, params={"names": "lr", "format": "csv"})
    assert (refused.status_code, refused.json()["field"]) == (400, "format")
    assert "pip install 'trmon[export]'; json and csv do not" in refused.json()["detail"]
    assert fine.status_code == 200
