"""The wire format: messages survive a round trip, and invalid ones are rejected by field."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trmon
import trmon_client
from tests.core.agreement import equal
from tests.fixtures.command import run_python
from tests.fixtures.messages import ORIGIN, as_json, columns, report
from trmon_client.core import wire
from trmon_client.core.column_schema import N_BINS
from trmon_client.core.columns import Columns
from trmon_client.core.wire.packed_columns import byte_shuffle, compress, open_packed_columns


def packed_report(content: Columns | None = None, **changed: Any) -> wire.Report:
    """Return a report with packed columns, as trmon's client sends it."""
    parcel = wire.pack_columns(columns() if content is None else content)
    return report(**{"columns": {}, "histograms": {}, "parcel": parcel, **changed})


MESSAGES: list[wire.Message] = [
    packed_report(scalars={"grad_norm": 1.5}),
    report(policy="ab" * 16, accepted=b"\x0f", scalars={"grad_norm": 1.5}, finished=[wire.ChunkCount(0, None, 2)]),
    wire.Start(**ORIGIN, config={"lr": 1e-3}, owner="me", tags=["dapo"], policy={"name": "p", "criteria": []}),
    wire.Scalars(**ORIGIN, sequence=3, step=1, values={"lr": 1e-3, "bad": None, "huge": "inf"}),
    wire.Heartbeat(**ORIGIN, losses=wire.Losses({"queue_full": 2}, 10, 3)),
    wire.Pause(**ORIGIN, sequence=4, reason="evaluation"),
    wire.Pause(**ORIGIN, sequence=4, checkpoint=wire.SavedCheckpoint(60, "/c/60", deleted=[20])),
    wire.Finish(**ORIGIN, sequence=5, outcome="crashed", error="boom"),
]


DROPPED: Any = object()
PARCEL = msgspec.to_builtins(wire.pack_columns(columns()), builtin_types=(bytes,))


def _document(**changed: Any) -> dict[str, Any]:
    fields = {**msgspec.to_builtins(report(), builtin_types=(bytes,)), **changed}
    return {name: value for name, value in fields.items() if value is not DROPPED}


@pytest.mark.parametrize("media_type", [wire.MSGPACK, wire.JSON])
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_a_round_trip(message: wire.Message, media_type: str) -> None:
    assert wire.decode(wire.encode(message, media_type=media_type), media_type=media_type) == message


@pytest.mark.parametrize("send", [report, packed_report])
def test_columns_survive_a_round_trip_bit_for_bit(send: Callable[..., wire.Report]) -> None:
    content = columns(5, reward=np.array([1.0, 0.0, math.nan, math.inf, -math.inf]))
    got = wire.unpack_columns(send(content, kl_is="exact", trainer_version=3))
    equal(got, content)
    assert (got.kl_is, got.trainer_version) == ("exact", 3)


ODD_BITS = [0x0, 0x8000000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001]
ODD_BITS += [0xFFF8000000000001, 0x8000000000000001, 0x7FEFFFFFFFFFFFFF, 0x80000000, 0x7F80000180000000, 0xFF800001]
"""The bits of zeros, infinities, NaNs and adjacent numbers, as float64 and, in halves, as float32."""


@given(st.lists(st.sampled_from(ODD_BITS) | st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_the_stored_form_has_one_nan_and_one_zero_keeps_other_numbers_and_is_what_the_client_packs(
    bits: list[int],
) -> None:
    doubles = np.array(bits, "<u8").view("<f8")
    singles = np.array(bits, "<u8").view("<f4")[: len(bits)]
    content = columns(len(bits), reward=doubles, total_max_d=singles)
    sent = packed_report(content)
    stored, n_tokens = wire.storable_columns(sent)
    assert (stored, n_tokens) == wire.storable_columns(report(content)) == (sent.parcel, 16 * len(bits))
    assert stored is sent.parcel
    got = wire.columns_of_packed(sent, stored)
    for name, numbers in (("reward", doubles), ("total_max_d", singles)):
        plain = np.where(np.isnan(numbers), np.nan, numbers).astype(numbers.dtype) + numbers.dtype.type(0)
        assert got[name].tobytes() == plain.tobytes()


LABELS = {"argmax_abs_d": np.full(4, -1), "group_id": np.array([-(1 << 63), -1, 1 << 62, 0])}
"""Integer columns that are not counts."""


@pytest.mark.parametrize(("name", "value"), [("n_tokens", -1), ("n_invalid", -(1 << 63)), ("total_n_trunc", 1 << 40)])
@pytest.mark.parametrize("send", [report, packed_report])
def test_an_invalid_count_is_rejected_while_labels_may_be_any_integer(
    send: Callable[[Columns], wire.Report], name: str, value: int
) -> None:
    assert wire.storable_columns(send(columns(**LABELS)))[0].n_sequences == 4
    with pytest.raises(wire.WireError, match=f"columns.{name}: counts must be zero or more"):
        wire.storable_columns(send(columns(**LABELS, **{name: np.array([0, 1, value, 2])})))


@pytest.mark.parametrize("value", [-1, 1 << 40])
@pytest.mark.parametrize("send", [report, packed_report])
def test_an_invalid_count_in_a_histogram_is_rejected(send: Callable[[Columns], wire.Report], value: int) -> None:
    content = columns()
    invalid = {**content.histograms, "total": np.full(N_BINS, value)}
    with pytest.raises(wire.WireError, match=r"histograms\.total: counts must be zero or more"):
        wire.storable_columns(send(replace(content, histograms=invalid)))


@pytest.mark.parametrize("n_tokens", [0, 16, (1 << 40) - 1])
def test_the_tokens_of_a_report_are_counted_exactly(n_tokens: int) -> None:
    content = columns(n_tokens=np.full(4, n_tokens))
    assert wire.storable_columns(report(content))[1] == wire.storable_columns(packed_report(content))[1] == 4 * n_tokens


def test_a_report_without_sequences_can_be_packed() -> None:
    stored, n_tokens = wire.storable_columns(packed_report(columns(0)))
    assert (stored.n_sequences, n_tokens) == (0, 0)
    assert len(wire.columns_of_packed(report(), stored)["n_tokens"]) == 0


def _changed(sent: wire.Report, changed: Callable[[str, Any], Any], **names: Any) -> wire.Report:
    """Return a report with the [columns, B] of each dtype changed, and its names."""
    found = open_packed_columns(sent.parcel)
    blocks = [changed(dtype, section.numbers()) for dtype, section in found.columns.items()]
    planes = (byte_shuffle(block.tobytes(), block.itemsize) for block in (*blocks, found.histograms.numbers()))
    parcel = msgspec.structs.replace(sent.parcel, data=compress(b"".join(planes)), **names)
    return msgspec.structs.replace(sent, parcel=parcel)


def test_packed_columns_in_another_order_are_stored_in_the_canonical_order() -> None:
    canonical = packed_report(columns(3, reward=np.array([0.0, math.nan, 1.0])))
    names = {dtype: tuple(reversed(group)) for dtype, group in canonical.parcel.names.items()}
    other = _changed(canonical, lambda _, rows: rows[::-1], names=names)
    assert wire.storable_columns(other)[0] == canonical.parcel


@pytest.mark.parametrize("odd", [-0.0, np.uint64(0xFFF8000000000001).view(np.float64)])
def test_packed_columns_with_another_nan_or_zero_are_stored_in_canonical_form(odd: float) -> None:
    canonical = packed_report(columns(2, reward=np.array([abs(odd), 1.0])))
    row = canonical.parcel.names["f8"].index("reward")

    def changed_rows(dtype: str, rows: Any) -> Any:
        if dtype == "f8":
            rows[row, 0] = odd
        return rows

    other = _changed(canonical, changed_rows)
    assert other != canonical
    assert wire.storable_columns(other)[0] == canonical.parcel


def test_unknown_packed_columns_are_rejected_in_this_version_and_dropped_in_a_newer_one() -> None:
    canonical = packed_report()
    names = {**canonical.parcel.names, "f8": (*canonical.parcel.names["f8"], "total_wisdom")}
    other = _changed(
        canonical, lambda dtype, rows: np.vstack([rows, np.ones(4)]) if dtype == "f8" else rows, names=names
    )
    with pytest.raises(wire.WireError, match=r"columns.total_wisdom: unknown column"):
        wire.storable_columns(other)
    newer = msgspec.structs.replace(other, wire=(1, wire.WIRE_MINOR + 1))
    assert wire.storable_columns(newer)[0] == canonical.parcel


def test_json_encodes_nan_as_null_and_infinity_by_name() -> None:
    sent = report(columns(3, reward=np.array([math.nan, math.inf, -math.inf])))
    body = as_json(sent)
    assert b'"reward":[null,"inf","-inf"]' in body
    got = wire.unpack_columns(wire.decode(body, media_type=wire.JSON))  # type: ignore[arg-type]
    assert np.isnan(got["reward"][0])
    assert got["reward"][1:].tolist() == [math.inf, -math.inf]


def test_a_number_too_large_for_float32_becomes_infinite_in_a_float32_column() -> None:
    document = msgspec.json.decode(as_json(report()))
    document["columns"]["total_max_d"][0] = 1e300
    message = wire.decode(msgspec.json.encode(document), media_type=wire.JSON)
    assert wire.unpack_columns(message)["total_max_d"][0] == math.inf  # type: ignore[arg-type]


@given(st.lists(st.booleans(), max_size=70))
def test_bits_survive_a_round_trip(accepted: list[bool]) -> None:
    bits = wire.pack_bits(accepted)
    assert len(bits) == -(-len(accepted) // 8)
    assert wire.unpack_bits(bits, len(accepted)).tolist() == accepted


def test_the_path_of_a_checkpoint_has_no_secrets_and_a_pause_without_one_keeps_its_bytes() -> None:
    saved = wire.SavedCheckpoint(1, "https://me:hush@host/c/1?token=hush-hush-hush-1")
    safe = wire.with_safe_texts(wire.Pause(**ORIGIN, sequence=4, checkpoint=saved))
    assert safe.checkpoint == wire.SavedCheckpoint(1, "https://***@host/c/1?token=***")
    assert b"checkpoint" not in wire.encode(wire.Pause(**ORIGIN, sequence=4, reason="evaluation"))


def test_unknown_fields_are_ignored() -> None:
    body = msgspec.msgpack.encode(_document(colour="red", losses={"dropped": {}, "mood": 1}))
    assert wire.decode(body) == report()


def test_unknown_columns_are_rejected_in_this_version_and_dropped_in_a_newer_one() -> None:
    extra = {**report().columns, "total_wisdom": wire.EncodedColumn("f8", b"")}
    with pytest.raises(wire.WireError, match="unknown column") as rejected:
        wire.unpack_columns(report(columns=extra))
    assert rejected.value.field == "columns.total_wisdom"
    assert "total_wisdom" not in wire.unpack_columns(report(columns=extra, wire=(1, wire.WIRE_MINOR + 1)))


def test_an_invalid_message_does_not_fail_its_bundle() -> None:
    good = wire.encode(report())
    bad = msgspec.msgpack.encode(_document(step=-1))
    first, second, third = wire.decode_bundle(wire.encode_bundle([good, bad, good]))
    assert first == third == report()
    assert isinstance(second, wire.WireError)
    assert second.field == "step"


def test_a_bundle_has_a_maximum_number_of_messages() -> None:
    beat = wire.encode(wire.Heartbeat(**ORIGIN))
    assert len(wire.decode_bundle(wire.encode_bundle([beat] * wire.MAX_BUNDLE_MESSAGES))) == wire.MAX_BUNDLE_MESSAGES
    with pytest.raises(wire.WireError, match="messages: at most"):
        wire.decode_bundle(wire.encode_bundle([beat] * (wire.MAX_BUNDLE_MESSAGES + 1)))


def test_answers_survive_a_round_trip() -> None:
    ack = wire.Ack("stored", b"\x01", wire.PolicyUpdate("ab", {"name": "p"}), problem=None)
    assert wire.decode_ack(wire.encode(ack)) == ack
    assert wire.decode_acks(wire.encode(wire.Acks([ack, ack]))).acks == [ack, ack]


INVALID_BODIES: dict[str, tuple[bytes, str, str]] = {
    "an empty body": (b"", "body", "truncated"),
    "half a message": (wire.encode(report())[:-20], "body", "truncated"),
    "a list": (msgspec.msgpack.encode([1]), "body", "Expected `object`"),
    "very deep nesting": (b"\x91" * 100_000, "body", "Expected `object`"),
    "an invalid column in a truncated body": (
        msgspec.msgpack.encode(_document(columns={"n_tokens": 3}))[:-3],
        "body",
        "truncated",
    ),
}


def _saved(**changed: Any) -> dict[str, Any]:
    return {"kind": "pause", "sequence": 1, "checkpoint": {"step": 1, "path": "/c/1", **changed}}


INVALID_FIELDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no kind": ({"kind": DROPPED}, "kind", "is required"),
    "an unknown kind": ({"kind": "poem"}, "kind", "poem"),
    "no attempt": ({"attempt": DROPPED}, "attempt", "is required"),
    "no columns": ({"columns": DROPPED}, "columns", "is required without a parcel"),
    "columns and a parcel": ({"parcel": PARCEL}, "parcel", "cannot be combined with columns or histograms"),
    "a step that is text": ({"step": "one"}, "step", "Expected `int`"),
    "a step beyond 62 bits": ({"step": 1 << 62}, "step", "below 2**62"),
    "a negative update": ({"update": -1}, "update", "zero or more"),
    "a rank above the world size": ({"rank": 1}, "rank", "below world_size (1)"),
    "an empty world": ({"world_size": 0}, "world_size", "must be 1 to"),
    "a loss beyond 63 bits": ({"losses": {"dropped": {"x": 1 << 63}}}, "losses", "63 bits"),
    "many reasons of losses": ({"losses": {"dropped": {str(i): 1 for i in range(65)}}}, "losses.dropped", "at most 64"),
    "a reason with a NUL": ({"losses": {"dropped": {"a\0": 1}}}, "losses.dropped", "1 to 128 printable"),
    "a long reason": ({"losses": {"dropped": {"a" * 129: 1}}}, "losses.dropped", "1 to 128 printable"),
    "a long warning": ({"losses": {"warnings": {"a": "b" * 4097}}}, "losses.warnings", "at most 4096"),
    "a long refusal": ({"losses": {"refused_policies": {"a": "b" * 4097}}}, "losses.refused_policies", "at most 4096"),
    "a long pause": ({"kind": "pause", "sequence": 1, "reason": "a" * 4097}, "reason", "at most 4096"),
    "a long path": (_saved(path="a" * 4097), "checkpoint.path", "at most 4096"),
    "a checkpoint of no step": (_saved(step=-1), "checkpoint", "zero or more"),
    "many deleted checkpoints": (_saved(deleted=[1] * 257), "checkpoint.deleted", "at most 256"),
    "a future version": ({"wire": [2, 0]}, "wire", "supported: 1.0 to 1.x"),
    "an attempt without a name": ({"attempt": ""}, "attempt", "1 to 128"),
    "a launch with a NUL in it": ({"launch": "a\0b"}, "launch", "printable"),
    "a policy of 10,000 characters": ({"policy": "a" * 10_000}, "policy", "1 to 128"),
    "too many scalars": ({"scalars": {str(i): 0 for i in range(257)}}, "scalars", "256"),
    "a scalar that is text": ({"scalars": {"lr": "x"}}, "scalars.lr", "Invalid enum"),
    "negative chunk counts": ({"finished": [[1, None, -1]]}, "finished", "zero or more"),
    "a column without data": ({"columns": {"n_tokens": {"dtype": "i8"}}}, "columns.n_tokens.data", "is required"),
}


@pytest.mark.parametrize("case", [*INVALID_BODIES, *INVALID_FIELDS])
def test_an_invalid_message_is_rejected_by_field(case: str) -> None:
    if case in INVALID_BODIES:
        body, field, text = INVALID_BODIES[case]
    else:
        changed, field, text = INVALID_FIELDS[case]
        body = msgspec.msgpack.encode(_document(**changed))
    with pytest.raises(wire.WireError) as rejected:
        wire.decode(body)
    assert rejected.value.field == field
    assert text in str(rejected.value)
    assert len(str(rejected.value)) < 300


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


NOT_JSON: dict[str, Any] = {
    "a key that is true": {True: 1},
    "an invalid key in a nested document": [{"a": {(1,): 1}}],
    "an extension": msgspec.msgpack.Ext(5, b"x"),
    "lists nested too deeply": _nested(64),
    "lists nested too deeply to encode": _nested(900),
}


@pytest.mark.parametrize("field", ["config", "policy"])
@pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON)
def test_a_document_that_json_cannot_encode_is_rejected(field: str, value: Any) -> None:
    start = {**ORIGIN, "kind": "start"}
    assert wire.decode(msgspec.msgpack.encode({**start, field: {"a": _nested(63)}}))
    with pytest.raises(wire.WireError, match=f"^{field}: "):
        wire.decode(msgspec.msgpack.encode({**start, field: {"a": value}}))


INVALID_JSON: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"hello", "body"),
    "not UTF-8": (b'{"kind":"report","attempt":"\xff\xfe"}', "body"),
    "half a surrogate pair": (b'{"kind":"heartbeat","attempt":"\\ud800","launch":"l"}', "body"),
    "a scalar too large for a float": (
        b'{"kind":"scalars","attempt":"a","launch":"l","sequence":0,"step":0,"values":{"lr":1%b}}' % (b"0" * 400),
        "values.lr",
    ),
    "a configuration that MessagePack cannot encode": (
        b'{"kind":"start","attempt":"a","launch":"l","config":{"seed":1%b}}' % (b"0" * 40),
        "config",
    ),
}


@pytest.mark.parametrize(("body", "field"), INVALID_JSON.values(), ids=INVALID_JSON)
def test_invalid_json_is_rejected_by_field(body: bytes, field: str) -> None:
    with pytest.raises(wire.WireError, match=f"^{field}: "):
        wire.decode(body, media_type=wire.JSON)


def _with(**changed: wire.WireColumn) -> dict[str, Any]:
    return {"columns": {**report().columns, **changed}}


def _without(missing: str) -> Columns:
    return replace(columns(), by_name={name: array for name, array in columns().items() if name != missing})


INCOMPLETE = report(_without("total_max_d")).columns
ENCODED = wire.EncodedColumn
INVALID_COLUMNS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no n_tokens": ({"columns": {}}, "columns.n_tokens", "is required"),
    "the wrong dtype": (_with(total_sum_d=ENCODED("f4", bytes(16))), "columns.total_sum_d", "must be f8, got f4"),
    "half a number": (_with(total_sum_d=ENCODED("f8", bytes(31))), "columns.total_sum_d", "not a whole number"),
    "the wrong length": (_with(total_sum_d=ENCODED("f8", bytes(24))), "columns.total_sum_d", "has 3 values where"),
    "a count below zero": (_with(n_invalid=[0, 0, -1, 0]), "columns.n_invalid", "zero or more"),
    "a fractional count": (_with(n_invalid=[0, 0, 0.5, 0]), "columns.n_invalid", "whole numbers"),
    "a count beyond 64 bits": (_with(n_invalid=[0, 0, 1 << 63, 0]), "columns.n_invalid", "64 bits"),
    "a sum beyond float64": (_with(total_sum_d=[10**400, 0, 0, 0]), "columns.total_sum_d", "float64"),
    "an incomplete pair": ({"columns": INCOMPLETE}, "columns.total_max_d", "is required with total_sum_d"),
    "a histogram too short": ({"histograms": {"total": [1, 2, 3]}}, "histograms.total", "bins"),
    "bits of another number of sequences": ({"accepted": bytes(3)}, "accepted", "4 sequences take 1 bytes"),
}


@pytest.mark.parametrize(("changed", "field", "text"), INVALID_COLUMNS.values(), ids=INVALID_COLUMNS)
def test_invalid_columns_are_rejected_by_name(changed: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(wire.WireError) as rejected:
        wire.unpack_columns(report(**changed))
    assert rejected.value.field == field
    assert text in str(rejected.value)


def _parcel(**changed: Any) -> wire.PackedColumns:
    return msgspec.structs.replace(wire.pack_columns(columns()), **changed)


FRAME = "is not one zstd frame of the"
TWICE = {**_parcel().names, "i8": (*_parcel().names["i8"], "n_tokens")}
INVALID_PARCELS: dict[str, tuple[wire.PackedColumns, str, str]] = {
    "more than the maximum size": (_parcel(n_sequences=1 << 20), "parcel", "send it in chunks"),
    "sequences of 4,300 digits": (_parcel(n_sequences=10**4299), "parcel", "send it in chunks"),
    "a negative number of 4,299 digits": (_parcel(n_sequences=-(10**4298)), "parcel.n_sequences", "must be 0 to"),
    "another number of sequences": (_parcel(n_sequences=5), "parcel.data", FRAME),
    "no data": (_parcel(data=b""), "parcel.data", FRAME),
    "half a frame": (_parcel(data=_parcel().data[:-20]), "parcel.data", FRAME),
    "a frame of another size": (_parcel(data=compress(bytes(32 << 20))), "parcel.data", FRAME),
    "more than a frame": (_parcel(data=_parcel().data + b"x"), "parcel.data", "unused data"),
    "no dtypes": (_parcel(names={}), "parcel.data", FRAME),
    "a column twice": (_parcel(names=TWICE), "parcel.names", "n_tokens is duplicated"),
    "a histogram twice": (_parcel(pairs=("total", "mismatch", "total")), "parcel.pairs", "total is duplicated"),
    "an incomplete pair": (wire.pack_columns(_without("total_max_d")), "columns.total_max_d", "is required"),
}


@pytest.mark.parametrize(("parcel", "field", "text"), INVALID_PARCELS.values(), ids=INVALID_PARCELS)
def test_an_invalid_parcel_is_rejected_by_field(parcel: wire.PackedColumns, field: str, text: str) -> None:
    with pytest.raises(wire.WireError) as rejected:
        wire.storable_columns(packed_report(parcel=parcel))
    assert rejected.value.field == field
    assert text in str(rejected.value)
    assert len(str(rejected.value)) < 300


def test_bits_of_another_number_of_sequences_than_the_parcel_are_rejected() -> None:
    with pytest.raises(wire.WireError, match="accepted: 4 sequences take 1 bytes"):
        wire.storable_columns(packed_report(accepted=bytes(3)))


@given(st.binary(max_size=200))
def test_any_bytes_raise_only_a_wire_error(body: bytes) -> None:
    for media_type in (wire.MSGPACK, wire.JSON):
        with pytest.raises(wire.WireError):
            wire.decode(body, media_type=media_type)
        with pytest.raises(wire.WireError):
            wire.decode_bundle(body, media_type=media_type)


RACE = """
import dataclasses, sys, threading, typing
import msgspec
from trmon_client.core.wire.messages import decodable

sys.setswitchinterval(1e-6)
fields = [f"field_{i}" for i in range(60)]
document = {name: {"a": 1} for name in fields}

def read(kind, barrier):
    barrier.wait()
    for _ in range(3): msgspec.convert(document, kind)

for _ in range(200):
    kind = dataclasses.make_dataclass("Kind", [(name, "typing.Optional[dict[str, int]]") for name in fields])
    kind.__module__ = __name__
    decodable(kind)
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(kind, barrier)) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
"""Without `decodable` the process ends with a segmentation fault."""


def test_every_type_named_at_run_time_is_prepared_at_import() -> None:
    texts = (path.read_text() for package in (trmon, trmon_client) for path in Path(package.__path__[0]).rglob("*.py"))
    nodes = [node for text in texts if "msgspec" in text or "decodable" in text for node in ast.walk(ast.parse(text))]
    known = {"dict", "list", "tuple", "str", "int", "object", "Any", "Names"}
    known.add("kind")  # of trmon_client.api, which decodes one answer at a time
    named: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef) and any(getattr(one, "id", "") == "decodable" for one in node.decorator_list):
            known.add(node.name)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("convert", "decode"):
            given = [word.value for word in node.keywords if word.arg == "type"]
            given += node.args[1:2] if getattr(node.func, "attr", "") == "convert" else []
            named |= {name.id for one in given for name in ast.walk(one) if isinstance(name, ast.Name)}
    assert named >= {"Judgement", "Matcher", "Manifest", "Quarantined"}
    assert named <= known


def test_threads_can_decode_a_type_for_the_first_time_at_once() -> None:
    ended = run_python(RACE)
    assert (ended.returncode, ended.stderr) == (0, "")
