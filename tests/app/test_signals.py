"""Signals over HTTP: the catalogue, and a run's history as JSON and CSV."""

from __future__ import annotations

import csv

import httpx
import pytest

from tests.fixtures.trainer import train
from trmon_client.core.signals import SIGNALS

PATH = "/api/v1/runs/math/grpo/signals"


@pytest.fixture
def run(client: httpx.Client) -> httpx.Client:
    train(client, steps=range(10))
    return client


def test_the_catalogue_says_what_each_signal_means(client: httpx.Client) -> None:
    signals = client.get("/api/v1/signals").json()
    assert {signal["name"] for signal in signals} == SIGNALS.keys()
    assert all(signal["description"] and signal["formula"] and signal["unit"] for signal in signals)


def test_a_run_names_its_signals_and_scalars(run: httpx.Client) -> None:
    names = run.get(f"{PATH}/names").json()
    assert {"total_kl_k3", "mask_rate", "mask_rate:geo_mask", "lr"} <= set(names)


def test_a_short_history_is_exact(run: httpx.Client) -> None:
    series = run.get(PATH, params={"names": "total_kl_k3,lr,unheard_of"}).json()
    assert series["exact"] is True
    assert series["step"] == list(range(10))
    assert series["update"] == [None] * 10
    assert series["signals"]["lr"]["last"] == [1e-3] * 10
    assert series["signals"]["unheard_of"]["last"] == [None] * 10
    batch = run.get("/api/v1/runs/math/grpo/batches/3").json()
    assert series["signals"]["total_kl_k3"]["mean"][3] == batch["signals"]["total_kl_k3"]


def test_a_long_history_is_reduced_to_points(run: httpx.Client) -> None:
    exact = run.get(PATH, params={"names": "total_kl_k3"}).json()["signals"]["total_kl_k3"]["last"]
    series = run.get(PATH, params={"names": "total_kl_k3", "points": 2}).json()
    band = series["signals"]["total_kl_k3"]
    assert (series["exact"], series["step"], series["count"]) == (False, [4, 9], [5, 5])
    assert band["min"] == [min(exact[:5]), min(exact[5:])]
    assert band["max"] == [max(exact[:5]), max(exact[5:])]
    assert band["mean"] == pytest.approx([sum(exact[:5]) / 5, sum(exact[5:]) / 5])


def test_a_window_has_both_its_ends(run: httpx.Client) -> None:
    assert run.get(PATH, params={"names": "lr", "from": 2, "to": 4}).json()["step"] == [2, 3, 4]


def test_csv_has_a_column_a_signal(run: httpx.Client) -> None:
    answer = run.get(PATH, params={"names": "lr,unheard_of", "format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [int(row["step"]) for row in rows] == list(range(10))
    assert {(row["lr"], row["unheard_of"], row["update"]) for row in rows} == {("0.001", "", "")}
    reduced = run.get(PATH, params={"names": "lr", "format": "csv", "points": 2}).text
    assert reduced.splitlines()[0].endswith("lr.min,lr.max,lr.mean,lr.last")
