"""The stored form of reports: every bit comes back, in fewer bytes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import zstandard

from tests.core.golden import cases, inputs
from tests.store.builders import realistic_columns, report
from trmon.domain.errors import TrmonError
from trmon.store import codec
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns


def packed(made: Columns) -> bytes:
    """Return the stored form of a report with these columns."""
    message = wire.Report(attempt="a", launch="l", step=1, columns={})
    return codec.pack(message, columns=made)


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
def test_every_bit_of_the_golden_columns_comes_back(case: str) -> None:
    expected = columns(**inputs(case))
    assert_same(codec.unpack(packed(expected))[1](), expected)


def test_the_report_comes_back_without_its_columns() -> None:
    sent = report(step=3, update=1, scalars={"lr": 1e-6, "bad": None, "far": "-inf"}, accepted=b"\xff", kl_is="exact")
    found, unpacked = codec.unpack(codec.pack(sent))
    assert found == msgspec.structs.replace(sent, columns={}, histograms={})
    assert_same(unpacked(), wire.unpack_columns(sent))


def test_what_the_columns_say_of_themselves_comes_back() -> None:
    sent = report(kl_is="lower_bound", kl_pair="total", trainer_version=7, old_version=6)
    found = codec.unpack(codec.pack(sent))[1]()
    assert (found.kl_is, found.kl_pair, found.trainer_version, found.old_version) == ("lower_bound", "total", 7, 6)


def test_columns_without_sequences_or_histograms_come_back() -> None:
    expected = replace(realistic_columns(n=0), histograms={})
    assert_same(codec.unpack(packed(expected))[1](), expected)


@pytest.mark.parametrize(("n", "length"), [(8, 64), (64, 64), (64, 512)])
def test_realistic_columns_take_at_most_six_tenths_of_their_bytes(n: int, length: int) -> None:
    made = realistic_columns(n=n, length=length)
    raw = sum(array.nbytes for array in (*made.values(), *made.histograms.values()))
    assert len(packed(made)) <= 0.6 * raw


def test_a_damaged_payload_is_not_read() -> None:
    payload = bytearray(packed(realistic_columns()))
    payload[-20] ^= 1
    with pytest.raises(zstandard.ZstdError):
        codec.unpack(bytes(payload))[1]()


def test_a_newer_format_is_refused() -> None:
    fields = msgspec.msgpack.decode(packed(realistic_columns()))
    fields[0] = codec.FORMAT + 1
    with pytest.raises(TrmonError, match="format 2, this service reads 1; upgrade it"):
        codec.unpack(msgspec.msgpack.encode(fields))


def test_a_digest_tells_what_is_said_and_not_how_it_was_sent() -> None:
    sent = report(step=1)
    made = realistic_columns()
    same = [sent, msgspec.structs.replace(sent, sent_at=5.0, losses=wire.Losses({"full": 1}), wire=(1, 1))]
    assert len({codec.digest(message, columns=made) for message in same}) == 1
    other = [
        codec.digest(msgspec.structs.replace(sent, step=2), columns=made),
        codec.digest(sent, columns=realistic_columns(seed=1)),
        codec.digest(sent, columns=replace(made, histograms={})),
        codec.digest(wire.Pause(attempt="a", launch="l", sequence=1)),
        codec.digest(wire.Pause(attempt="a", launch="l", sequence=2)),
    ]
    assert len({codec.digest(sent, columns=made), *other}) == 6
