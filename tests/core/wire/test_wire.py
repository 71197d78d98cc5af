"""The wire format: messages survive a round trip, and invalid ones are rejected by field."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
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
from tests.fixtures.messages import ORIGIN, as_json, columns, report
from trmon_client.core import wire
from trmon_client.core.arrays import DType
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
    wire.Finish(**ORIGIN, sequence=5, outcome="crashed", error="boom"),
]


def _document(**changed: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(report(), builtin_types=(bytes,)), **changed}


def _without(field: str) -> dict[str, Any]:
    return {name: value for name, value in _document().items() if name != field}


@pytest.mark.parametrize("media_type", [wire.MSGPACK, wire.JSON])
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_a_round_trip(message: wire.Message, media_type: str) -> None:
    assert wire.decode(wire.encode(message, media_type=media_type), media_type=media_type) == message


def test_columns_survive_a_round_trip_bit_for_bit() -> None:
    sent = columns(5, reward=np.array([0.0, -0.0, math.nan, math.inf, -math.inf]))
    got = wire.unpack_columns(report(sent))
    assert list(got) == list(sent)
    for name, array in sent.items():
        assert got[name].tobytes() == array.tobytes()
        assert got[name].dtype == array.dtype
    assert all(np.array_equal(got.histograms[pair], counts) for pair, counts in sent.histograms.items())


def test_stored_columns_differ_only_in_noncanonical_nans_and_zeros() -> None:
    odd_nan = np.uint64(0xFFF8000000000001).view(np.float64)
    sent = report(columns(5, reward=np.array([0.0, -0.0, odd_nan, math.inf, -math.inf])))
    stored, n_tokens = wire.storable_columns(sent)
    assert (stored.n_sequences, n_tokens) == (5, 80)
    unpacked, got = wire.unpack_columns(sent), wire.columns_of_packed(sent, stored)
    assert got["reward"].tobytes() == np.array([0.0, 0.0, math.nan, math.inf, -math.inf]).tobytes()
    assert got.keys() == unpacked.keys()
    assert all(np.array_equal(got[name], unpacked[name], equal_nan=True) for name in got)
    assert all(got[name].dtype == unpacked[name].dtype for name in got)
    assert got.histograms.keys() == unpacked.histograms.keys()
    assert all(np.array_equal(got.histograms[pair], counts) for pair, counts in unpacked.histograms.items())


ODD_BITS = [0x0, 0x8000000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001]
ODD_BITS += [0xFFF8000000000001, 0x8000000000000001, 0x7FEFFFFFFFFFFFFF, 0x80000000, 0x7F80000180000000, 0xFF800001]
"""The bits of zeros, infinities, NaNs and adjacent numbers, as float64 and, in halves, as float32."""


@given(st.lists(st.sampled_from(ODD_BITS) | st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_the_canonical_form_has_one_nan_and_one_zero_and_keeps_other_numbers(bits: list[int]) -> None:
    doubles = np.array(bits, "<u8").view("<f8")
    singles = np.array(bits, "<u8").view("<f4")[: len(bits)]
    sent = report(columns(len(bits), reward=doubles, total_max_d=singles))
    got = wire.columns_of_packed(sent, wire.storable_columns(sent)[0])
    for name, numbers in (("reward", doubles), ("total_max_d", singles)):
        plain = np.where(np.isnan(numbers), np.nan, numbers).astype(numbers.dtype) + numbers.dtype.type(0)
        assert got[name].tobytes() == plain.tobytes()


LABELS = {"argmax_abs_d": np.full(4, -1), "group_id": np.array([-(1 << 63), -1, 1 << 62, 0])}
"""Integer columns that are not counts."""


@pytest.mark.parametrize("name", ["n_tokens", "n_invalid", "total_n_trunc"])
@pytest.mark.parametrize("value", [-1, -(1 << 63), 1 << 40, 1 << 62])
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


def test_labels_of_any_sign_are_stored_as_packed_by_the_sender() -> None:
    sent = packed_report(columns(**LABELS))
    assert wire.storable_columns(sent)[0] is sent.parcel


@pytest.mark.parametrize("n_tokens", [0, 16, (1 << 40) - 1])
def test_the_tokens_of_a_report_are_counted_exactly(n_tokens: int) -> None:
    content = columns(n_tokens=np.full(4, n_tokens))
    assert wire.storable_columns(report(content))[1] == wire.storable_columns(packed_report(content))[1] == 4 * n_tokens


@given(st.lists(st.sampled_from(ODD_BITS) | st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_a_packed_report_is_stored_unchanged_and_equals_one_with_single_columns(bits: list[int]) -> None:
    doubles = np.array(bits, "<u8").view("<f8")
    singles = np.array(bits, "<u8").view("<f4")[: len(bits)]
    content = columns(len(bits), reward=doubles, total_max_d=singles)
    sent = packed_report(content)
    stored, n_tokens = wire.storable_columns(sent)
    assert stored is sent.parcel
    assert n_tokens == 16 * len(bits)
    assert wire.storable_columns(report(content)) == (stored, n_tokens)


def test_packed_columns_survive_a_round_trip() -> None:
    content = columns(5, reward=np.array([1.0, 0.0, math.nan, math.inf, -math.inf]))
    sent = packed_report(content, kl_is="exact", trainer_version=3)
    for got in (wire.unpack_columns(sent), wire.columns_of_packed(sent, wire.storable_columns(sent)[0])):
        assert got.keys() == content.keys()
        assert all(got[name].tobytes() == array.tobytes() for name, array in content.items())
        assert all(got[name].dtype == array.dtype for name, array in content.items())
        assert all(np.array_equal(got.histograms[pair], counts) for pair, counts in content.histograms.items())
        assert (got.kl_is, got.trainer_version) == ("exact", 3)


def test_a_report_without_sequences_can_be_packed() -> None:
    stored, n_tokens = wire.storable_columns(packed_report(columns(0)))
    assert (stored.n_sequences, n_tokens) == (0, 0)
    assert len(wire.columns_of_packed(report(), stored)["n_tokens"]) == 0


def test_packed_columns_in_another_order_are_stored_in_the_canonical_order() -> None:
    canonical = packed_report(columns(3, reward=np.array([0.0, math.nan, 1.0])))
    assert canonical.parcel is not None
    names = {dtype: tuple(reversed(group)) for dtype, group in canonical.parcel.names.items()}
    planes = _planes(canonical.parcel, lambda _, rows: rows[::-1])
    other = msgspec.structs.replace(canonical.parcel, names=names, data=compress(planes))
    assert wire.storable_columns(msgspec.structs.replace(canonical, parcel=other))[0] == canonical.parcel


@pytest.mark.parametrize("odd", [-0.0, np.uint64(0xFFF8000000000001).view(np.float64)])
def test_packed_columns_with_another_nan_or_zero_are_stored_in_canonical_form(odd: float) -> None:
    canonical = packed_report(columns(2, reward=np.array([abs(odd), 1.0])))
    assert canonical.parcel is not None
    row = canonical.parcel.names["f8"].index("reward")

    def changed_rows(dtype: str, rows: Any) -> Any:
        if dtype == "f8":
            rows[row, 0] = odd
        return rows

    other = msgspec.structs.replace(canonical.parcel, data=compress(_planes(canonical.parcel, changed_rows)))
    assert other.data != canonical.parcel.data
    assert wire.storable_columns(msgspec.structs.replace(canonical, parcel=other))[0] == canonical.parcel


def test_unknown_packed_columns_of_a_newer_client_are_dropped() -> None:
    canonical = packed_report()
    assert canonical.parcel is not None
    names = {**canonical.parcel.names, "f8": (*canonical.parcel.names["f8"], "total_wisdom")}
    planes = _planes(canonical.parcel, lambda dtype, rows: np.vstack([rows, np.ones(4)]) if dtype == "f8" else rows)
    newer = msgspec.structs.replace(canonical.parcel, names=names, data=compress(planes))
    with pytest.raises(wire.WireError, match=r"columns.total_wisdom: unknown column"):
        wire.storable_columns(msgspec.structs.replace(canonical, parcel=newer))
    assert (
        wire.storable_columns(msgspec.structs.replace(canonical, parcel=newer, wire=(1, wire.WIRE_MINOR + 1)))[0]
        == canonical.parcel
    )


def _planes(parcel: wire.PackedColumns, changed: Callable[[str, Any], Any]) -> bytes:
    """Return the byte-shuffled data of a parcel with the [columns, B] of each dtype changed."""
    found = open_packed_columns(parcel)
    blocks = [changed(dtype, section.numbers()) for dtype, section in found.columns.items()]
    return b"".join(byte_shuffle(block.tobytes(), block.itemsize) for block in (*blocks, found.histograms.numbers()))


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


@pytest.mark.parametrize(("value", "expected"), [(None, math.nan), ("inf", math.inf), ("-inf", -math.inf), (2, 2.0)])
def test_a_wire_number_decodes_to_a_float(value: wire.JsonNumber, expected: float) -> None:
    assert wire.wire_number(value) == pytest.approx(expected, nan_ok=True)


@given(st.lists(st.booleans(), max_size=70))
def test_bits_survive_a_round_trip(accepted: list[bool]) -> None:
    bits = wire.pack_bits(accepted)
    assert len(bits) == -(-len(accepted) // 8)
    assert wire.unpack_bits(bits, len(accepted)).tolist() == accepted


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


INVALID_MESSAGES: list[tuple[str, bytes, str, str]] = [
    ("an empty body", b"", "body", "truncated"),
    ("half a message", wire.encode(report())[:-20], "body", "truncated"),
    ("a list", msgspec.msgpack.encode([1]), "body", "Expected `object`"),
    ("very deep nesting", b"\x91" * 100_000, "body", "Expected `object`"),
    ("no kind", msgspec.msgpack.encode({"attempt": "a"}), "kind", "is required"),
    ("an unknown kind", msgspec.msgpack.encode(_document(kind="poem")), "kind", "poem"),
    ("no attempt", msgspec.msgpack.encode(_without("attempt")), "attempt", "is required"),
    ("no columns", msgspec.msgpack.encode(_without("columns")), "columns", "is required without a parcel"),
    (
        "columns and a parcel",
        msgspec.msgpack.encode(
            _document(parcel=msgspec.to_builtins(wire.pack_columns(columns()), builtin_types=(bytes,)))
        ),
        "parcel",
        "cannot be combined with columns or histograms",
    ),
    ("a step that is text", msgspec.msgpack.encode(_document(step="one")), "step", "Expected `int`"),
    ("a negative step", msgspec.msgpack.encode(_document(step=-1)), "step", "zero or more"),
    ("a step beyond 62 bits", msgspec.msgpack.encode(_document(step=1 << 62)), "step", "below 2**62"),
    ("a negative update", msgspec.msgpack.encode(_document(update=-1)), "update", "zero or more"),
    ("a negative chunk", msgspec.msgpack.encode(_document(chunk=-1)), "chunk", "zero or more"),
    ("a rank above the world size", msgspec.msgpack.encode(_document(rank=1)), "rank", "below world_size (1)"),
    ("an empty world", msgspec.msgpack.encode(_document(world_size=0)), "world_size", "must be 1 to"),
    (
        "a loss beyond 63 bits",
        msgspec.msgpack.encode(_document(losses={"dropped": {"x": 1 << 63}})),
        "losses",
        "63 bits",
    ),
    ("a future version", msgspec.msgpack.encode(_document(wire=[2, 0])), "wire", "supported: 1.0 to 1.x"),
    ("an attempt without a name", msgspec.msgpack.encode(_document(attempt="")), "attempt", "1 to 128"),
    ("a name of 10,000 characters", msgspec.msgpack.encode(_document(attempt="a" * 10_000)), "attempt", "1 to 128"),
    ("a launch with a NUL in it", msgspec.msgpack.encode(_document(launch="a\0b")), "launch", "printable"),
    ("a policy of 10,000 characters", msgspec.msgpack.encode(_document(policy="a" * 10_000)), "policy", "1 to 128"),
    ("too many scalars", msgspec.msgpack.encode(_document(scalars={str(i): 0 for i in range(257)})), "scalars", "256"),
    ("a scalar that is text", msgspec.msgpack.encode(_document(scalars={"lr": "x"})), "scalars.lr", "Invalid enum"),
    ("negative chunk counts", msgspec.msgpack.encode(_document(finished=[[1, None, -1]])), "finished", "zero or more"),
    (
        "a column without data",
        msgspec.msgpack.encode(_document(columns={"n_tokens": {"dtype": "i8"}})),
        "columns.n_tokens.data",
        "is required",
    ),
    (
        "an unsupported dtype",
        msgspec.msgpack.encode(_document(columns={"n_tokens": {"dtype": "f2", "data": b""}})),
        "columns.n_tokens.dtype",
        "f2",
    ),
    (
        "an invalid column in a truncated body",
        msgspec.msgpack.encode(_document(columns={"n_tokens": 3}, kind="report"))[:-3],
        "body",
        "truncated",
    ),
]


@pytest.mark.parametrize(
    ("body", "field", "text"), [case[1:] for case in INVALID_MESSAGES], ids=[case[0] for case in INVALID_MESSAGES]
)
def test_an_invalid_message_is_rejected_by_field(body: bytes, field: str, text: str) -> None:
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
    "a key that is null": {None: 1},
    "a key that is a list": {(1, 2): 1},
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
    with pytest.raises(wire.WireError) as rejected:
        wire.decode(msgspec.msgpack.encode({**start, field: {"a": value}}))
    assert rejected.value.field == field


INVALID_JSON: list[tuple[str, bytes, str]] = [
    ("not JSON", b"hello", "body"),
    ("not UTF-8", b'{"kind":"report","attempt":"\xff\xfe"}', "body"),
    ("half a surrogate pair", b'{"kind":"heartbeat","attempt":"\\ud800","launch":"l"}', "body"),
    (
        "a scalar too large for a float",
        b'{"kind":"scalars","attempt":"a","launch":"l","sequence":0,"step":0,"values":{"lr":1%b}}' % (b"0" * 400),
        "values.lr",
    ),
    (
        "a configuration that MessagePack cannot encode",
        b'{"kind":"start","attempt":"a","launch":"l","config":{"seed":1%b}}' % (b"0" * 40),
        "config",
    ),
]


@pytest.mark.parametrize(("body", "field"), [case[1:] for case in INVALID_JSON], ids=[case[0] for case in INVALID_JSON])
def test_invalid_json_is_rejected_by_field(body: bytes, field: str) -> None:
    with pytest.raises(wire.WireError) as rejected:
        wire.decode(body, media_type=wire.JSON)
    assert rejected.value.field == field


def _packed(**changed: wire.WireColumn) -> dict[str, wire.WireColumn]:
    return {**report().columns, **changed}


INVALID_COLUMNS: list[tuple[str, dict[str, Any], str, str]] = [
    ("no n_tokens", {"columns": {}}, "columns.n_tokens", "is required"),
    (
        "the wrong dtype",
        {"columns": _packed(total_sum_d=wire.EncodedColumn("f4", bytes(16)))},
        "columns.total_sum_d",
        "dtype must be f8, got f4",
    ),
    (
        "half a number",
        {"columns": _packed(total_sum_d=wire.EncodedColumn("f8", bytes(31)))},
        "columns.total_sum_d",
        "not a whole number",
    ),
    (
        "the wrong length",
        {"columns": _packed(total_sum_d=wire.EncodedColumn("f8", bytes(24)))},
        "columns.total_sum_d",
        "has 3 values where n_tokens has 4",
    ),
    ("a count below zero", {"columns": _packed(n_invalid=[0, 0, -1, 0])}, "columns.n_invalid", "zero or more"),
    ("a fractional count", {"columns": _packed(n_invalid=[0, 0, 0.5, 0])}, "columns.n_invalid", "whole numbers"),
    ("a count beyond 64 bits", {"columns": _packed(n_invalid=[0, 0, 1 << 63, 0])}, "columns.n_invalid", "64 bits"),
    ("a sum beyond float64", {"columns": _packed(total_sum_d=[10**400, 0, 0, 0])}, "columns.total_sum_d", "float64"),
    (
        "an incomplete pair",
        {"columns": {name: packed for name, packed in report().columns.items() if name != "total_max_d"}},
        "columns.total_max_d",
        "is required with total_sum_d",
    ),
    ("a histogram too short", {"histograms": {"total": [1, 2, 3]}}, "histograms.total", "bins"),
    ("bits of another number of sequences", {"accepted": bytes(3)}, "accepted", "4 sequences take 1 bytes"),
]


@pytest.mark.parametrize(
    ("changed", "field", "text"), [case[1:] for case in INVALID_COLUMNS], ids=[case[0] for case in INVALID_COLUMNS]
)
def test_invalid_columns_are_rejected_by_name(changed: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(wire.WireError) as rejected:
        wire.unpack_columns(report(**changed))
    assert rejected.value.field == field
    assert text in str(rejected.value)


def _parcel(**changed: Any) -> wire.PackedColumns:
    return msgspec.structs.replace(wire.pack_columns(columns()), **changed)


def _names(without: str) -> dict[DType, tuple[str, ...]]:
    return {dtype: tuple(name for name in group if name != without) for dtype, group in _parcel().names.items()}


def _twice(name: str) -> wire.PackedColumns:
    names = _parcel().names
    return _parcel(names={**names, "i8": (*names["i8"], name)})


def _below_zero(name: str) -> wire.PackedColumns:
    return wire.pack_columns(columns(**{name: np.array([0, 0, -1, 0])}))


INVALID_PARCELS: list[tuple[str, wire.PackedColumns, str, str]] = [
    ("a negative number of sequences", _parcel(n_sequences=-1), "parcel.n_sequences", "must be 0 to"),
    ("too many sequences", _parcel(n_sequences=1 << 60), "parcel", "send it in chunks"),
    ("more than the maximum size", _parcel(n_sequences=1 << 20), "parcel", "send it in chunks"),
    (
        "another number of sequences",
        _parcel(n_sequences=5),
        "parcel.data",
        "is not one zstd frame of the",
    ),
    ("no frame", _parcel(data=b"columns"), "parcel.data", "is not one zstd frame of the"),
    ("no data", _parcel(data=b""), "parcel.data", "is not one zstd frame of the"),
    ("half a frame", _parcel(data=_parcel().data[:-20]), "parcel.data", "is not one zstd frame of the"),
    ("more than a frame", _parcel(data=_parcel().data + b"x"), "parcel.data", "unused data"),
    ("one name too few", _parcel(names=_names("reward")), "parcel.data", "is not one zstd frame of the"),
    ("a column twice", _twice("n_tokens"), "parcel.names", "n_tokens is duplicated"),
    ("a column of two dtypes", _twice("total_sum_d"), "parcel.names", "total_sum_d is duplicated"),
    ("a histogram twice", _parcel(pairs=("total", "mismatch", "total")), "parcel.pairs", "total is duplicated"),
    ("sequences of 4,300 digits", _parcel(n_sequences=10**4299), "parcel", "send it in chunks"),
    ("a negative number of 4,299 digits", _parcel(n_sequences=-(10**4298)), "parcel.n_sequences", "must be 0 to"),
    ("no dtypes", _parcel(names={}), "parcel.data", "is not one zstd frame of the"),
    ("a count below zero", _below_zero("n_invalid"), "columns.n_invalid", "zero or more"),
]


@pytest.mark.parametrize(
    ("parcel", "field", "text"), [case[1:] for case in INVALID_PARCELS], ids=[case[0] for case in INVALID_PARCELS]
)
def test_an_invalid_parcel_is_rejected_by_field(parcel: wire.PackedColumns, field: str, text: str) -> None:
    with pytest.raises(wire.WireError) as rejected:
        wire.storable_columns(packed_report(parcel=parcel))
    assert rejected.value.field == field
    assert text in str(rejected.value)
    assert len(str(rejected.value)) < 300


@pytest.mark.parametrize("missing", ["n_tokens", "total_max_d"])
def test_a_parcel_without_a_required_column_is_rejected(missing: str) -> None:
    content = columns()
    kept = {
        dtype: tuple(name for name in group if name != missing)
        for dtype, group in wire.pack_columns(content).names.items()
    }
    blocks = {dtype: b"".join(content[name].tobytes() for name in group) for dtype, group in kept.items()}
    planes = b"".join(byte_shuffle(rows, int(dtype[1])) for dtype, rows in blocks.items())
    with pytest.raises(wire.WireError, match=f"columns.{missing}: is required"):
        wire.storable_columns(packed_report(parcel=wire.PackedColumns(4, kept, (), compress(planes))))


def test_a_frame_of_another_size_is_not_decompressed() -> None:
    bomb = _parcel(data=compress(bytes(32 << 20)))
    with pytest.raises(wire.WireError, match=r"parcel.data: is not one zstd frame"):
        wire.storable_columns(packed_report(parcel=bomb))


def test_bits_of_another_number_of_sequences_are_rejected() -> None:
    with pytest.raises(wire.WireError, match="accepted: 4 sequences take 1 bytes"):
        wire.storable_columns(packed_report(accepted=bytes(3)))


@given(st.binary(max_size=200))
def test_any_bytes_raise_only_a_wire_error(body: bytes) -> None:
    for media_type in (wire.MSGPACK, wire.JSON):
        with pytest.raises(wire.WireError):
            wire.decode(body, media_type=media_type)
        with pytest.raises(wire.WireError):
            wire.decode_bundle(body, media_type=media_type)


FILES = [path for package in (trmon, trmon_client) for path in Path(package.__path__[0]).rglob("*.py")]
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


def _types_named_at_run_time(sources: dict[Path, ast.Module]) -> Iterator[tuple[Path, str]]:
    """Yield the file and the name of each class that a call of `convert` or `decode` names."""
    for path, tree in sources.items():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                given = [word.value for word in call.keywords if word.arg == "type"]
                given += call.args[1:2] if call.func.attr == "convert" else []
                if call.func.attr in ("convert", "decode"):
                    yield from (
                        (path, name.id) for one in given for name in ast.walk(one) if isinstance(name, ast.Name)
                    )


def _decodable(sources: dict[Path, ast.Module]) -> set[str]:
    """Return the names of the classes decorated with `decodable`."""
    classes = (node for tree in sources.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {
        one.name for one in classes if any(isinstance(d, ast.Name) and d.id == "decodable" for d in one.decorator_list)
    }


def test_every_type_named_at_run_time_is_prepared_at_import() -> None:
    built_in = {"dict", "list", "tuple", "str", "int", "object", "Any", "Names", "_VALUE_TYPES", "mapping"}
    built_in.add("kind")  # of trmon_client.api, which decodes one answer at a time
    sources = {
        path: ast.parse(text) for path in FILES if "msgspec" in (text := path.read_text()) or "decodable" in text
    }
    named, known = list(_types_named_at_run_time(sources)), built_in | _decodable(sources)
    assert {name for _, name in named} >= {"Advice", "Matcher", "Manifest", "Quarantined", "_Mappings"}
    assert [(path.name, name) for path, name in named if name not in known] == []


def test_threads_can_decode_a_type_for_the_first_time_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
