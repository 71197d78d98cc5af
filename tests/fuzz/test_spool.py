"""No file of a dead process breaks the spool: what is damaged is counted, the rest is read, and the folder is freed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.sending.test_spool import drained
from tests.fixtures.fuzzing import edited
from trmon_client.config.settings import Limits
from trmon_client.core.wire.segments import HEADER, SegmentError, SegmentScan, encode_record, scan_segment
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
        found = drained(spool, n_messages=3)
        assert found[-1] == b"own"
        segments = [scanned(data) for name, data in sorted(files.items()) if name.endswith(".seg")]
        assert found[:-1] == [message for segment in segments for message in segment.messages]
        assert sum(losses.snapshot().values()) >= sum(bool(one.n_damaged or one.torn_bytes) for one in segments)
        assert spool.is_empty
        spool.close()


def scanned(data: bytes) -> SegmentScan:
    """Return what a segment holds; bytes that are none are damaged."""
    try:
        return scan_segment(data)
    except SegmentError:
        return SegmentScan([], n_damaged=1)


@settings(max_examples=300)
@given(edited(st.just(SEGMENT)))
def test_damage_never_makes_a_message(data: bytes) -> None:
    assert set(scanned(data).messages) <= set(MESSAGES)
