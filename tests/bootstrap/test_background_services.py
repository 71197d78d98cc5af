"""Background services of a running service: ended runs move to the lake, and old reports are deleted."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from msgspec import structs

from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import MATH, send, step_report, train
from tests.fixtures.waiting import eventually

RUN = "/api/v1/runs/math/grpo"


def test_a_run_that_ends_moves_to_the_lake_and_a_late_report_is_quarantined_and_follows(
    serve: Serve, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    service = serve(lake_url=str(lake), lake_after_seconds=0.0, lake_every_seconds=0.1)
    with service.client() as client:
        train(client, steps=range(3))
        counted = eventually(
            lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="attempts"} 1.0' in text
        )
        assert 'trmon_lake_total{what="reports"} 3.0' in counted
        assert 'trmon_lake_total{what="failures"} 0.0' in counted
        send(client, MATH, structs.replace(step_report(1), chunk=1))
        counted = eventually(
            lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="reports"} 4.0' in text
        )
        assert 'trmon_quarantined_total{reason="report"} 1.0' in counted
    rows = DeltaTable(str(lake / "reports")).to_pyarrow_table().select(["step", "chunk"]).to_pylist()
    assert {"step": 1, "chunk": 1} in rows
    assert sorted(DeltaTable(str(lake / "batches")).to_pyarrow_table()["step"].to_pylist()) == [0, 1, 2]


def test_a_lake_that_is_away_is_counted_and_moved_to_once_it_is_back(serve: Serve, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.write_text("a file where the folder should be")
    service = serve(lake_url=str(lake), lake_after_seconds=0.0, lake_every_seconds=0.1)
    with service.client() as client:
        train(client, steps=range(3))
        eventually(
            lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="failures"} 0.0' not in text
        )
        assert client.get("/readyz").status_code == 200
        lake.unlink()
        eventually(lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="attempts"} 1.0' in text)
    assert DeltaTable(str(lake / "reports")).to_pyarrow_table().num_rows == 3


def test_old_reports_are_deleted_and_their_batches_are_kept(serve: Serve) -> None:
    service = serve(retention_run_bytes=0, retention_every_seconds=0.05)
    with service.client() as client:
        train(client, steps=range(3))
        eventually(lambda: client.get(f"{RUN}/batches/0/sequences").status_code, lambda status: status == 404)
        assert client.get(f"{RUN}/batches/0").json()["signals"]["total_kl_k3"] is not None
        assert 'trmon_pruned_total{what="reports"}' in client.get("/metrics").text
