"""The storage format of reports: lossless and smaller; and the dictionary of names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from sqlalchemy import event

from tests.core.golden import cases, inputs
from tests.fixtures.messages import as_json
from tests.store.builders import realistic_columns, report
from trmon.domain.errors import Damaged, TrmonError
from trmon.store import Store
from trmon.store.database import engines_of
from trmon.store.rows import messages
from trmon.store.rows.batches import NameDictionary
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns

HUGE_FRAME = bytes.fromhex("28b52ffde0") + (1 << 50).to_bytes(8, "little")
"""The header of a zstd frame that declares a petabyte."""


def packed(made: Columns) -> bytes:
    return messages.pack_report(wire.Report(attempt="a", launch="l", step=1), parcel=wire.pack_columns(made))


def stored(sent: wire.Report) -> bytes:
    return messages.pack_report(without_columns(sent), parcel=wire.storable_columns(sent)[0])


def without_columns(sent: wire.Report) -> wire.Report:
    return msgspec.structs.replace(sent, columns={}, histograms={}, parcel=None)


def assert_same(found: Columns, expected: Columns) -> None:
    """Compare every bit, NaN and inf included, with dtypes and order."""
    assert list(found) == sorted(expected, key=list(found).index)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype
        assert found[name].tobytes() == column.tobytes()
    assert found.histograms.keys() == expected.histograms.keys()
    for pair, counts in expected.histograms.items():
        np.testing.assert_array_equal(found.histograms[pair], counts)


@pytest.mark.parametrize("case", cases())
def test_golden_columns_round_trip_bit_for_bit(case: str) -> None:
    expected = columns(**inputs(case))
    assert_same(messages.unpack_report(packed(expected))[1](), expected)


def test_turns_are_stored_with_their_report_and_are_part_of_its_digest() -> None:
    made = columns(**inputs(cases()[0]), turn_offsets=[[0, 1]] * len(inputs(cases()[0])["mask"]))
    assert made.turns is not None
    turns = wire.pack_turns(made.turns, accepted=np.ones(len(made.turns.n_tokens), bool))
    sent = wire.Report(attempt="a", launch="l", step=1, parcel=wire.pack_columns(made), turns=turns)
    payload, parcel = stored(sent), wire.storable_columns(sent)[0]
    found = messages.unpack_report(payload)[1]().turns
    assert found is not None
    assert {name: array.tobytes() for name, array in found.by_name.items()} == {
        name: array.tobytes() for name, array in made.turns.by_name.items()
    }
    digest = messages.report_digest(without_columns(sent), parcel=parcel)
    messages.check_report(payload, digest=digest)
    other = msgspec.structs.replace(without_columns(sent), turns=wire.pack_turns(made.turns))
    assert messages.report_digest(other, parcel=parcel) != digest


def test_a_report_can_be_read_without_its_columns() -> None:
    sent = report(step=3, update=1, scalars={"lr": 1e-6, "bad": None, "far": "-inf"}, accepted=b"\xff", kl_is="exact")
    found, unpacked = messages.unpack_report(stored(sent))
    assert found == without_columns(sent)
    assert_same(unpacked(), wire.unpack_columns(sent))


def test_column_metadata_round_trips() -> None:
    sent = report(kl_is="lower_bound", kl_pair="total", trainer_version=7, old_version=6)
    found = messages.unpack_report(stored(sent))[1]()
    assert (found.kl_is, found.kl_pair, found.trainer_version, found.old_version) == ("lower_bound", "total", 7, 6)


def test_columns_without_sequences_or_histograms_round_trip() -> None:
    expected = replace(realistic_columns(n=0), histograms={})
    assert_same(messages.unpack_report(packed(expected))[1](), expected)


def test_realistic_columns_compress_to_at_most_60_percent() -> None:
    made = realistic_columns()
    raw = sum(array.nbytes for array in (*made.values(), *made.histograms.values()))
    assert len(packed(made)) <= 0.6 * raw


def test_a_damaged_payload_is_refused() -> None:
    payload = bytearray(packed(realistic_columns()))
    payload[-20] ^= 1
    with pytest.raises(TrmonError, match=r"a stored report is damaged: parcel.data: is not one zstd frame"):
        messages.unpack_report(bytes(payload))[1]()


def test_another_format_is_refused() -> None:
    fields = msgspec.msgpack.decode(packed(realistic_columns()))
    fields[0] = messages.FORMAT + 1
    with pytest.raises(TrmonError, match=r"has format 3, this version reads 2; use the version that wrote it"):
        messages.unpack_report(msgspec.msgpack.encode(fields))


def digest(sent: wire.Report) -> bytes:
    return messages.report_digest(without_columns(sent), parcel=wire.storable_columns(sent)[0])


def repacked(payload: bytes) -> bytes:
    """Return a stored report as another zstd version compresses it."""
    fields = msgspec.msgpack.decode(payload)
    fields[-1] = zstandard.compress(zstandard.decompress(fields[-1]), 9)
    return msgspec.msgpack.encode(fields)


def changed(sent: wire.Report, name: str, values: list[float]) -> wire.Report:
    """Return a report with other values at the start of a column."""
    packed = sent.columns[name]
    assert isinstance(packed, wire.EncodedColumn)
    array = np.frombuffer(packed.data, f"<{packed.dtype}").copy()
    array[: len(values)] = values
    column = wire.EncodedColumn(packed.dtype, array.tobytes())
    return msgspec.structs.replace(sent, columns=sent.columns | {name: column})


def test_a_digest_depends_on_content_and_not_on_transport() -> None:
    sent = report(step=1, accepted=b"\x05", policy="ab")
    again = msgspec.structs.replace(sent, sent_at=5.0, losses=wire.Losses({"full": 1}), wire=(1, 1))
    reordered = msgspec.structs.replace(sent, columns=dict(reversed(sent.columns.items())))
    assert digest(sent) == digest(again) == digest(reordered)
    others = [
        msgspec.structs.replace(sent, step=2),
        msgspec.structs.replace(sent, accepted=b"\x04"),
        msgspec.structs.replace(sent, policy="cd"),
        msgspec.structs.replace(sent, histograms={}),
        report(step=1, accepted=b"\x05", policy="ab", seed=1),
        report(step=1, accepted=b"\x05", policy="ab", n=7),
        changed(sent, "reward", [0.5]),
        changed(sent, "total_max_d", [np.inf]),
        changed(sent, "n_invalid", [1]),
    ]
    assert len({digest(sent), *map(digest, others)}) == 1 + len(others)


def test_nan_payloads_and_signed_zeros_do_not_change_the_digest() -> None:
    plain = changed(report(step=1), "reward", [0.0, np.nan, np.inf])
    odd = changed(report(step=1), "reward", [-0.0, np.uint64(0xFFF8000000000001).view(np.float64), np.inf])
    assert plain.columns != odd.columns
    assert digest(plain) == digest(odd)
    assert stored(plain) == stored(odd)


def test_the_encoding_does_not_change_the_digest() -> None:
    sent = changed(report(step=1, accepted=b"\x05"), "reward", [-0.0, np.nan, np.inf])
    read = wire.decode(as_json(sent), media_type=wire.JSON)
    assert isinstance(read, wire.Report)
    assert digest(read) == digest(sent)
    assert stored(read) == stored(sent)


def test_the_digest_of_a_message_without_columns_depends_on_content_and_is_stable() -> None:
    pauses = [
        wire.Pause(attempt="a", launch="l", sequence=sequence, sent_at=at) for sequence in (1, 2) for at in (0, 9)
    ]
    assert len({messages.message_digest(message) for message in pauses}) == 2
    assert messages.message_digest(pauses[0]).hex() == "5c3bbb37fd1954d91f3390dcd7f346b7"


@pytest.mark.parametrize(
    "accepted", [b"\x05", None], ids=["acceptance decided by the client", "acceptance decided by the service"]
)
def test_reports_packed_by_different_zstd_versions_match(accepted: bytes | None) -> None:
    sent = report(step=1, accepted=accepted, policy="ab")
    decided = msgspec.structs.replace(sent, policy=sent.policy if accepted else "cd", sent_at=9.0)
    payload = stored(sent)
    older = repacked(stored(decided))
    assert older != payload
    assert messages.is_same_report(payload, older)
    for other in (msgspec.structs.replace(sent, step=2), changed(sent, "reward", [0.5])):
        assert not messages.is_same_report(payload, repacked(stored(other)))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda fields: fields[:0], id="no fields"),
        pytest.param(lambda fields: [*fields[:2], b"\xc1", *fields[3:]], id="undecodable fields"),
        pytest.param(lambda fields: [*fields[:3], b"", fields[4]], id="an empty layout"),
        pytest.param(
            lambda fields: [*fields[:3], fields[3][:-1] + b"\0", fields[4]], id="a changed byte of the layout"
        ),
        pytest.param(lambda fields: [*fields[:3], HUGE_FRAME, fields[4]], id="a layout that states a huge size"),
        pytest.param(lambda fields: [*fields[:4], b""], id="no columns"),
        pytest.param(lambda fields: [fields[0], 1 << 40, *fields[2:]], id="another number of sequences"),
    ],
)
def test_damaged_fields_are_reported(spoil: Callable[[list[Any]], list[Any]]) -> None:
    payload = packed(realistic_columns())
    damaged = msgspec.msgpack.encode(spoil(msgspec.msgpack.decode(payload)))
    with pytest.raises(Damaged, match="a stored report is damaged"):
        messages.unpack_report(damaged)[1]()


@pytest.mark.parametrize("damaged", [b"\xc1", packed(realistic_columns())[:-1] + b"\0"])
def test_damaged_bytes_do_not_match(damaged: bytes) -> None:
    assert not messages.is_same_report(packed(realistic_columns()), damaged)


def test_a_damaged_notice_is_reported() -> None:
    with pytest.raises(Damaged, match="a stored notice is damaged"):
        messages.unpack_notice(b"\xc1")


def without_fields(payload: bytes, *names: str) -> bytes:
    """Return a stored report as a version that did not know some fields stored it."""
    fields = msgspec.msgpack.decode(payload)
    document = {name: value for name, value in msgspec.msgpack.decode(fields[2]).items() if name not in names}
    return msgspec.msgpack.encode([*fields[:2], msgspec.msgpack.encode(document), *fields[3:]])


def test_a_report_with_a_field_that_an_older_version_did_not_store_is_the_same_report() -> None:
    sent = report(step=1, accepted=b"\x05", semantics=7, scalars={"loss": float("nan")})
    older = without_fields(stored(sent), "semantics")
    assert messages.is_same_report(stored(sent), older)
    for other in (msgspec.structs.replace(sent, accepted=b"\x01"), changed(sent, "reward", [0.5])):
        assert not messages.is_same_report(stored(other), older)


@pytest.mark.parametrize(("minor", "is_same"), [(2, True), (1, False)])
def test_a_column_that_an_older_version_did_not_store_was_one_of_a_newer_sender(minor: int, is_same: bool) -> None:
    sent = report(step=1, wire=(1, minor))
    less = msgspec.structs.replace(sent, columns={k: v for k, v in sent.columns.items() if k != "reward"})
    assert messages.is_same_report(stored(sent), stored(less)) is is_same
    assert not messages.is_same_report(stored(less), stored(sent))
    assert not messages.is_same_report(stored(changed(sent, "total_sum_d", [0.25])), stored(less))


def test_a_notice_that_an_older_version_stored_is_the_same_notice() -> None:
    finish = wire.Finish(
        attempt="a",
        launch="launch-1",
        sequence=1,
        reason="exception",
        sent_at=1.0,
        finished=[wire.ChunkCount(0, None, 1)],
    )
    newer = {"reason", "exit_code", "signal", "traceback"}
    document = msgspec.to_builtins(finish) | {"sent_at": 2.0}
    older = msgspec.msgpack.encode({name: value for name, value in document.items() if name not in newer})
    assert messages.is_same_notice(messages.pack_notice(finish), older)
    other = msgspec.structs.replace(finish, error="boom")
    assert not messages.is_same_notice(messages.pack_notice(other), older)
    assert not messages.is_same_notice(b"damaged", b"damaged")


def test_names_can_be_read_while_the_writer_evicts_them(store: Store, url: str) -> None:
    wanted = (("kl",), ("reward", "lr"))
    added = store.writer.submit(
        lambda transaction: [NameDictionary().id_of(transaction.connection, one) for one in wanted]
    )
    ids = added.result(30)
    engines, names = engines_of(url), NameDictionary()
    with engines.reader.connect() as connection:
        names.read(connection, ids[:1])
        event.listen(engines.reader, "before_cursor_execute", lambda *_: names.forget())
        assert names.read(connection, ids) == dict(zip(ids, wanted, strict=True))
    engines.dispose()
