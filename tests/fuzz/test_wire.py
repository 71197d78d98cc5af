"""Messages, and the spools that hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.client.sending.test_spool import drained
from tests.core.wire.test_wire import MESSAGES
from tests.domain.pipeline.test_replay import sent as sent_turns
from tests.domain.pipeline.test_replay import traces
from tests.domain.trainer import finished
from tests.domain.trainer import report as trained_report
from tests.fixtures.fuzzing import PLAIN_VALUES, edited, edited_document
from tests.fixtures.messages import as_json
from tests.worker.watched_run import WatchedRun
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage
from trmon.ingest.service import validate_message
from trmon.store.rows import messages
from trmon_client.config.settings import Limits
from trmon_client.core import wire
from trmon_client.core.policies.policy import preset
from trmon_client.core.wire.segments import HEADER, SegmentError, SegmentScan, encode_record, scan_segment
from trmon_client.error_guard import LossCounter
from trmon_client.sending.spool import Spool

pytestmark = pytest.mark.fuzz

KEY = RunKey("math", "grpo")
VALID = [
    *MESSAGES,
    trained_report(0, scalars={"lr": 1e-6}),
    trained_report(1, finished=finished((0, None, 1))),
    sent_turns(2, content=traces()),
]
MEDIA_TYPES = st.sampled_from([wire.MSGPACK, wire.JSON])
LEAVES = PLAIN_VALUES | st.binary(max_size=32)


def encoded(document: Any, media_type: str) -> bytes:
    if media_type == wire.MSGPACK:
        return msgspec.msgpack.encode(document, enc_hook=str)
    return msgspec.json.encode(document, enc_hook=str)


def documents(media_type: str) -> list[Any]:
    """Return the valid messages as documents."""
    if media_type == wire.MSGPACK:
        return [msgspec.msgpack.decode(wire.encode(message)) for message in VALID]
    return [msgspec.json.decode(as_json(message)) for message in VALID if getattr(message, "parcel", None) is None]


DOCUMENTS = {media_type: documents(media_type) for media_type in (wire.MSGPACK, wire.JSON)}


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, str]:
    """Return a message, damaged as bytes or as a document, and its media type."""
    media_type = draw(MEDIA_TYPES)
    valid = st.sampled_from(DOCUMENTS[media_type])
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(edited(valid.map(lambda document: encoded(document, media_type)))), media_type
    document = draw(edited_document(valid, leaves=_encodable(media_type)))
    return encoded(document, media_type), media_type


def _encodable(media_type: str) -> st.SearchStrategy[Any]:
    """Return values that the format can hold: MessagePack ends at 64 bits."""
    if media_type == wire.JSON:
        return LEAVES
    fits = LEAVES.filter(lambda value: not isinstance(value, int) or -(2**63) <= value < 2**64)
    return fits.filter(_packs)


def _packs(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        return False
    return True


@settings(max_examples=50)
@given(bodies())
def test_a_damaged_message_is_refused_or_can_be_stored_and_judged(body: tuple[bytes, str]) -> None:
    data, media_type = body
    try:
        message = wire.decode(data, media_type=media_type)
        prepared = validate_message(message, KEY, policy_of=lambda _: preset("trm"))
    except (wire.WireError, InvalidInput) as refusal:
        assert str(refusal)
        return
    _check_stored(prepared)
    _check_judged(prepared)


def _check_stored(prepared: PreparedMessage) -> None:
    """What the database would hold can be read again, and a repetition is recognised."""
    if isinstance(prepared.message, wire.Heartbeat):
        return
    if not isinstance(prepared.message, wire.Report):
        assert messages.unpack_notice(prepared.payload) is not None
        assert messages.is_same_notice(prepared.payload, prepared.payload)
        return
    report, columns = messages.unpack_report(prepared.payload)
    assert (report.step, report.rank, report.chunk) == (
        prepared.message.step,
        prepared.message.rank,
        prepared.message.chunk,
    )
    assert columns().n_sequences == prepared.n_sequences
    assert messages.is_same_report(prepared.payload, prepared.payload)


def _check_judged(prepared: PreparedMessage) -> None:
    """A run that gets the message continues: the runner neither fails nor stops reading."""
    watched = WatchedRun()
    message = _readable(prepared)
    watched.receive(message, at=0.0)
    after = {"attempt": message.attempt, "launch": message.launch, "sequence": 1}
    watched.receive(wire.Finish(**after, rank=message.rank, outcome="finished"), at=10.0)
    watched.tick(5000.0)
    assert not watched.observer.failures


def _readable(prepared: PreparedMessage) -> wire.Message:
    """Return the message as the runner reads it back."""
    if isinstance(prepared.message, wire.Report):
        report, columns = messages.unpack_report(prepared.payload)
        return msgspec.structs.replace(
            report,
            attempt=prepared.message.attempt,
            launch=prepared.message.launch,
            rank=prepared.message.rank,
            parcel=wire.pack_columns(columns()),
            accepted=prepared.accepted,
        )
    return prepared.message


@settings(max_examples=25)
@given(st.binary(max_size=64) | edited(st.sampled_from([wire.encode(message) for message in VALID])), MEDIA_TYPES)
@example(b"", wire.MSGPACK)
@example(b"\xdf\xff\xff\xff\xff", wire.MSGPACK)
@example(b"[" * 100_000, wire.JSON)
def test_no_bundle_breaks_the_decoder(body: bytes, media_type: str) -> None:
    refuses_or_decodes(wire.decode_bundle, body, media_type=media_type)


def refuses_or_decodes(decode: Callable[..., object], body: bytes, **options: str) -> None:
    try:
        decode(body, **options)
    except wire.WireError as refusal:
        assert str(refusal)


ANSWERS = [
    wire.encode(wire.Ack("stored", accepted=b"\x0f", policy=wire.PolicyUpdate("h", {"name": "p", "criteria": []}))),
    wire.encode(wire.Acks([wire.Ack("duplicate"), wire.Ack("invalid", problem="x")])),
]


@settings(max_examples=25)
@given(st.binary(max_size=64) | edited(st.sampled_from(ANSWERS)))
def test_no_answer_breaks_the_client(body: bytes) -> None:
    for decode in (wire.decode_ack, wire.decode_acks):
        refuses_or_decodes(decode, body)


MESSAGES = [b"a", b"\x00" * 300, b"third", bytes(range(256)) * 8]
SEGMENT = HEADER + b"".join(map(encode_record, MESSAGES))
SEGMENTS = st.binary(max_size=64) | st.binary(max_size=64).map(lambda tail: HEADER + tail) | edited(st.just(SEGMENT))


@settings(max_examples=30)
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


@settings(max_examples=30)
@given(edited(st.just(SEGMENT)))
def test_damage_never_makes_a_message(data: bytes) -> None:
    assert set(scanned(data).messages) <= set(MESSAGES)
