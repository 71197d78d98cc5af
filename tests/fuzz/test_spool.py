"""No file of a dead process breaks the spool: what is damaged is counted, the rest is read, and the folder is freed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.fuzzing import edited
from trmon_client.config.settings import Limits
from trmon_client.core.wire.segments import HEADER, SegmentError, encode_record, scan_segment
from trmon_client.error_guard import LossCounter
from trmon_client.sending.spool import Spool

pytestmark = pytest.mark.fuzz

MESSAGES = [b"a", b"\x00" * 300, b"third", bytes(range(256)) * 8]
SEGMENT = HEADER + b"".join(map(encode_record, MESSAGES))
SEGMENTS = st.binary(max_size=64) | st.binary(max_size=64).map(lambda tail: HEADER + tail) | edited(st.just(SEGMENT))


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["00000000.seg", "00000001.seg", "7.seg", "x.seg", "lock"]), SEGMENTS))
def test_a_dead_processs_files_are_read_or_counted(files: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        orphan = Path(folder) / "dead"
        orphan.mkdir()
        for name, data in files.items():
            (orphan / name).write_bytes(data)
        losses = LossCounter()
        spool = Spool(Path(folder) / "live", limits=Limits(), losses=losses)
        spool.adopt()
        spool.append(b"own")
        found = drained(spool)
        assert found[-1] == b"own"
        segments = [data for name, data in sorted(files.items()) if name.endswith(".seg")]
        assert found[:-1] == [message for data in segments for message in intact(data)]
        assert sum(losses.snapshot().values()) >= sum(map(is_damaged, segments))
        assert spool.is_empty
        spool.close()


def drained(spool: Spool) -> list[bytes]:
    found: list[bytes] = []
    while bundle := spool.peek(n_messages=3, size_bytes=1 << 20):
        found += bundle
        spool.advance(len(bundle))
    return found


def intact(data: bytes) -> list[bytes]:
    """Return the undamaged messages of a segment."""
    try:
        return scan_segment(data).messages
    except SegmentError:
        return []


def is_damaged(data: bytes) -> bool:
    try:
        found = scan_segment(data)
    except SegmentError:
        return True
    return bool(found.n_damaged or found.torn_bytes)


@settings(max_examples=300)
@given(edited(st.just(SEGMENT)))
def test_damage_never_makes_a_message(data: bytes) -> None:
    assert set(intact(data)) <= set(MESSAGES)
