"""Segments: encoded messages one after the other with a length and a checksum each, as the client spools them.

A segment is HEADER, then records: length and CRC32 of the message (little-endian, 32 bits each), the message.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

SUFFIX = ".seg"
"""What the name of a segment's file ends with."""
HEADER = b"trmonsg\x01"
"""What a segment starts with; the last byte is the version of the format."""
MAX_MESSAGE_BYTES = 1 << 30

_FRAME = struct.Struct("<II")


class SegmentError(ValueError):
    """The bytes are no segment that this version can read."""


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """What a segment held: its messages in order, records that failed their checksum, and bytes of a torn tail."""

    messages: list[bytes]
    n_damaged: int = 0
    torn_bytes: int = 0


def encode_record(message: bytes) -> bytes:
    """Return a message as a record.

    Errors: SegmentError if it is empty or longer than MAX_MESSAGE_BYTES.
    """
    if not 0 < len(message) <= MAX_MESSAGE_BYTES:
        raise SegmentError(f"a message has 1 to {MAX_MESSAGE_BYTES} bytes, and this one has {len(message)}")
    return _FRAME.pack(len(message), zlib.crc32(message)) + message


def scan_segment(data: bytes) -> SegmentScan:
    """Return what a segment holds; a torn tail, as a crash leaves it, ends it and is no error.

    Errors: SegmentError if it is not a segment, or one of another version.
    """
    if not data.startswith(HEADER):
        if HEADER.startswith(data):
            return SegmentScan([], torn_bytes=len(data))
        raise SegmentError(f"a segment starts with {HEADER!r}, and this one with {data[: len(HEADER)]!r}")
    messages: list[bytes] = []
    n_damaged = 0
    at = len(HEADER)
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + length
        # A length of zero is a tail of zeros, as some file systems leave after a power cut.
        if length == 0 or end > len(data):
            break
        message = data[at + _FRAME.size : end]
        if zlib.crc32(message) == checksum:
            messages.append(message)
        else:
            n_damaged += 1
        at = end
    return SegmentScan(messages, n_damaged, len(data) - at)
