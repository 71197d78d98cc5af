"""What the comparison of runs over HTTP refuses, and with what words."""

from __future__ import annotations

import pytest

from tests.fixtures.running_service import OwnRun


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
