"""Segments: the file format of the client's spool.

A segment is HEADER followed by records: length and CRC32 of a message (little-endian, 32 bits each), then the message.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

SUFFIX = ".seg"
"""The suffix of segment files."""
HEADER = b"trmonsg\x01"
"""The first bytes of a segment; the last byte is the format version."""
MAX_MESSAGE_BYTES = 1 << 30

_FRAME = struct.Struct("<II")


class SegmentError(ValueError):
    """The bytes are not a segment of a supported version."""


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """The contents of a segment: its messages in order, the number of damaged records, and the bytes of a torn tail."""

    messages: list[bytes]
    n_damaged: int = 0
    torn_bytes: int = 0


def encode_record(message: bytes) -> bytes:
    """Return a message as a record. Errors: SegmentError if it is empty or longer than MAX_MESSAGE_BYTES."""
    if not 0 < len(message) <= MAX_MESSAGE_BYTES:
        raise SegmentError(f"a message has 1 to {MAX_MESSAGE_BYTES} bytes, got {len(message)}")
    return _FRAME.pack(len(message), zlib.crc32(message)) + message


def scan_segment(data: bytes) -> SegmentScan:
    """Return the contents of a segment; a torn tail, which a crash leaves, is not an error.

    Errors: SegmentError if the data is not a segment or has another version.
    """
    if not data:  # what it had did not reach the disk before a power failure
        return SegmentScan([], n_damaged=1)
    if not data.startswith(HEADER):
        if HEADER.startswith(data):
            return SegmentScan([], torn_bytes=len(data))
        raise SegmentError(f"a segment starts with {HEADER!r}, got {data[: len(HEADER)]!r}")
    messages: list[bytes] = []
    n_damaged = 0
    offset = len(HEADER)
    while offset + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, offset)
        end = offset + _FRAME.size + length
        # A length of zero marks a tail of zeros, which some file systems leave after a power failure.
        if length == 0 or end > len(data):
            break
        message = data[offset + _FRAME.size : end]
        if zlib.crc32(message) == checksum:
            messages.append(message)
        else:
            n_damaged += 1
        offset = end
    return SegmentScan(messages, n_damaged, len(data) - offset)
