"""Bodies that are small to send and costly to open: counted before they are decoded, and charged to their caller."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import zstandard
from prometheus_client import CollectorRegistry, Counter

from tests.fixtures.loops import run
from tests.fixtures.messages import ORIGIN, as_json, columns, report
from tests.fixtures.running_service import Serve
from trmon.api.http.body import MAX_DOCUMENT_BYTES, MAX_GZIP_MEMBERS, PIECE_BYTES, decompress
from trmon.api.http.gateway import LoopWatch
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import Overloaded
from trmon.domain.messages import PreparedMessage
from trmon.ingest.body_cost import MAX_ELEMENTS, BodyCost, BodyCosts, FairPool, count_elements
from trmon.ingest.service import INLINE_BYTES, BodyReader
from trmon_client.core import wire
from trmon_client.core.column_schema import PAIRS, TURN_STEMS
from trmon_client.core.columns import TurnColumns
from trmon_client.core.inputs.labels import MAX_TURNS
from trmon_client.core.policies.policy import preset

ONE = "/api/v1/runs/math/grpo/reports"
MSGPACK = {"Content-Type": wire.MSGPACK}
GZIP = MSGPACK | {"Content-Encoding": "gzip"}
READER = BodyReader(lambda _: preset("trm_auto"), is_cached=lambda _: True)


def new_cost(*, max_held_bytes: int = 1 << 30) -> tuple[BodyCost, dict[str, int]]:
    """Return the cost of a request, and what callers are charged."""
    charged: dict[str, int] = {}
    return BodyCosts(max_held_bytes=max_held_bytes, charge=charged.__setitem__).of("ana"), charged


def turns(n: int, *, n_sequences: int) -> wire.PackedTurns:
    """Return n turns, spread over the sequences, of a report with all pairs."""
    names = (f"{pair}_{stem}" for pair in PAIRS for stem in TURN_STEMS)
    counts = np.bincount(np.arange(n) * n_sequences // n, minlength=n_sequences)
    return wire.pack_turns(
        TurnColumns(counts, {"n_tokens": np.ones(n, "<i8"), **{name: np.zeros(n, "<f8") for name in names}})
    )


def n_objects(value: object) -> int:
    """Return how many values a decoded value consists of, with keys."""
    if isinstance(value, dict):
        return 1 + sum(1 + n_objects(item) for item in value.values())
    return 1 + sum(map(n_objects, value)) if isinstance(value, list) else 1


EVERY_HEADER: list[Any] = [
    *(None, True, 0, 127, 128, 1 << 15, 1 << 31, 1 << 63, -1, -32, -33, -(1 << 15), -(1 << 31), -(1 << 63), 1.5),
    *("", "a", "a" * 31, "a" * 32, "a" * 255, "a" * 256, "a" * 70_000, b"", b"a" * 300, b"a" * 70_000),
    *([], [[]] * 15, [[]] * 16, [1] * 70_000, {}, {"a": {}}, {str(i): i for i in range(16)}),
    dict.fromkeys(map(str, range(70_000))),
    [msgspec.msgpack.Ext(5, bytes(n)) for n in (1, 2, 3, 4, 8, 16, 300, 70_000)],
]


def test_the_elements_of_a_body_are_counted_without_decoding_it() -> None:
    body = msgspec.msgpack.encode(EVERY_HEADER)
    assert count_elements(body, media_type=wire.MSGPACK, at_most=len(body) - 1) == n_objects(EVERY_HEADER)
    assert count_elements(bytes(1 << 20), media_type=wire.MSGPACK, at_most=10) == 11


def test_the_elements_of_json_are_no_more_than_those_counted() -> None:
    value = [1.5, "a,b", [[]] * 99, {"a": {"b": [1, 2, 3]}}]
    body = json.dumps(value, indent=1).encode()
    n_keys = 2
    assert count_elements(body, media_type=wire.JSON, at_most=len(body) - 1) >= n_objects(value) - n_keys


def start_of(value: bytes) -> bytes:
    """Return a start whose configuration holds an encoded value."""
    head = msgspec.msgpack.encode(wire.Start(**ORIGIN, config={"a": 0}))
    return head.replace(b"\xa1a\x00", b"\xa1a" + value)


def list_of(n: int) -> bytes:
    return b"\xdd" + n.to_bytes(4, "big") + b"\x90" * n


LARGE_TEXT = b"\xdb" + (2 << 20).to_bytes(4, "big") + b"a" * (2 << 20)
BUNDLE = b"\x81\xa8messages" + list_of(MAX_ELEMENTS)
POLICY = "/api/v1/runs/math/grpo/policy"
COSTLY: list[tuple[str, str, bytes, dict[str, str], int, str]] = [
    ("empty lists", ONE, gzip.compress(start_of(list_of(MAX_ELEMENTS))), GZIP, 413, "at most 1048576 values"),
    ("a bundle of nothing", "/api/v1/reports", BUNDLE, MSGPACK, 413, "send fewer messages at a time"),
    ("a large start", ONE, start_of(LARGE_TEXT), MSGPACK, 400, "at most 1048576 bytes unless it is a report"),
    ("many members", ONE, gzip.compress(b"") * (MAX_GZIP_MEMBERS + 1), GZIP, 400, "compress the body as one"),
    ("a large policy", POLICY, bytes(MAX_DOCUMENT_BYTES + 1), MSGPACK, 413, "raises the limit of reports"),
]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "detail"), [case[1:] for case in COSTLY], ids=[case[0] for case in COSTLY]
)
def test_a_body_that_costs_too_much_is_refused_with_what_to_do(
    shared: httpx.Client, path: str, body: bytes, headers: dict[str, str], status: int, detail: str
) -> None:
    answer = shared.request("PUT" if path == POLICY else "POST", path, content=body, headers=headers)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]


def large_reports() -> list[tuple[str, bytes]]:
    """Return the largest reports of trainers: with turns as trmon's client sends them, and as JSON."""
    content = columns(4096)
    packed = {"columns": {}, "histograms": {}, "parcel": wire.pack_columns(content)}
    large = report(content, **packed, turns=turns(40_000, n_sequences=4096))
    most = report(columns(1), turns=turns(MAX_TURNS, n_sequences=1), step=2)
    return [
        (wire.MSGPACK, wire.encode(large)),
        (wire.MSGPACK, wire.encode(most)),
        (wire.JSON, as_json(report(content, step=3))),
    ]


def test_the_largest_reports_of_trainers_are_stored(shared: httpx.Client) -> None:
    for media_type, body in large_reports():
        answer = shared.post("/api/v1/runs/large/grpo/reports", content=body, headers={"Content-Type": media_type})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_frames_and_members_that_follow_each_other_are_one_body(shared: httpx.Client, encoding: str) -> None:
    body = wire.encode(report(columns(4096)))
    compress = gzip.compress if encoding == "gzip" else zstandard.compress
    halves = b"".join(compress(half) for half in (body[: PIECE_BYTES + 5], body[PIECE_BYTES + 5 :], b""))
    padding = bytes(8) if encoding == "gzip" else b""
    answer = shared.post(
        f"/api/v1/runs/{encoding}/grpo/reports",
        content=halves + padding,
        headers=MSGPACK | {"Content-Encoding": encoding},
    )
    assert answer.status_code == 200, answer.text


def test_memory_is_reserved_before_a_body_is_decompressed() -> None:
    cost, _ = new_cost(max_held_bytes=8 << 20)
    cost.hold(1)
    other = BodyCost(cost._costs, caller="ben")
    with pytest.raises(Overloaded):
        run(decompress(gzip.compress(bytes(64 << 20)), encoding="gzip", max_bytes=64 << 20, cost=other))
    assert other._n_bytes <= 4 << 20
    other.end()
    other.hold(3 << 20)


def test_the_caller_is_charged_for_what_the_body_became(serve: Serve) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    with serve(rate_per_second=0.01, rate_burst=50).client() as client:
        assert client.post(ONE, content=wire.encode(report()), headers=MSGPACK).status_code == 200
        assert client.post(ONE, content=bomb, headers=GZIP).status_code in (400, 413)
        assert client.post(ONE, content=wire.encode(report()), headers=MSGPACK).status_code == 429


def test_only_what_takes_long_leaves_the_event_loop() -> None:
    small, many_turns = (
        report(accepted=b"\x0f"),
        report(columns(1), accepted=b"\x01", turns=turns(40_000, n_sequences=1)),
    )
    assert len(wire.encode(many_turns)) < INLINE_BYTES
    assert [threads_of(one) for one in (small, many_turns)] == [0, 1]
    assert threads_of(*[report(columns(64), accepted=bytes(8), step=step) for step in range(30)]) == 1


def threads_of(*messages: wire.Report) -> int:
    """Return how many threads of costly bodies a bundle started."""
    cost, _ = new_cost()
    body = wire.encode_bundle(
        [wire.encode(msgspec.structs.replace(one, project="math", run="grpo")) for one in messages]
    )
    found = run(READER.read_bundle(body, media_type=wire.MSGPACK, access=EVERYTHING, cost=cost))
    assert all(isinstance(entry, PreparedMessage) for entry in found)
    return len(cost._costs.pool._executor._threads)


def test_callers_wait_in_turn_for_the_threads_of_costly_bodies() -> None:
    order: list[str] = []

    async def send() -> None:
        pool, release = FairPool(), threading.Event()
        holders = [asyncio.create_task(pool.run(release.wait, caller="ana")) for _ in range(pool._free)]
        await asyncio.sleep(0)
        waiting = [
            asyncio.create_task(pool.run(lambda caller=caller: order.append(caller), caller=caller))
            for caller in [*["ana"] * 5, "ben", "cleo"]
        ]
        await asyncio.sleep(0)
        assert not pool._free
        pool._free -= 1  # one thread only, so that the order is that of the turns
        release.set()
        await asyncio.gather(*holders, *waiting)

    run(send())
    assert order.index("ben") <= 2
    assert order.index("cleo") <= 3


def test_a_stall_of_the_event_loop_is_counted() -> None:
    stalls = Counter("stalls", "Stalls.", registry=CollectorRegistry())

    async def stall() -> None:
        LoopWatch().request_received(stalls)
        time.sleep(0.3)  # noqa: ASYNC251 - the fault
        await asyncio.sleep(0.05)

    run(stall())
    assert stalls.collect()[0].samples[0].value >= 1
