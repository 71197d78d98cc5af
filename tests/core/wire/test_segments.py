"""Segments: exactly the undamaged records are read, whatever a crash or a disk did to the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmon_client.core.wire.segments import HEADER, SegmentError, SegmentScan, encode_record, scan_segment

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
