"""The comparison of runs over HTTP: what it refuses, with what words, and the healthy sibling that it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.running_service import ILL, WELL, OwnRun, RecordedRuns


@pytest.mark.parametrize(
    ("runs", "status", "words"),
    [
        ("", 400, "name two to eight runs"),
        (",".join(f"math/r{i}" for i in range(9)), 400, "has 9 runs; at most 8"),
        ("{run}", 404, "no sound run to compare with 'of {project} beside grpo; name one: runs=A,B'"),
    ],
    ids=["none", "nine", "one without a sibling"],
)
def test_what_cannot_be_compared_is_refused(run: OwnRun, runs: str, status: int, words: str) -> None:
    run.train()
    response = run.client.get("/api/v1/compare", params={"runs": runs.format(run=run.key)})
    assert response.status_code == status
    assert words.format(project=run.key.project) in response.json()["detail"]


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
