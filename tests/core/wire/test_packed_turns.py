"""Turns on the wire, the same bits after it, and segments, of which exactly the undamaged records are read."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.examples import batch
from tests.fixtures.messages import ORIGIN
from trmon_client.core import statistics, wire
from trmon_client.core.acceptance import Policy, decide
from trmon_client.core.columns import Columns
from trmon_client.core.wire.segments import HEADER, SegmentError, SegmentScan, encode_record, scan_segment

POLICY = Policy.parse({"name": "turns", "criteria": [], "turns": [{"statistic": "turn_mean_k3", "upper": 0.01}]})


def some(**changed: Any) -> Columns:
    given = batch(seed=1, noise=0.3, odd=0.1) | {"turn_offsets": [[0, 4], [], [2, 2, 99], [0], [1, 5, 7], []]} | changed
    return statistics.columns(**given)


def report(columns: Columns, **changed: Any) -> wire.Report:
    turns: Any = msgspec.UNSET
    if columns.turns is not None:
        turns = wire.pack_turns(columns.turns, accepted=decide(columns, POLICY).turns.accepted)
    fields: dict[str, Any] = {**ORIGIN, "step": 1, "parcel": wire.pack_columns(columns), "turns": turns}
    return wire.Report(**fields | changed)


def sent(message: wire.Report, media_type: str = wire.MSGPACK) -> Any:
    return wire.decode(wire.encode(message, media_type=media_type), media_type=media_type)


@pytest.mark.parametrize("media_type", [wire.MSGPACK, wire.JSON])
def test_turns_and_the_decision_on_them_are_the_same_after_the_wire(media_type: str) -> None:
    columns = some()
    arrived = sent(report(columns), media_type)
    found = wire.unpack_columns(arrived)
    assert found.turns.n_turns.tolist() == columns.turns.n_turns.tolist()
    for name, array in columns.turns.by_name.items():
        assert found.turns.by_name[name].tobytes() == array.tobytes(), name
    before, after = decide(columns, POLICY).turns, decide(found, POLICY).turns
    assert (before.codes == after.codes).all()
    assert (wire.unpack_bits(arrived.turns.accepted, len(after.accepted)) == after.accepted).all()


def test_the_stored_form_has_the_turns_too() -> None:
    arrived = sent(report(some()))
    parcel, _ = wire.storable_columns(arrived)
    stored = wire.columns_of_packed(msgspec.structs.replace(arrived, parcel=None), parcel)
    assert stored.turns.n_turns.tolist() == [2, 0, 3, 1, 3, 0]


def test_a_report_without_turns_has_no_byte_of_them() -> None:
    message = report(some(turn_offsets=None))
    assert b"turns" not in wire.encode(message)
    assert b"turns" not in wire.encode(message, media_type=wire.JSON)
    assert wire.unpack_columns(sent(message)).turns is None


@pytest.mark.parametrize(
    ("columns", "n_tokens"),
    [
        (some(turn_offsets=[[]] * 6), []),
        (statistics.columns(mask=np.ones((2, 4), bool), turn_offsets=[[0, 1], [2]]), [1, 3, 2]),
    ],
    ids=["without a turn", "without a pair"],
)
def test_batches_without_turns_or_pairs_are_legal(columns: Columns, n_tokens: list[int]) -> None:
    found = wire.unpack_columns(sent(report(columns))).turns
    assert found.n_tokens.tolist() == n_tokens


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda packed: _replaced(packed, names={"i8": ("n_tokens", "sequence")}), "turns.table.names"),
        (lambda packed: _replaced(packed, n_sequences=8), "parcel.data"),
        (lambda packed: _replaced(packed, n_sequences=1 << 20), "turns.table.n_sequences"),
        (lambda packed: _replaced(packed, pairs=("total",)), "turns.table.names"),
        (lambda packed: msgspec.structs.replace(packed, accepted=b""), "turns.accepted"),
    ],
)
def test_an_invalid_table_is_refused_by_the_name_of_its_field(change: Any, message: str) -> None:
    columns = some()
    arrived = sent(report(columns, turns=change(wire.pack_turns(columns.turns))))
    for unpack in (wire.unpack_columns, wire.storable_columns):
        with pytest.raises(wire.WireError, match=message):
            unpack(arrived)


@pytest.mark.parametrize("sequences", [[0, 1, 0], [-1, 0, 1], [0, 1, 6], [0, 1, 1 << 62]])
def test_the_sequences_of_turns_ascend_and_exist(sequences: list[int]) -> None:
    columns = some(turn_offsets=[[0], [0], [0], [], [], []])
    vars(columns.turns)["sequences"] = np.array(sequences)
    with pytest.raises(wire.WireError, match="sequence: must ascend from 0 and be below 6"):
        wire.unpack_columns(report(columns, turns=wire.pack_turns(columns.turns)))
    columns.turns.n_tokens[0] = -1
    with pytest.raises(wire.WireError, match="n_tokens: counts must be zero or more"):
        wire.unpack_columns(report(columns, turns=wire.pack_turns(columns.turns)))


def _replaced(packed: wire.PackedTurns, **changed: Any) -> wire.PackedTurns:
    return msgspec.structs.replace(packed, table=msgspec.structs.replace(packed.table, **changed))


MESSAGES = [b"a", b"\x00" * 300, b"third"]


def segment(messages: list[bytes]) -> bytes:
    return HEADER + b"".join(map(encode_record, messages))


@given(st.lists(st.binary(min_size=1)))
def test_encoded_records_are_scanned(messages: list[bytes]) -> None:
    assert scan_segment(segment(messages)) == SegmentScan(messages)


def test_an_empty_segment_counts_as_damaged() -> None:
    assert scan_segment(b"") == SegmentScan([], n_damaged=1)


@given(st.integers(min_value=1, max_value=len(segment(MESSAGES))))
def test_a_truncated_segment_keeps_its_complete_records(length: int) -> None:
    found = scan_segment(segment(MESSAGES)[:length])
    ends = [len(segment(MESSAGES[:n])) for n in range(len(MESSAGES) + 1)]
    n_complete = max((n for n, end in enumerate(ends) if end <= length), default=0)
    assert found.messages == MESSAGES[:n_complete]
    assert found.n_damaged == 0
    assert found.torn_bytes == (length - ends[n_complete] if length >= len(HEADER) else length)


@given(st.integers(min_value=len(HEADER), max_value=len(segment(MESSAGES)) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_adds_a_message(position: int, flip: int) -> None:
    data = bytearray(segment(MESSAGES))
    data[position] ^= flip
    found = scan_segment(bytes(data))
    assert len(found.messages) < len(MESSAGES)
    assert set(found.messages) < set(MESSAGES)
    assert found.n_damaged + found.torn_bytes > 0


def test_a_tail_of_zeros_counts_as_torn() -> None:
    assert scan_segment(segment(MESSAGES) + bytes(4096)) == SegmentScan(MESSAGES, torn_bytes=4096)


@pytest.mark.parametrize("data", [b"PK\x03\x04 something else", HEADER[:-1] + b"\x02"])
def test_data_that_is_not_a_segment_of_this_version_is_rejected(data: bytes) -> None:
    with pytest.raises(SegmentError, match="a segment starts with"):
        scan_segment(data)


def test_an_empty_message_cannot_be_encoded() -> None:
    with pytest.raises(SegmentError, match="1 to"):
        encode_record(b"")
