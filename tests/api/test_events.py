"""Server-Sent Events: streamed live, resumed after a disconnect, limited to what the reader may see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import msgspec
import pytest

from tests.fixtures.running_service import OwnRun, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send_step, train
from trmon.api.events import pause_seconds
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey

CODE = RunKey("code", "ppo")
EVENTS = "/api/v1/events"


@dataclass
class ReceivedEvent:
    """A received event."""

    id: int
    kind: str
    data: dict[str, object] = field(default_factory=dict)


@contextmanager
def streaming(client: httpx.Client, **options: object) -> Iterator[Iterator[ReceivedEvent]]:
    with client.stream("GET", EVENTS, **options) as answer:  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _parse(answer.iter_lines())


def _parse(lines: Iterator[str]) -> Iterator[ReceivedEvent]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        if colon and name:
            fields[name] = value
        elif not line and "data" in fields:
            yield ReceivedEvent(int(fields.get("id", 0)), fields["event"], msgspec.json.decode(fields["data"]))
            fields = {}


def take_steps(events: Iterator[ReceivedEvent], n: int) -> list[ReceivedEvent]:
    batches = (event for event in events if event.kind == "batch")
    return [next(batches) for _ in range(n)]


def test_batches_are_streamed_as_they_close(run: OwnRun) -> None:
    with streaming(run.client) as events:
        run.train(steps=range(3), end=False)
        first, second = take_steps(events, 2)
    assert [(one.data["project"], one.data["step"]) for one in (first, second)] == [
        (run.key.project, 0),
        (run.key.project, 1),
    ]
    assert first.id < second.id


def test_a_stream_says_at_once_and_every_5_s_how_far_the_judging_is_behind(run: OwnRun) -> None:
    with streaming(run.client) as events:
        said = [next(event for event in events if event.kind == "judging").data for _ in range(2)]
    for one in said:
        age = one["beat_age_seconds"]
        assert isinstance(age, int | float)
        assert one.keys() == {"beat_age_seconds", "oldest_unprocessed_seconds"}
        assert 0.0 <= age < 60.0


def test_a_reader_of_one_run_resumes_after_its_last_event(run: OwnRun) -> None:
    run.train(steps=range(6))
    train(run.client, CODE, steps=range(2))
    asked = {"run": str(run.key)}
    with streaming(run.client, headers={"Last-Event-ID": "0"}, params=asked) as events:
        seen = take_steps(events, 3)
    with streaming(run.client, headers={"Last-Event-ID": str(seen[-1].id)}, params=asked) as events:
        rest = take_steps(events, 3)
    assert [(event.data["project"], event.data["step"]) for event in seen + rest] == [
        (run.key.project, step) for step in range(6)
    ]


def test_a_reader_resumes_after_a_restart(client: httpx.Client, service: ThreadedService) -> None:
    train(client, steps=range(3), end=False)
    with streaming(client, headers={"Last-Event-ID": "0"}) as events:
        seen = take_steps(events, 2)
    service.restart()
    with service.client() as again, streaming(again, headers={"Last-Event-ID": str(seen[-1].id)}) as events:
        send_step(again, MATH, step=3)
        assert take_steps(events, 1)[0].data["step"] == 2


@pytest.mark.parametrize(
    ("since_read_seconds", "expected"),
    [
        pytest.param(0.0, 0.2, id="successive commits are read together"),
        pytest.param(0.15, 0.05, id="only the remaining pause"),
        pytest.param(14.0, 0.0, id="an event after a quiet time is sent at once"),
    ],
)
def test_a_stream_pauses_only_between_two_reads(since_read_seconds: float, expected: float) -> None:
    assert pause_seconds(since_read_seconds=since_read_seconds) == pytest.approx(expected)


def test_a_projects_token_streams_its_project_only(admin: httpx.Client) -> None:
    train(admin, MATH, steps=range(2))
    train(admin, CODE, steps=range(2))
    read = make_token(admin, "reader", Scope.READ, project="code")
    headers = {**bearer(read), "Last-Event-ID": "0"}
    with streaming(admin, headers=headers) as events:
        assert {event.data["project"] for event in take_steps(events, 2)} == {"code"}


def test_a_stream_ends_once_its_token_is_revoked(admin: httpx.Client) -> None:
    train(admin, MATH, steps=range(2))
    headers = {**bearer(make_token(admin, "reader", Scope.READ)), "Last-Event-ID": "0"}
    with streaming(admin, headers=headers) as events:
        take_steps(events, 2)
        admin.delete("/api/v1/tokens/reader").raise_for_status()
        train(admin, CODE, steps=range(1))
        assert "code" not in {event.data.get("project") for event in events}


def test_a_stream_ends_at_shutdown_without_delaying_it(client: httpx.Client, service: ThreadedService) -> None:
    with streaming(client) as events:
        began = time.monotonic()
        service.stop()
        assert {event.kind for event in events} <= {"judging"}
        assert time.monotonic() - began < 9.0, "waited for the grace period to run out"
    service.start()


def test_a_run_that_the_caller_may_not_see_is_not_found(client: httpx.Client, admin: httpx.Client) -> None:
    train(admin, steps=range(2))
    headers = bearer(make_token(admin, "reader", Scope.READ, project="code"))
    answers = [
        client.get(EVENTS, params={"run": run}, headers=headers, timeout=60) for run in ("math/grpo", "code/nosuch")
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert [answer.json()["detail"] for answer in answers] == ["no run 'math/grpo'", "no run 'code/nosuch'"]
