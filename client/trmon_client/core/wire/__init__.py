"""The wire format: the messages that a trainer sends and the answers that it receives.

In MessagePack, columns are little-endian bytes with a dtype each or, as trmon's own client sends them, one compressed
parcel. In JSON they are arrays, with null for NaN and "inf" and "-inf" for infinities. Unknown fields are ignored;
unknown columns are rejected unless the sender has a newer minor version.
"""

from __future__ import annotations

from trmon_client.core.policies.decision import SEMANTICS_VERSION as SEMANTICS_VERSION
from trmon_client.core.wire.codec import JSON as JSON
from trmon_client.core.wire.codec import MAX_BUNDLE_MESSAGES as MAX_BUNDLE_MESSAGES
from trmon_client.core.wire.codec import MAX_DELETED as MAX_DELETED
from trmon_client.core.wire.codec import MAX_NAME_LENGTH as MAX_NAME_LENGTH
from trmon_client.core.wire.codec import MAX_SCALARS as MAX_SCALARS
from trmon_client.core.wire.codec import MSGPACK as MSGPACK
from trmon_client.core.wire.codec import decode as decode
from trmon_client.core.wire.codec import decode_ack as decode_ack
from trmon_client.core.wire.codec import decode_acks as decode_acks
from trmon_client.core.wire.codec import decode_bundle as decode_bundle
from trmon_client.core.wire.codec import encode as encode
from trmon_client.core.wire.codec import encode_bundle as encode_bundle
from trmon_client.core.wire.codec import with_safe_texts as with_safe_texts
from trmon_client.core.wire.messages import WIRE_MAJOR as WIRE_MAJOR
from trmon_client.core.wire.messages import WIRE_MINOR as WIRE_MINOR
from trmon_client.core.wire.messages import Ack as Ack
from trmon_client.core.wire.messages import Acks as Acks
from trmon_client.core.wire.messages import Bundle as Bundle
from trmon_client.core.wire.messages import ChunkCount as ChunkCount
from trmon_client.core.wire.messages import EncodedColumn as EncodedColumn
from trmon_client.core.wire.messages import EndReason as EndReason
from trmon_client.core.wire.messages import Finish as Finish
from trmon_client.core.wire.messages import Heartbeat as Heartbeat
from trmon_client.core.wire.messages import JsonNumber as JsonNumber
from trmon_client.core.wire.messages import Losses as Losses
from trmon_client.core.wire.messages import Message as Message
from trmon_client.core.wire.messages import Origin as Origin
from trmon_client.core.wire.messages import PackedColumns as PackedColumns
from trmon_client.core.wire.messages import PackedTurns as PackedTurns
from trmon_client.core.wire.messages import Pause as Pause
from trmon_client.core.wire.messages import PolicyUpdate as PolicyUpdate
from trmon_client.core.wire.messages import Report as Report
from trmon_client.core.wire.messages import SavedCheckpoint as SavedCheckpoint
from trmon_client.core.wire.messages import Scalars as Scalars
from trmon_client.core.wire.messages import Start as Start
from trmon_client.core.wire.messages import WireColumn as WireColumn
from trmon_client.core.wire.messages import WireError as WireError
from trmon_client.core.wire.packed_columns import pack_bits as pack_bits
from trmon_client.core.wire.packed_columns import pack_columns as pack_columns
from trmon_client.core.wire.packed_columns import unpack_bits as unpack_bits
from trmon_client.core.wire.unpacking import columns_of_packed as columns_of_packed
from trmon_client.core.wire.unpacking import pack_turns as pack_turns
from trmon_client.core.wire.unpacking import storable_columns as storable_columns
from trmon_client.core.wire.unpacking import unpack_columns as unpack_columns
from trmon_client.core.wire.unpacking import unpacked_bytes as unpacked_bytes
from trmon_client.core.wire.unpacking import wire_number as wire_number
