"""Columns as a mapping, the merge of parts, and their histograms of d."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.core.agreement import equal
from tests.core.examples import batch
from tests.fixtures.messages import columns, report
from trmon_client.core import statistics, wire
from trmon_client.core.arrays import RowMatrix
from trmon_client.core.column_schema import COLUMNS, HISTOGRAM_EDGES, N_BINS
from trmon_client.core.columns import Columns, abs_quantiles, histograms, percentile
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


KINDS = [np.asarray, torch.from_numpy]


def around(edge: float) -> tuple[float, float, float]:
    return float(np.nextafter(edge, -np.inf)), edge, float(np.nextafter(edge, np.inf))


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_on_an_edge_falls_into_the_bin_that_starts_there(kind: Any) -> None:
    d = np.array([[value for edge in HISTOGRAM_EDGES for value in around(edge)]])
    counts = histograms(kind(d), valid=kind(np.ones(d.shape[1], bool)))
    expected = np.full(N_BINS, 3)
    expected[0], expected[-1] = 1, 2
    np.testing.assert_array_equal(counts, [expected])


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_tokens_are_subtracted_from_the_bin_around_zero(kind: Any) -> None:
    d = np.array([[0.0, 0.0, 5.0], [0.0, -1e-7, -1e9]])
    counts = np.asarray(histograms(kind(d), valid=kind(np.array([False, True, True]))))
    assert counts.dtype == np.int64
    assert [np.flatnonzero(row).tolist() for row in counts] == [[N_BINS // 2, 143], [0, N_BINS // 2]]
    assert HISTOGRAM_EDGES[142] <= 5.0 < HISTOGRAM_EDGES[143]
    assert counts.sum(axis=1).tolist() == [2, 2]


@pytest.mark.parametrize("n", [1, 2, 5, 64])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.95, 1.0])
def test_percentiles_interpolate_linearly_like_numpy(n: int, fraction: float) -> None:
    values = np.random.default_rng(n).normal(size=(3, n))
    assert percentile(values, fraction) == pytest.approx(np.quantile(values, fraction, axis=-1))


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.99, 0.999])
@pytest.mark.parametrize("scale", [1e-5, 1e-2, 1.0, 5.0])
def test_quantiles_of_the_histogram_are_accurate_to_a_bin(fraction: float, scale: float) -> None:
    d = np.random.default_rng(5).normal(0, scale, (1, 20_000))
    counts = histograms(d, valid=np.ones(d.shape[1], bool))
    found = abs_quantiles(counts, [fraction], largest=np.abs(d).max(axis=1))
    width = 10**0.1 - 1
    assert found == [pytest.approx([np.quantile(np.abs(d), fraction)], rel=width, abs=1e-6)]


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.99, 1.0])
def test_quantiles_of_few_tokens_are_interpolated_between_them(fraction: float) -> None:
    d = np.array([[0.01, -1.0, 20.0]])
    found = abs_quantiles(histograms(d, valid=np.ones(3, bool)), [fraction], largest=np.array([20.0]))
    assert found == [pytest.approx([np.quantile(np.abs(d), fraction)], rel=0.13)]


@pytest.mark.parametrize(
    ("d", "fraction", "least", "most"),
    [([-0.3], 0.99, 0.3, 0.3), ([0.5, 0.5, -0.5], 0.999, 0.4, 0.5), ([900.0, -900.0], 0.99, 32.0, 900.0)],
    ids=["one token", "no more than the largest", "the overflow bin"],
)
def test_quantiles_end_at_the_largest_value(d: list[float], fraction: float, least: float, most: float) -> None:
    counts = histograms(np.array([d]), valid=np.ones(len(d), bool))
    assert least <= abs_quantiles(counts, [fraction], largest=np.array([most]))[0][0] <= most


def test_an_empty_histogram_has_no_quantile() -> None:
    assert math.isnan(abs_quantiles(np.zeros((1, N_BINS), np.int64), [0.99], largest=np.array([math.nan]))[0][0])
