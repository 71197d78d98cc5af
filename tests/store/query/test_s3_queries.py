"""Queries and what-ifs over a lake in an object store."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.databases import open_migrated_store
from tests.store.builders import NOW
from tests.store.lake.lake_runs import put_ended_run
from tests.store.lake.moving import delete_moved, move_to_lake
from trmon.store.stored_runs.lake_runs import lake_runs
from trmon.store.stored_runs.run_source import WhatIfSteps, effects_on
from trmon_client.core.policies.policy import Policy

BOUND = {"name": "bound", "criteria": [{"statistic": "max_binary_kl", "pair": "total", "upper": 0.02}]}


def test_sql_and_a_what_if_read_a_bucket(bucket_url: str, tmp_path: Path) -> None:
    store = open_migrated_store(tmp_path / "trmon.sqlite")
    put_ended_run(store, "moved", steps=4)
    move_to_lake(store, bucket_url)
    delete_moved(store)
    put_ended_run(store, "here", steps=1)
    counted = "SELECT run, count(*), sum((total_max_binary_kl > 0.02)::INT) FROM sequences GROUP BY run ORDER BY run"
    with store.queries(bucket_url).run(counted, now=NOW) as result:
        rows = [tuple(row.values()) for row in result.read_all().to_pylist()]
    store.close()
    [run] = lake_runs(bucket_url)
    [effect], covered = effects_on(run, [Policy.parse(BOUND)], WhatIfSteps())
    assert [row[:2] for row in rows] == [("here", 8), ("moved", 32)]
    assert rows[1] == ("moved", effect.total.n, effect.total.rejected)
    assert (covered.n_steps, covered.n_missing) == (4, 0)
