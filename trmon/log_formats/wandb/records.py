"""The records of a .wandb file: LevelDB's log format, with CRC-32 and a header of wandb's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import BinaryIO

from trmon.domain.analysis.logged_steps import LogDefect

MAGIC = b":W&B"
VERSION = 0
BLOCK_BYTES = 1 << 15
_FILE_HEADER = struct.Struct("<4sHB")
_CHUNK_HEADER = struct.Struct("<IHB")


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
