"""Columns as a mapping, and the merge of parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.core.agreement import equal
from tests.core.batches import batch
from tests.fixtures.messages import columns, report
from trmon_client.core import statistics, wire
from trmon_client.core.arrays import RowMatrix
from trmon_client.core.column_schema import COLUMNS
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset
from trmon_client.core.signals import batch_signals


def test_merge_concatenates_sequences_in_order_and_adds_histograms() -> None:
    parts = [statistics.columns(**batch(seed, n_sequences=seed)) for seed in (1, 2, 3)]
    before = parts[0].histograms["total"].copy()
    whole = Columns.merge(*parts)
    np.testing.assert_array_equal(parts[0].histograms["total"], before)
    assert whole.n_sequences == 6
    for name, array in whole.items():
        assert array.dtype == COLUMNS[name].dtype
        np.testing.assert_array_equal(array, np.concatenate([part[name] for part in parts]))
    for pair in whole.pairs:
        np.testing.assert_array_equal(whole.histograms[pair], sum(part.histograms[pair] for part in parts))


def test_merge_of_one_part_is_the_part_and_without_parts_is_rejected() -> None:
    part = statistics.columns(**batch(0))
    assert Columns.merge(part) is part
    with pytest.raises(ValueError, match="at least one part"):
        Columns.merge()


def test_rewards_of_some_parts_are_kept_with_nan_for_the_others() -> None:
    with_reward = statistics.columns(**batch(0, n_sequences=2), rewards=[1.0, 2.0])
    without = statistics.columns(**batch(1, n_sequences=1))
    for parts, expected in (((with_reward, without), [1, 2, np.nan]), ((without, with_reward), [np.nan, 1, 2])):
        found = Columns.merge(*parts)["reward"]
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


def test_other_columns_of_some_parts_are_dropped() -> None:
    inputs = batch(1)
    two = statistics.columns(
        rollout_logprobs=inputs["rollout_logprobs"], logprobs=inputs["logprobs"], mask=inputs["mask"]
    )
    merged = Columns.merge(statistics.columns(**inputs, versions=np.ones(6, int)), two)
    assert merged.pairs == ("total",)
    assert list(merged.histograms) == ["total"]
    assert set(merged) == set(two)


def test_a_merged_kl_is_marked_like_its_weakest_part() -> None:
    part = statistics.columns(**batch(0))
    exact, bound = (replace(part, kl_is=kl_is, kl_pair="total") for kl_is in ("exact", "lower_bound"))
    assert Columns.merge(exact, bound).kl_is == "lower_bound"
    assert Columns.merge(exact, bound).kl_pair == "total"
    assert Columns.merge(bound, part).kl_is == "sampled"
    assert Columns.merge(exact, replace(exact, kl_pair="mismatch")).kl_pair is None


def test_merged_versions_are_the_newest_trainer_and_the_oldest_proximal_policy() -> None:
    part = statistics.columns(**batch(0))
    versions = [(5, 4), (None, None), (7, 2)]
    merged = Columns.merge(*(replace(part, trainer_version=new, old_version=old) for new, old in versions))
    assert (merged.trainer_version, merged.old_version) == (7, 2)


def test_torch_columns_merge_and_convert_to_numpy_in_their_dtypes() -> None:
    part = statistics.columns(**batch(0), rewards=np.ones(6))
    tensors = Columns(
        {name: torch.from_numpy(np.array(array)) for name, array in part.items()},
        {pair: torch.from_numpy(counts) for pair, counts in part.histograms.items()},
    )
    del tensors.by_name["reward"]
    merged = Columns.merge(tensors, replace(tensors, by_name={**tensors, "reward": torch.ones(6).double()}))
    assert isinstance(merged["reward"], torch.Tensor)
    found, expected = merged.numpy(), Columns.merge(part, part)
    for name, array in found.items():
        assert array.dtype == COLUMNS[name].dtype
        if name != "reward":
            np.testing.assert_array_equal(array, expected[name])
    np.testing.assert_array_equal(found["reward"], [np.nan] * 6 + [1.0] * 6)
    np.testing.assert_array_equal(found.histograms["total"], expected.histograms["total"])


def in_rows(content: Columns) -> Columns:
    """Return the columns after packing and unpacking."""
    return wire.columns_of_packed(report(content), wire.pack_columns(content))


def test_rows_are_a_mapping_of_names_to_columns() -> None:
    content = columns(5, reward=np.arange(5.0))
    found = in_rows(content).by_name
    assert isinstance(found, RowMatrix)
    assert len(found) == len(list(found)) == len(content)
    assert found["reward"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ("reward" in found, "advantage" in found) == (True, False)
    with pytest.raises(KeyError):
        found["advantage"]


def test_rows_merge_like_single_columns() -> None:
    parts = [columns(n, seed=n) for n in (3, 1, 5)]
    merged = Columns.merge(*map(in_rows, parts))
    assert isinstance(merged.by_name, RowMatrix)
    equal(merged, Columns.merge(*parts))


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
