"""Order and time through the real service: late and repeated reports, wrong clocks, two trainers at once."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import MATH, send
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

RUN = f"/api/v1/runs/{MATH.project}/{MATH.run}"
YEAR_SECONDS = 365 * 86_400.0


def step_of(step: int, **fields: Any) -> wire.Report:
    """Return a report that is its step's only chunk and says so."""
    return report(columns(seed=step), step=step, finished=[wire.ChunkCount(step, None, 1)], **fields)


def batches(client: httpx.Client, n: int) -> list[dict[str, Any]]:
    """Wait for n batches of a run, and return them by attempt and step."""
    listed = eventually(lambda: _listed(client), lambda found: len(found) >= n)
    return sorted(listed, key=lambda batch: (batch["attempt_id"], batch["step"]))


def _listed(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get(f"{RUN}/batches")
    items: list[dict[str, Any]] = answer.json()["items"] if answer.status_code == 200 else []
    return items


def attempts(client: httpx.Client) -> list[dict[str, Any]]:
    """Return a run's attempts, oldest first."""
    found: list[dict[str, Any]] = client.get(f"{RUN}/attempts").json()["items"]
    return found[::-1]


def test_steps_out_of_order_are_all_stored_and_the_late_ones_marked_revised(client: httpx.Client) -> None:
    for step in (0, 3):
        send(client, MATH, step_of(step))
        batches(client, 1 if step == 0 else 2)
    send(client, MATH, step_of(1), step_of(2))
    found = batches(client, 4)
    assert [(batch["step"], batch["revised"]) for batch in found] == [(0, False), (1, True), (2, True), (3, False)]


def test_a_late_rank_revises_the_batch_that_was_closed_without_it(serve: Serve) -> None:
    service = serve(grace_seconds=0.2)
    with service.client() as client:
        send(client, MATH, step_of(0, rank=0, world_size=2))
        [closed] = batches(client, 1)
        assert (closed["complete"], closed["missing_ranks"], closed["n_sequences"]) == (False, [1], 4)
        send(client, MATH, step_of(0, rank=1, world_size=2))
        [revised] = eventually(lambda: _listed(client), lambda found: found[0]["revised"])
        assert (revised["complete"], revised["missing_ranks"], revised["n_sequences"]) == (True, [], 8)


@pytest.mark.parametrize("skew_seconds", [-YEAR_SECONDS, YEAR_SECONDS], ids=["a year behind", "a year ahead"])
def test_a_trainers_wrong_clock_changes_no_time_that_the_service_records(
    client: httpx.Client, skew_seconds: float
) -> None:
    began = time.time()
    for step in range(3):
        send(client, MATH, step_of(step, sent_at=began + skew_seconds + step))
    found = batches(client, 3)
    run = client.get(RUN).json()
    assert run["state"] == "running"
    assert began <= run["last_report_at"] <= time.time()
    assert all(began <= batch["closed_at"] <= time.time() for batch in found)
    assert [batch["revised"] for batch in found] == [False] * 3


def test_a_restart_that_goes_back_in_steps_is_a_new_attempt_and_the_old_one_stays(client: httpx.Client) -> None:
    send(client, MATH, step_of(0), step_of(1), wire.Finish(**ORIGIN, sequence=1, outcome="crashed"))
    batches(client, 2)
    send(client, MATH, step_of(0, launch="launch-2"), step_of(1, launch="launch-2"))
    found = batches(client, 4)
    first, second = attempts(client)
    assert [(batch["attempt_id"], batch["step"]) for batch in found] == [
        (attempt["id"], step) for attempt in (first, second) for step in (0, 1)
    ]
    assert (second["fork_of"], second["fork_reason"]) == (first["id"], "went_back")


def test_two_trainers_under_one_name_get_separate_attempts_with_the_reason(client: httpx.Client) -> None:
    for step in range(3):
        for launch in ("launch-1", "launch-2"):
            send(client, MATH, step_of(step, launch=launch))
    found = batches(client, 6)
    first, second = attempts(client)
    assert [batch["attempt_id"] for batch in found] == [first["id"]] * 3 + [second["id"]] * 3
    assert all(batch["n_sequences"] == 4 for batch in found)
    assert (second["fork_of"], second["fork_reason"]) == (first["id"], "two_trainers")
