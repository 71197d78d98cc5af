"""Ingest over real HTTP: durable, idempotent, and every bad input is refused with the name of its field."""

from __future__ import annotations

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

from tests.fixtures.messages import ORIGIN, as_json, columns, report
from tests.fixtures.running_service import OwnRun
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey
from trmon_client.core import wire
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset

MANY = "/api/v1/reports"
MSGPACK = {"Content-Type": wire.MSGPACK}
JSON = {"Content-Type": wire.JSON}


def post(run: OwnRun, content: Any, headers: dict[str, str] = MSGPACK) -> httpx.Response:
    return run.client.post(f"/api/v1/runs/{run.key}/reports", content=content, headers=headers)


def send(run: OwnRun, message: wire.Message) -> httpx.Response:
    return post(run, wire.encode(message))


def acknowledged(response: httpx.Response) -> wire.Ack:
    assert response.status_code == 200, response.text
    return wire.decode_ack(response.content)


def bundle(run: OwnRun, *messages: bytes) -> list[wire.Ack]:
    response = run.client.post(MANY, content=wire.encode_bundle(list(messages)), headers=MSGPACK)
    assert response.status_code == 200, response.text
    return wire.decode_acks(response.content).acks


def named(message: wire.Message, key: RunKey) -> bytes:
    return wire.encode(msgspec.structs.replace(message, project=key.project, run=key.run))


def test_a_report_is_stored_decided_and_acknowledged_with_the_current_policy(run: OwnRun) -> None:
    content = columns(12, mismatch_sum_k3=np.linspace(0, 1, 12))
    ack = acknowledged(send(run, report(content)))
    expected = decide(content, preset("trm_auto")).accepted
    assert ack.status == "stored"
    assert ack.accepted == wire.pack_bits(expected)
    assert 0 < expected.sum() < 12
    assert ack.policy is not None
    assert ack.policy.hash == preset("trm_auto").hash
    assert [shadow["name"] for shadow in ack.policy.shadows] == ["trm_max", "geo_mask", "token_veto"]


def test_the_clients_decision_is_kept_and_a_known_policy_is_not_sent_again(run: OwnRun) -> None:
    ack = acknowledged(send(run, report(policy=preset("trm_auto").hash, accepted=b"\x05")))
    assert (ack.status, ack.accepted, ack.policy) == ("stored", b"\x05", None)


def test_sending_again_changes_nothing_and_returns_the_same_bits(run: OwnRun) -> None:
    first = acknowledged(send(run, report()))
    again = acknowledged(send(run, report(sent_at=9.0, losses=wire.Losses({"queue_full": 1}))))
    assert (first.status, again.status) == ("stored", "duplicate")
    assert first.accepted == again.accepted
    assert bundle(run, named(report(), run.key))[0].status == "duplicate"


def test_the_same_data_as_json_and_as_msgpack_is_the_same_report(run: OwnRun) -> None:
    content = columns(3, reward=np.array([np.nan, np.inf, -0.0]))
    message = report(content, scalars={"lr": 1.0, "loss": "inf", "odd": None}, finished=[wire.ChunkCount(1, None, 1)])
    assert acknowledged(send(run, message)).status == "stored"
    answer = post(run, as_json(message), JSON)
    assert answer.headers["content-type"] == wire.JSON
    assert answer.json()["status"] == "duplicate"
    eventually(lambda: run.get("/signals?names=lr")["signals"]["lr"]["last"] == [1.0])


@pytest.mark.parametrize("n", [4, 600], ids=["on the event loop", "on another thread"])
def test_the_same_data_in_one_parcel_and_in_single_columns_is_the_same_report(run: OwnRun, n: int) -> None:
    content = columns(n, reward=np.linspace(-1.0, 1.0, n))
    packed = report(columns={}, histograms={}, parcel=wire.pack_columns(content), accepted=bytes(n // 8 + bool(n % 8)))
    first = acknowledged(send(run, packed))
    again = acknowledged(send(run, report(content, accepted=packed.accepted)))
    assert (first.status, again.status) == ("stored", "duplicate")


def test_a_parcel_without_a_decision_is_decided_like_single_columns(run: OwnRun) -> None:
    content = columns(12, mismatch_sum_k3=np.linspace(0, 1, 12))
    ack = acknowledged(send(run, report(columns={}, histograms={}, parcel=wire.pack_columns(content))))
    assert ack.accepted == wire.pack_bits(decide(content, preset("trm_auto")).accepted)


def test_another_payload_under_the_same_identity_is_a_conflict(run: OwnRun) -> None:
    acknowledged(send(run, report()))
    other = report(columns(seed=1))
    answer = send(run, other)
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert "step 1, rank 0, chunk 0" in answer.json()["detail"]
    first, second = bundle(run, named(other, run.key), named(report(step=2), run.key))
    assert (first.status, second.status) == ("conflict", "stored")


def test_a_bundle_carries_every_kind_of_message_and_a_bad_one_fails_alone(run: OwnRun) -> None:
    messages = [
        wire.Start(**ORIGIN, owner="me", tags=["dapo"]),
        report(),
        wire.Scalars(**ORIGIN, sequence=1, step=1, values={"lr": 0.1}),
        wire.Heartbeat(**ORIGIN),
        wire.Pause(**ORIGIN, sequence=2),
        wire.Finish(**ORIGIN, sequence=3),
    ]
    good = [named(message, run.key) for message in messages]
    acks = bundle(run, *good, named(report(step=2), RunKey(run.key.project, "../etc")), b"\xc0", *good)
    assert [ack.status for ack in acks[:6]] == ["stored"] * 6
    assert [ack.status for ack in acks[6:8]] == ["invalid"] * 2
    assert "run:" in str(acks[6].problem)
    assert [ack.status for ack in acks[8:]] == ["duplicate"] * 3 + ["stored"] + ["duplicate"] * 2


def test_the_policy_that_a_trainer_requests_is_active_before_its_start_is_acknowledged(run: OwnRun) -> None:
    requested = preset("geo_mask")
    ack = acknowledged(send(run, wire.Start(**ORIGIN, policy=requested.spec())))
    assert ack.policy is not None
    assert ack.policy.hash == requested.hash
    assert acknowledged(send(run, report(policy=requested.hash, accepted=b"\x0f"))).policy is None


def test_a_start_is_told_which_attempt_of_its_run_it_is(run: OwnRun) -> None:
    again = {**ORIGIN, "attempt": "after a crash", "launch": "another"}
    starts = [wire.Start(**ORIGIN), wire.Start(**again), wire.Start(**again)]
    assert [acknowledged(send(run, start)).attempt for start in starts] == [1, 2, 2]


def test_the_default_policy_decides_reports_that_lack_columns_of_the_policy(run: OwnRun) -> None:
    acknowledged(send(run, wire.Start(**ORIGIN, policy=preset("opsm").spec())))
    ack = acknowledged(send(run, report()))
    assert ack.accepted == wire.pack_bits(decide(columns(), preset("trm_auto")).accepted)


BOMB = b"\0" * (80 << 20)


def _document(**changed: Any) -> bytes:
    return msgspec.msgpack.encode({**msgspec.to_builtins(report(), builtin_types=(bytes,)), **changed})


def _columns(**changed: Any) -> bytes:
    packed = msgspec.to_builtins(report().columns, builtin_types=(bytes,))
    return _document(columns={**packed, **changed})


def _bomb() -> bytes:
    """Return a report whose parcel claims a size above the limit."""
    parcel = msgspec.structs.replace(wire.pack_columns(columns()), n_sequences=1 << 20, data=zstandard.compress(BOMB))
    return wire.encode(report(columns={}, histograms={}, parcel=parcel))


BAD: list[tuple[str, bytes, dict[str, str], int, str | None]] = [
    ("a truncated body", wire.encode(report())[:-10], MSGPACK, 400, "body"),
    ("a future version", _document(wire=[2, 0]), MSGPACK, 400, "wire"),
    ("an unknown column", _columns(total_wisdom=[1, 2, 3, 4]), MSGPACK, 400, "columns.total_wisdom"),
    ("a wrong length", _columns(total_sum_d={"dtype": "f8", "data": bytes(8)}), MSGPACK, 400, "columns.total_sum_d"),
    ("a negative step", _document(step=-1), MSGPACK, 400, "step"),
    ("invalid JSON", b"{", JSON, 400, "body"),
    ("no content type", wire.encode(report()), {}, 415, None),
    ("an unknown content type", b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, None),
    ("an unknown encoding", b"", MSGPACK | {"Content-Encoding": "br"}, 415, None),
    ("invalid gzip", b"hello", MSGPACK | {"Content-Encoding": "gzip"}, 400, "body"),
    ("half a gzip", gzip.compress(wire.encode(report()))[:-9], MSGPACK | {"Content-Encoding": "gzip"}, 400, "body"),
    ("invalid zstd", b"hello", MSGPACK | {"Content-Encoding": "zstd"}, 400, "body"),
    ("a zstd bomb", zstandard.compress(BOMB), MSGPACK | {"Content-Encoding": "zstd"}, 413, None),
    ("a gzip bomb", gzip.compress(BOMB), MSGPACK | {"Content-Encoding": "gzip"}, 413, None),
    ("a parcel bomb", _bomb(), MSGPACK, 400, "parcel"),
    ("an oversized body", BOMB, MSGPACK, 413, None),
]


@pytest.mark.parametrize(("content", "headers", "status", "field"), [case[1:] for case in BAD], ids=[c[0] for c in BAD])
def test_bad_input_is_refused_by_field_and_stores_nothing(
    run: OwnRun, content: bytes, headers: dict[str, str], status: int, field: str | None
) -> None:
    answer = post(run, content, headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem.get("field") == field
    assert run.ask("GET").status_code == 404
    assert acknowledged(send(run, report())).status == "stored"


def test_a_body_without_a_length_is_refused_above_the_limit(run: OwnRun) -> None:
    answer = post(run, (bytes(1 << 20) for _ in range(70)))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("project", "run", "field"),
    [
        ("p" * 10_000, "grpo", "project"),
        ("math", "a b", "run"),
    ],
)
def test_invalid_names_are_refused(shared: httpx.Client, project: str, run: str, field: str) -> None:
    before = shared.get("/api/v1/runs").json()
    answer = send(OwnRun(shared, RunKey(project, run)), report())
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert len(answer.content) < 1000
    assert shared.get("/api/v1/runs").json() == before


def test_requests_above_the_writers_capacity_get_429(run: OwnRun, shared_service: ThreadedService) -> None:
    released, heartbeats = threading.Event(), [named(wire.Heartbeat(**ORIGIN), run.key)] * wire.MAX_BUNDLE_MESSAGES
    shared_service.app.state.components.store.writer.submit(lambda _: released.wait(60.0))
    content = wire.encode_bundle(heartbeats)
    answers = [run.client.post(MANY, content=content, headers=MSGPACK) for _ in range(4)]
    released.set()
    assert {answer.status_code for answer in answers[:-1]} <= {200, 429}
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].json()["type"] == "urn:trmon:problem:overloaded"
    stored = eventually(lambda: send(run, report()), lambda answer: answer.status_code == 200)
    assert acknowledged(stored).status == "stored"


YEAR_SECONDS = 365 * 86_400.0


@pytest.mark.parametrize("skew_seconds", [-YEAR_SECONDS, YEAR_SECONDS], ids=["a year behind", "a year ahead"])
def test_a_trainers_wrong_clock_changes_no_time_that_the_service_records(run: OwnRun, skew_seconds: float) -> None:
    began = time.time()
    for step in range(3):
        counts = [wire.ChunkCount(step, None, 1)]
        run.send(report(columns(seed=step), step=step, finished=counts, sent_at=began + skew_seconds + step))
    found = eventually(lambda: run.get("/batches")["items"], lambda items: len(items) == 3)
    shown = run.get()
    assert shown["state"] == "running"
    assert began <= shown["last_report_at"] <= time.time()
    assert all(began <= batch["closed_at"] <= time.time() for batch in found)
    assert [batch["revised"] for batch in found] == [False] * 3


def test_openapi_describes_the_wire(shared: httpx.Client) -> None:
    document = shared.get("/api/v1/openapi.json").json()
    body = document["paths"]["/api/v1/runs/{project}/{run}/reports"]["post"]["requestBody"]["content"]
    assert body[wire.MSGPACK]["schema"] == {"$ref": "#/components/schemas/Message"}
    named_in = set(json.dumps(document).split('"#/components/schemas/')[1:])
    assert {name.split('"')[0] for name in named_in} <= document["components"]["schemas"].keys()
