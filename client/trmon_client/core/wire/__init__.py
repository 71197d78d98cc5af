"""The wire format: the messages that a trainer sends and the answers that it receives.

In MessagePack, columns are little-endian bytes with a dtype each or, as trmon's own client sends them, one compressed
parcel. In JSON they are arrays, with null for NaN and "inf" and "-inf" for infinities. Unknown fields are ignored;
unknown columns are rejected unless the sender has a newer minor version.
"""

from __future__ import annotations

from trmon_client.core.policies.decision import SEMANTICS_VERSION
from trmon_client.core.wire.codec import (
    JSON,
    MAX_BUNDLE_MESSAGES,
    MAX_NAME_LENGTH,
    MAX_SCALARS,
    MSGPACK,
    decode,
    decode_ack,
    decode_acks,
    decode_bundle,
    encode,
    encode_bundle,
    without_secrets,
)
from trmon_client.core.wire.messages import (
    WIRE_MAJOR,
    WIRE_MINOR,
    Ack,
    Acks,
    Bundle,
    ChunkCount,
    EncodedColumn,
    EndReason,
    Finish,
    Heartbeat,
    JsonNumber,
    Losses,
    Message,
    Origin,
    PackedColumns,
    PackedTurns,
    Pause,
    PolicyUpdate,
    Report,
    Scalars,
    Start,
    WireColumn,
    WireError,
)
from trmon_client.core.wire.packed_columns import pack_bits, pack_columns, unpack_bits
from trmon_client.core.wire.unpacking import (
    columns_of_packed,
    pack_turns,
    storable_columns,
    unpack_columns,
    wire_number,
)

__all__ = [
    "JSON",
    "MAX_BUNDLE_MESSAGES",
    "MAX_NAME_LENGTH",
    "MAX_SCALARS",
    "MSGPACK",
    "SEMANTICS_VERSION",
    "WIRE_MAJOR",
    "WIRE_MINOR",
    "Ack",
    "Acks",
    "Bundle",
    "ChunkCount",
    "EndReason",
    "Finish",
    "Heartbeat",
    "JsonNumber",
    "Losses",
    "Message",
    "Origin",
    "EncodedColumn",
    "PackedColumns",
    "PackedTurns",
    "Pause",
    "PolicyUpdate",
    "Report",
    "Scalars",
    "Start",
    "WireColumn",
    "WireError",
    "columns_of_packed",
    "decode",
    "decode_ack",
    "decode_acks",
    "decode_bundle",
    "encode",
    "encode_bundle",
    "wire_number",
    "pack_bits",
    "pack_columns",
    "pack_turns",
    "storable_columns",
    "unpack_bits",
    "unpack_columns",
    "without_secrets",
]
