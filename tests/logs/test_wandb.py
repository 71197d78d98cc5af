"""Files of wandb, which its own client wrote, whole and damaged."""

from __future__ import annotations

import math
import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import pytest

from tests.fixtures.tracker_logs import TRACKER_LOGS
from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs import LogSource, format_of
from trmon.logs.wandb import BLOCK_BYTES, ChunkKind, read_chunked_records

RECORDINGS = TRACKER_LOGS / "wandb"
OFFLINE_RUN = RECORDINGS / "offline-run-20231114_221320-trmon01"


def read(path: Path) -> tuple[list[LogRow], list[LogDefect]]:
    found = format_of(path)
    assert found.name == "wandb"
    items = list(found.read(path))
    rows = [item for item in items if isinstance(item, LogRow)]
    return rows, [item for item in items if isinstance(item, LogDefect)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A copy of the file of a run of six steps."""
    return Path(shutil.copy(next(OFFLINE_RUN.iterdir()), tmp_path))


def chunked(records: Iterable[bytes]) -> bytes:
    """Return the file of records; those that do not fit into the rest of a block are split."""
    data = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    for record in records:
        kinds = (ChunkKind.FULL, ChunkKind.FIRST)
        while True:
            left = BLOCK_BYTES - len(data) % BLOCK_BYTES
            if left < 7:
                data += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = kinds[bool(record)]
            data += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            kinds = (ChunkKind.LAST, ChunkKind.MIDDLE)
            if not record:
                break
    return data


def records_in(data: bytes) -> list[bytes | LogDefect]:
    return list(read_chunked_records(BytesIO(data)))


def payloads_in(data: bytes) -> list[bytes]:
    """Return the bytes of each record of a file that is not damaged."""
    return [record for record in records_in(data) if isinstance(record, bytes)]


def test_the_steps_of_a_history_are_rows_and_a_histogram_is_left_out() -> None:
    rows, defects = read(OFFLINE_RUN)
    assert defects == []
    assert [row.values["_step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row.values["_timestamp"] for row in rows] == [1_700_000_000.0 + 60.0 * step for step in range(1, 7)]
    assert {name for row in rows for name in row.values} == {
        *("_step", "_timestamp", "_runtime", "actor/grad_norm", "actor/pg_loss", "critic/score/mean"),
        *("rollout_corr/k3_kl", "mine/seen", "mine/nested/depth"),
    }
    assert rows[3].values["actor/grad_norm"] == math.inf
    assert math.isnan(rows[4].values["actor/pg_loss"])
    assert LogSource.of(OFFLINE_RUN).survey.framework == "verl"


def test_a_run_is_found_in_the_folders_around_it_and_several_are_refused(tmp_path: Path) -> None:
    shutil.copytree(OFFLINE_RUN, tmp_path / "wandb" / OFFLINE_RUN.name)
    (tmp_path / "wandb" / "latest-run").symlink_to(OFFLINE_RUN.name)
    for folder in (tmp_path, tmp_path / "wandb", tmp_path / "wandb" / "latest-run"):
        assert len(read(folder)[0]) == 6
    other = tmp_path / "wandb" / "run-20231115_080000-other"
    other.mkdir()
    shutil.copy(next(OFFLINE_RUN.iterdir()), other / "run-other.wandb")
    with pytest.raises(InvalidInput, match=r"has 2 runs of wandb; name one: .*-trmon01, .*-other"):
        read(tmp_path)


def test_a_run_that_was_resumed_is_read_in_the_order_of_its_starts(tmp_path: Path) -> None:
    for name in ("run-20231115_080000-trmon01", "offline-run-20231114_221320-trmon01"):
        (tmp_path / name).mkdir()
        shutil.copy(next(OFFLINE_RUN.iterdir()), tmp_path / name)
    os.truncate(tmp_path / "run-20231115_080000-trmon01" / "run-trmon01.wandb", 1000)
    rows, defects = read(tmp_path)
    assert [row.values["_step"] for row in rows] == [1, 2, 3, 4, 5, 6, 1]
    assert [str(defect) for defect in defects] == ["run-trmon01.wandb is cut off within a record at byte 933"]


def test_records_that_span_blocks_are_joined(file: Path) -> None:
    data = file.read_bytes()
    assert chunked(payloads_in(data)) == data
    long = [bytes([n]) * n_bytes for n, n_bytes in enumerate((BLOCK_BYTES - 20, 3, 2, 3 * BLOCK_BYTES, 0, 10))]
    assert records_in(chunked(long)) == long


@pytest.mark.parametrize("kept", [3, 644 + 3, 644 + 30])
def test_a_file_that_is_cut_off_is_read_up_to_there(file: Path, kept: int) -> None:
    *before, defect = records_in(file.read_bytes()[:kept])
    assert len(before) == (6 if kept > 644 else 0)
    assert isinstance(defect, LogDefect)
    assert defect.is_end
    assert defect.reason == f"is cut off within {'a record at byte 644' if kept > 644 else 'its header'}"


def test_a_record_whose_other_blocks_are_not_written_yet_is_cut_off() -> None:
    data = chunked([b"a", b"b" * BLOCK_BYTES])[:BLOCK_BYTES]
    assert records_in(data) == [b"a", LogDefect(0, f"is cut off within a record at byte {BLOCK_BYTES}", is_end=True)]


def test_a_damaged_chunk_costs_the_rest_of_its_block() -> None:
    records = [bytes([n]) * 1000 for n in range(100)]
    data = bytearray(chunked(records))
    data[BLOCK_BYTES + 10] ^= 1
    items = records_in(bytes(data))
    at = next(i for i, item in enumerate(items) if isinstance(item, LogDefect))
    reason = f"is damaged at byte {BLOCK_BYTES}; the {BLOCK_BYTES} bytes up to the next block are left out"
    assert items[at] == LogDefect(0, reason)
    before, after = items[:at], items[at + 1 :]
    assert (before, after) == (records[: len(before)], records[-len(after) :])
    assert (len(before), len(after)) == (32, 34)


def test_what_is_not_of_wandb_is_reported(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(chunked([b"\xff\xff", *payloads_in(whole)]))
    rows, defects = read(file)
    assert (len(rows), [str(defect) for defect in defects]) == (
        6,
        ["has a record, number 1, that is not of wandb; left out"],
    )
    file.write_bytes(whole[:6] + b"\x07" + whole[7:])
    assert [str(defect) for defect in read(file)[1]] == ["has version 7 of the format; 0 is read"]


def full_block(kind: ChunkKind) -> bytes:
    """Return a block that one chunk fills."""
    part = bytes(BLOCK_BYTES - 7)
    return struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part


def test_a_record_of_many_chunks_takes_no_longer_than_as_many_records() -> None:
    def seconds_to_read(kinds: list[ChunkKind]) -> float:
        header = struct.pack("<4sHB", b":W&B", 0xBEE1, 0).ljust(BLOCK_BYTES, b"\0")
        file = BytesIO(header + b"".join(map(full_block, kinds)))
        began_at = time.process_time()
        assert b"".join(record for record in read_chunked_records(file) if isinstance(record, bytes))
        return time.process_time() - began_at

    n = 600
    one = [ChunkKind.FIRST, *[ChunkKind.MIDDLE] * (n - 2), ChunkKind.LAST]
    assert seconds_to_read(one) < 20 * seconds_to_read([ChunkKind.FULL] * n)
