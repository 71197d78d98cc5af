"""Reports and notices as rows: how they are packed, compared and read, of one run or of many at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from functools import lru_cache
from hashlib import blake2b, sha256
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from sqlalchemy import BigInteger, Connection, Label, Row, Select, Table, Text, bindparam, cast, func, select, true
from sqlalchemy.dialects.postgresql import ARRAY
from zstandard import ZstdError, frame_content_size

from trmon.domain.errors import Damaged
from trmon.domain.identity import BatchKey, ReportKey
from trmon.domain.messages import AnyNotice, AnyReport, DamagedNotice, DamagedReport, StoredNotice, StoredReport
from trmon.store.database.postgres import BINARY
from trmon.store.schema import tables
from trmon_client.core import wire
from trmon_client.core.arrays import MAX_CACHED_LAYOUTS, DType
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import Columns
from trmon_client.core.wire.packed_columns import compress, decompress_frame, open_packed_columns

T = TypeVar("T")

FORMAT = 2
FIRST_MINOR = 1
"""The minor version of the wire of the first release."""
DIGEST_BYTES = 16
MAX_LAYOUT_BYTES = 1 << 20
_HASH_PIECE_BYTES = 2047
"""hashlib releases the GIL for larger pieces, and waiting to get it back takes longer than hashing."""


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    """`report` is the report without columns, `layout` a compressed _Layout, `body` the packed columns."""

    format: int
    n_sequences: int
    report: bytes
    layout: bytes
    body: bytes


class _Sent(msgspec.Struct, frozen=True):
    sent_at: float = 0.0


class _Layout(msgspec.Struct, frozen=True, array_like=True):
    """The names of the columns and histograms in the body; all reports of a run have the same."""

    names: dict[DType, tuple[str, ...]]
    pairs: tuple[Pair, ...]


_PAYLOAD = msgspec.msgpack.Decoder(_Payload)
_REPORT = msgspec.msgpack.Decoder(wire.Report)
_LAYOUT = msgspec.msgpack.Decoder(_Layout)
_SENT = msgspec.msgpack.Decoder(_Sent)
_NOTICE: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(wire.Start | wire.Scalars | wire.Pause | wire.Finish)


def pack_report(report: wire.Report, *, parcel: wire.PackedColumns) -> bytes:
    """Return the stored form of a report and its packed columns; `unpack_report` returns the same bits.

    Callers pack a report before they queue it, which keeps the work off the writer's thread.
    """
    layout = _compressed_layout(_encoded_layout(parcel))
    return msgspec.msgpack.encode(
        _Payload(FORMAT, parcel.n_sequences, msgspec.msgpack.encode(report), layout, parcel.data)
    )


def unpack_report(payload: bytes) -> tuple[wire.Report, Callable[[], Columns]]:
    """Return a stored report without its columns, and a function that decodes them.

    Errors: Damaged, also from the function, if the payload cannot be decoded or has another format.
    """
    stored = _decode_payload(payload)
    report = _decode(_REPORT, stored.report)
    return report, lambda: _columns(report, stored)


def check_report(payload: bytes, *, digest: bytes) -> None:
    """Compare a stored report with its digest. Errors: Damaged if it cannot be decoded or differs."""
    stored = _decode_payload(payload)
    layout = _layout_of(stored)
    packed = wire.PackedColumns(stored.n_sequences, layout.names, layout.pairs, stored.body)
    if report_digest(_decode(_REPORT, stored.report), parcel=packed) != digest:
        raise Damaged("a stored report differs from its digest: it is damaged, or another version of trmon stored it")


def pack_notice(message: wire.Start | wire.Scalars | wire.Pause | wire.Finish) -> bytes:
    """Return the stored form of a message that has no columns."""
    return wire.encode(message)


def unpack_notice(payload: bytes) -> wire.Start | wire.Scalars | wire.Pause | wire.Finish:
    """Return a stored message that has no columns. Errors: Damaged."""
    try:
        message: wire.Start | wire.Scalars | wire.Pause | wire.Finish = _NOTICE.decode(payload)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(f"a stored notice is damaged: {error}") from error
    return message


def sent_at(payload: bytes, *, is_report: bool) -> float:
    """Return when a stored message was sent, by its sender's clock; 0 if it cannot be decoded."""
    try:
        return _decode(_SENT, _decode_payload(payload).report if is_report else payload).sent_at
    except Damaged:
        return 0.0


def message_digest(message: wire.Message) -> bytes:
    """Return a digest of the content of a message without columns: send time and client losses do not count."""
    return blake2b(_content_bytes(message), digest_size=DIGEST_BYTES).digest()


def report_digest(report: wire.Report, *, parcel: wire.PackedColumns) -> bytes:
    """Return a digest of the content of a report, as `message_digest` defines it, and of its packed columns.

    Equal reports have equal digests in every wire encoding, but not from every version of the service: if digests
    differ, `is_same_report` decides.
    """
    digest = sha256(_content_bytes(report))
    digest.update(_encoded_layout(parcel))
    data = memoryview(parcel.data)
    for start in range(0, len(data), _HASH_PIECE_BYTES):
        digest.update(data[start : start + _HASH_PIECE_BYTES])
    return digest.digest()[:DIGEST_BYTES]


def is_same_report(payload: bytes, stored: bytes) -> bool:
    """Whether a report is the stored one: what both versions of trmon knew is equal; a damaged one equals none.

    A service of before an upgrade stored neither fields that it did not know, nor columns of a newer wire version.
    """
    try:
        new, old = _decode_payload(payload), _decode_payload(stored)
        report = _decode(_REPORT, new.report)
        is_same = _has_same_fields(report, _decode(_REPORT, old.report), known=msgspec.msgpack.decode(old.report))
        return is_same and _has_same_columns(new, old, may_have_more=report.wire[1] > FIRST_MINOR)
    except (Damaged, msgspec.MsgspecError, ValueError):
        return False


def is_same_notice(payload: bytes, stored: bytes) -> bool:
    """Whether a notice is the stored one, as `is_same_report` defines it."""
    try:
        return _has_same_fields(unpack_notice(payload), unpack_notice(stored), known=msgspec.msgpack.decode(stored))
    except (Damaged, msgspec.MsgspecError, ValueError):
        return False


def _has_same_fields(new: wire.Message, old: wire.Message, *, known: Container[str]) -> bool:
    """Compare messages. Args: known: the fields that the version which stored the old one knew, and maybe others."""
    contents = [msgspec.msgpack.decode(_content_bytes(message)) for message in (new, old)]
    # Encoded: NaN equals NaN.
    first, second = (msgspec.msgpack.encode({k: v for k, v in one.items() if k in known}) for one in contents)
    return first == second


def _has_same_columns(new: _Payload, old: _Payload, *, may_have_more: bool) -> bool:
    layout, old_layout = _layout_of(new), _layout_of(old)
    try:
        if layout == old_layout:
            return decompress_frame(new.body) == decompress_frame(old.body)
        if not may_have_more:
            return False
        columns, old_columns = _opened(new, layout), _opened(old, old_layout)
    except (ZstdError, wire.WireError) as error:
        raise _damaged(error) from error
    return columns.keys() >= old_columns.keys() and all(columns[name] == old_columns[name] for name in old_columns)


def _opened(stored: _Payload, layout: _Layout) -> dict[str, bytes]:
    """Return the bytes of each column and histogram."""
    found = open_packed_columns(wire.PackedColumns(stored.n_sequences, layout.names, layout.pairs, stored.body))
    arrays: list[Mapping[Any, Any]] = [found.by_name(), found.histograms_by_pair()]
    return {name: array.tobytes() for named in arrays for name, array in named.items()}


def _content_bytes(message: wire.Message) -> bytes:
    """Encode a message without what a retry may change; without a decision of the client, its policy does not count."""
    # Minor version 0 for ever: stored digests must stay those of the same messages.
    neutral: dict[str, Any] = {"sent_at": 0.0, "wire": (wire.WIRE_MAJOR, 0)}
    if isinstance(message, wire.Report | wire.Finish):
        neutral["losses"] = wire.Losses()
    if isinstance(message, wire.Report) and message.accepted is None:
        neutral["policy"] = None
    return msgspec.msgpack.encode(msgspec.structs.replace(message, **neutral))


def _decode_payload(payload: bytes) -> _Payload:
    stored = _decode(_PAYLOAD, payload)
    if stored.format != FORMAT:
        raise Damaged(
            f"a stored report has format {stored.format}, this version reads {FORMAT}; use the version that wrote it"
        )
    return stored


def _columns(report: wire.Report, stored: _Payload) -> Columns:
    layout = _layout_of(stored)
    packed = wire.PackedColumns(stored.n_sequences, layout.names, layout.pairs, stored.body)
    try:
        return wire.columns_of_packed(report, packed)
    except (ArithmeticError, LookupError, TypeError, ValueError, ZstdError) as error:
        raise _damaged(error) from error


def _layout_of(stored: _Payload) -> _Layout:
    try:
        return _decompressed_layout(stored.layout)
    except (msgspec.MsgspecError, ValueError, ZstdError) as error:
        raise _damaged(error) from error


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> Damaged:
    return Damaged(f"a stored report is damaged: {error}")


def _encoded_layout(packed: wire.PackedColumns) -> bytes:
    return msgspec.msgpack.encode(_Layout(packed.names, packed.pairs))


# Cached: all reports of a run have the same columns, and packing their names takes as long as packing their numbers.
_compressed_layout = lru_cache(MAX_CACHED_LAYOUTS)(compress)


@lru_cache(MAX_CACHED_LAYOUTS)
def _decompressed_layout(data: bytes) -> _Layout:
    # A damaged header may state any size, which would be allocated before anything is read.
    if not 0 <= frame_content_size(data) <= MAX_LAYOUT_BYTES:
        raise ZstdError("the layout states an implausible size")
    return _LAYOUT.decode(decompress_frame(data))


MOVED_REASON = "its attempt was moved to the lake"


def unread_report(row: Any) -> AnyReport:
    """Return the report of a row of `newer_rows`; one that arrived after its attempt moved is not decoded."""
    return DamagedReport(**_report_ids(row), reason=MOVED_REASON, is_late=True) if row.is_moved else stored_report(row)


def unread_notice(row: Any) -> AnyNotice:
    """Return the notice of a row of `newer_rows`; one that arrived after its attempt moved is not decoded.

    A damaged one has only its ids and the reason.
    """
    if row.is_moved:
        return DamagedNotice(**_notice_ids(row), reason=MOVED_REASON)
    try:
        return StoredNotice(**_notice_ids(row), message=unpack_notice(row.payload))
    except Damaged as error:
        return DamagedNotice(**_notice_ids(row), reason=str(error))


def stored_report(row: Any) -> AnyReport:
    """Return the report of a row; a damaged one only with its key and the reason."""
    try:
        report, columns = unpack_report(row.payload)
    except Damaged as error:
        return DamagedReport(**_report_ids(row), reason=str(error))
    sizes = {"accepted": row.accepted, "n_sequences": row.n_sequences, "n_tokens": row.n_tokens}
    return StoredReport(**_report_ids(row), **sizes, report=report, columns=columns)


def _report_ids(row: Any) -> dict[str, Any]:
    key = ReportKey(BatchKey(row.attempt_id, row.step, row.update_index), row.rank, row.chunk)
    return {"id": row.id, "run_id": row.run_id, "key": key, "received_at": row.received_at}


def _notice_ids(row: Any) -> dict[str, Any]:
    return {"id": row.id, "run_id": row.run_id, "attempt_id": row.attempt_id, "received_at": row.received_at}


_BIGINTS = ARRAY(BigInteger)
_LIMIT = bindparam("limit", type_=BigInteger)


def newer_rows(connection: Connection, table: Table, after: Mapping[int, int], *, limit: int) -> list[Row[Any]]:
    """Return the rows with an id larger than the one given for their run, oldest first; any `limit` of them if more."""
    rows = connection.execute(*newer_rows_query(connection.dialect.name, table, after, limit=limit))
    return sorted(rows, key=attrgetter("id"))


def newer_rows_query(
    dialect: str, table: Table, after: Mapping[int, int], *, limit: int
) -> tuple[Select[Any], dict[str, Any]]:
    """Return the query and its parameters."""
    if dialect == "sqlite":
        return _SQLITE_QUERIES[table.name], {"limit": limit, "after": json.dumps(list(after.items()))}
    return _POSTGRES_QUERIES[table.name], {"limit": limit, "runs": list(after), "after": list(after.values())}


def is_moved(table: Table) -> Label[bool]:
    """Return the column that says whether the attempt of a message has moved to the lake, or is moving."""
    moved = tables.lake_batch_attempt
    found = select(moved.c.attempt_id).where(moved.c.attempt_id == table.c.attempt_id).correlate(table)
    return found.exists().label("is_moved")


def _sqlite_query(table: Table) -> Select[Any]:
    """Build the query with an outer join, which makes SQLite start with the runs; `is_found` drops the rows it adds."""
    given = func.json_each(bindparam("after", type_=Text)).table_valued("value", name="given")
    run_id, after = (func.json_extract(given.c.value, f"$[{i}]") for i in range(2))
    newer = (table.c.run_id == run_id) & (table.c.id > after)
    is_found = func.coalesce(table.c.id, 0) > 0
    return select(table, is_moved(table)).select_from(given.outerjoin(table, newer)).where(is_found).limit(_LIMIT)


def _postgres_query(table: Table) -> Select[Any]:
    """Build the query with a lateral join per run, whose order and limit keep PostgreSQL from scanning the table."""
    arrays = (cast(bindparam(name, type_=_BIGINTS), _BIGINTS) for name in ("runs", "after"))
    given = func.unnest(*arrays).table_valued("run_id", "after", name="given").render_derived()
    newer = (
        select(table, is_moved(table))
        .where(table.c.run_id == given.c.run_id, table.c.id > given.c.after)
        .order_by(table.c.id)
    )
    rows = newer.limit(_LIMIT).lateral()
    query = select(rows).select_from(given.join(rows, true())).limit(_LIMIT)
    return query.execution_options(**{BINARY: True})


_TABLES = (tables.notice, tables.report)
_SQLITE_QUERIES = {table.name: _sqlite_query(table) for table in _TABLES}
_POSTGRES_QUERIES = {table.name: _postgres_query(table) for table in _TABLES}
