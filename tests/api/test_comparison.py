"""The comparison of runs over HTTP: what it refuses, with what words, and the healthy sibling that it finds."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.running_service import ILL, WELL, RecordedRuns


def test_a_single_run_is_compared_with_its_healthy_sibling(recorded: RecordedRuns, tmp_path: Path) -> None:
    service = recorded.serve(recorded.finished, tmp_path / "data")
    try:
        with service.client() as client:
            found = client.get("/api/v1/compare", params={"runs": str(ILL.key)}).json()
            refused = client.get("/api/v1/compare", params={"runs": str(WELL.key)})
    finally:
        service.stop()
    assert (found["proposed"], [run["fleet"]["run"] for run in found["runs"]]) == (True, [ILL.name, WELL.name])
    assert [run["fleet"]["verdict"]["kind"] for run in found["runs"]] == ["finished", "finished"]
    assert refused.status_code == 404, "an ill run is no sibling"
