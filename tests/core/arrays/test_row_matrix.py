"""Columns as rows of matrices behave like single columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.fixtures.messages import columns, report
from trmon_client.core import wire
from trmon_client.core.arrays import RowMatrix
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset
from trmon_client.core.signals import batch_signals


def in_rows(content: Columns) -> Columns:
    """Return the columns after packing and unpacking."""
    return wire.columns_of_packed(report(content), wire.pack_columns(content))


def same(found: Columns, expected: Columns) -> None:
    """Compare columns with their dtypes, and histograms."""
    assert set(found) == set(expected)
    assert all(found[name].dtype == expected[name].dtype for name in expected)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert found.histograms.keys() == expected.histograms.keys()
    assert all(np.array_equal(found.histograms[pair], counts) for pair, counts in expected.histograms.items())


def test_rows_are_a_mapping_of_names_to_columns() -> None:
    content = columns(5, reward=np.arange(5.0))
    found = in_rows(content).by_name
    assert isinstance(found, RowMatrix)
    assert len(found) == len(list(found)) == len(content)
    assert set(found) == set(content)
    assert "reward" in found
    assert "advantage" not in found
    assert found["reward"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(KeyError):
        found["advantage"]


def test_rows_merge_like_single_columns() -> None:
    parts = [columns(n, seed=n) for n in (3, 1, 5)]
    merged = Columns.merge(*map(in_rows, parts))
    assert isinstance(merged.by_name, RowMatrix)
    same(merged, Columns.merge(*parts))


def test_rows_merge_with_parts_that_have_other_columns() -> None:
    full = columns(2)
    lacking = replace(full, by_name={name: array for name, array in full.items() if name != "reward"})
    for parts in ((full, lacking), (lacking, full)):
        merged = Columns.merge(*map(in_rows, parts))
        expected = Columns.merge(*parts)
        assert np.array_equal(merged["reward"], expected["reward"], equal_nan=True)
        assert set(merged) == set(expected)
        assert Columns.merge(in_rows(full), lacking).keys() == Columns.merge(full, lacking).keys()


def test_signals_and_decisions_of_rows_are_equal_to_the_bit() -> None:
    content = columns(7, reward=np.linspace(0.0, 1.0, 7), n_tokens=np.array([16, 0, 16, 16, 3, 16, 16]))
    found, expected = batch_signals.compute(in_rows(content)), batch_signals.compute(content)
    assert found.keys() == expected.keys()
    assert np.array_equal(list(found.values()), list(expected.values()), equal_nan=True)
    policy = preset("trm")
    assert np.array_equal(decide(in_rows(content), policy).accepted, decide(content, policy).accepted)
