"""The records of a TFRecord file: each has its length and its bytes, both with a masked CRC32C."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from itertools import count
from typing import BinaryIO

import google_crc32c

from trmon.domain.analysis.logged_steps import LogDefect

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def read_records(file: BinaryIO) -> Iterator[bytes | LogDefect]:
    """Yield the bytes of each record, and a defect for what is damaged or cut off.

    Source: tensorflow/core/lib/io/record_writer.h.
    """
    size = os.fstat(file.fileno()).st_size
    for number in count(1):
        begin = file.tell()
        header = file.read(_HEADER.size)
        if not header:
            return
        if len(header) < _HEADER.size:
            yield _cut_off(number, begin)
            return
        length, checksum = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != checksum:
            yield LogDefect(
                0, f"record {number} at byte {begin} has a damaged length; {size - begin} bytes are left out"
            )
            return
        if file.tell() + length + _FOOTER.size > size:
            yield _cut_off(number, begin)
            return
        data = file.read(length)
        if masked_crc32c(data) != _FOOTER.unpack(file.read(_FOOTER.size))[0]:
            yield LogDefect(0, f"record {number} at byte {begin} has a wrong checksum; left out")
        else:
            yield data


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of a record, rotated and shifted as TFRecord stores it."""
    checksum: int = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _cut_off(number: int, begin: int) -> LogDefect:
    return LogDefect(0, f"is cut off within record {number} at byte {begin}", is_end=True)
