"""A run of wandb on disk: its .wandb file, or a folder with one or, after a restart, with several of the run.

A file has records in chunks with checksums; some are steps of the run's history.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput, needs_package
from trmon.logs.json_logs import flat_row, parse_json
from trmon.logs.log_format import Fields, LogFormat, LogItem, LogSample, in_file, message_reader

FILE_START = b":W&B"
PATTERNS = ("run-*.wandb", "*run-*/run-*.wandb", "wandb/*run-*/run-*.wandb")
"""Of the files in the folder of a run, in the folder `wandb`, and in the folder that it is in."""
SHOWN_RUNS = 5
STEP = "_step"
MEDIA_KEY = "_type"
"""Among the keys of a histogram, an image or a table."""
_MESSAGES: Mapping[str, Fields] = {
    "Record": {"history": (2, "History")},
    "History": {"item": (1, "repeated Item"), "step": (2, "Step")},
    "Item": {"key": (1, "bytes"), "nested_key": (2, "repeated bytes"), "value_json": (16, "bytes")},
    "Step": {"num": (1, "int64")},
}
"""Source: wandb/proto/wandb_internal.proto."""
VERSION = 0
BLOCK_BYTES = 1 << 15
_FILE_HEADER = struct.Struct("<4sHB")
_CHUNK_HEADER = struct.Struct("<IHB")


def _matches(sample: LogSample) -> bool:
    return sample.data.startswith(FILE_START) or (sample.path.is_dir() and bool(_wandb_files(sample.path)))


def _wandb_files(folder: Path) -> list[Path]:
    return next((files for pattern in PATTERNS if (files := list(folder.glob(pattern)))), [])


def _files_of_run(path: Path) -> list[Path]:
    """Return the files of a run, oldest first. Errors: InvalidInput for a folder with several runs."""
    if not path.is_dir():
        return [path]
    files = sorted(_wandb_files(path), key=lambda file: file.parent.name.removeprefix("offline-"))
    if len({file.name for file in files}) > 1:
        shown = ", ".join(str(file.parent) for file in files[:SHOWN_RUNS])
        raise InvalidInput(str(path), f"has {len(files)} runs of wandb; name one: {shown}")
    return files


def _read(path: Path) -> Iterator[LogItem]:
    with needs_package("logs", said="files of wandb need"):
        import google.protobuf  # noqa: F401
    for name in _files_of_run(path):
        with name.open("rb") as file:
            yield from in_file(name, history_rows(read_chunked_records(file), writer=name.stem), log=path)


def history_rows(records: Iterable[bytes | LogDefect], *, writer: str) -> Iterator[LogItem]:
    """Yield a row for each step of a run's history; histograms, images and tables are left out."""
    read_record = message_reader(_MESSAGES, "Record")
    for number, record in enumerate(records, start=1):
        if isinstance(record, LogDefect):
            yield record
            continue
        found = read_record(record)
        if found is None:
            yield LogDefect(0, f"has a record, number {number}, that is not of wandb; left out")
            continue
        if found.HasField("history"):
            row: dict[str, Any] = {STEP: found.history.step.num} if found.history.HasField("step") else {}
            for item in found.history.item:
                keys = item.nested_key or [item.key]
                row |= flat_row({"/".join(key.decode(errors="replace") for key in keys): _value(item.value_json)})
            media = tuple(name.removesuffix(MEDIA_KEY) for name in row if name.endswith(f"/{MEDIA_KEY}"))
            yield LogRow({name: value for name, value in row.items() if not name.startswith(media)}, writer=writer)


def _value(text: bytes) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text.decode(errors="replace")


class ChunkKind(IntEnum):
    """Which part of a record a chunk has."""

    FULL = 1
    FIRST = 2
    MIDDLE = 3
    LAST = 4


def read_chunked_records(file: BinaryIO) -> Iterator[bytes | LogDefect]:
    """Yield the bytes of each record, and a defect for what is damaged or cut off.

    The chunks after a damaged one are read from the next block on, where a chunk begins.
    Source: leveldb/doc/log_format.md, wandb/core/pkg/leveldb/record.go.
    """
    header = file.read(_FILE_HEADER.size)
    if len(header) < _FILE_HEADER.size:
        yield LogDefect(0, "is cut off within its header", is_end=True)
        return
    version = _FILE_HEADER.unpack(header)[2]
    if version != VERSION:
        yield LogDefect(0, f"has version {version} of the format; {VERSION} is read")
        return
    record: bytearray | None = None
    while (chunk := _read_chunk(file)) is not None:
        if isinstance(chunk, LogDefect):
            record = None
            yield chunk
            continue
        kind, data = chunk
        if kind in (ChunkKind.FULL, ChunkKind.FIRST):
            record = bytearray()
        if record is None:
            continue
        record += data
        if kind in (ChunkKind.FULL, ChunkKind.LAST):
            yield bytes(record)
            record = None
    if record is not None:
        yield _cut_off(file, file.tell())


def _read_chunk(file: BinaryIO) -> tuple[int, bytes] | LogDefect | None:
    """Return the kind and the bytes of the next chunk, None at the end; after a damaged one, go to the next block."""
    begin = file.tell()
    left = BLOCK_BYTES - begin % BLOCK_BYTES
    if left < _CHUNK_HEADER.size:
        file.seek(left, 1)
        return _read_chunk(file)
    header = file.read(_CHUNK_HEADER.size)
    if not header:
        return None
    if len(header) < _CHUNK_HEADER.size:
        return _cut_off(file, begin)
    checksum, length, kind = _CHUNK_HEADER.unpack(header)
    data = file.read(min(length, left - _CHUNK_HEADER.size))
    if zlib.crc32(data, zlib.crc32(bytes([kind]))) == checksum and len(data) == length:
        return kind, data
    if length <= left - _CHUNK_HEADER.size and len(data) < length:
        return _cut_off(file, begin)
    file.seek(begin + left)
    return LogDefect(0, f"is damaged at byte {begin}; the {left} bytes up to the next block are left out")


def _cut_off(file: BinaryIO, begin: int) -> LogDefect:
    file.seek(0, 2)
    return LogDefect(0, f"is cut off within a record at byte {begin}", is_end=True)


WANDB = LogFormat(
    name="wandb",
    description="a .wandb file, or a folder with that of a run (wandb/offline-run-*)",
    matches=_matches,
    read=_read,
    files=_files_of_run,
    has_lines=False,
)
