"""Repeated 4-grams against a plain count, in every layout and on every kind of array, and what they cost nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trmon_client.core import statistics
from trmon_client.core.column_schema import REPETITION_STEMS
from trmon_client.core.columns import Columns
from trmon_client.core.reduction import repetition
from trmon_client.core.signals import batch_signals


def plain(ids: Any, mask: Any) -> dict[str, list[int]]:
    """Return both counts of each sequence by a set of tuples, one token after another."""
    found: dict[str, list[int]] = {name: [] for name in REPETITION_STEMS}
    for row, counts in zip(ids, mask, strict=True):
        starts = [start for start in range(len(row) - 3) if all(counts[start : start + 4])]
        grams = [tuple(int(token) for token in row[start : start + 4]) for start in starts]
        found["n_four_grams"].append(len(grams))
        found["n_repeated_four_grams"].append(sum(gram in grams[:at] for at, gram in enumerate(grams)))
    return found


def columns_of(ids: Any, mask: Any, **given: Any) -> Columns:
    logp = -np.ones(np.shape(mask))
    return statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=mask, token_ids=ids, **given)


def counts_in(columns: Any) -> dict[str, list[int]]:
    return {name: [int(value) for value in columns[name]] for name in REPETITION_STEMS}


def looping(n_sequences: int = 7, horizon: int = 40) -> tuple[Any, Any]:
    """Return ids, of few words in the first half of the batch, with any number under the padding, and a mask."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 150_000, (n_sequences, horizon))
    ids[: n_sequences // 2] %= 3
    mask = np.arange(horizon) < random.integers(0, horizon + 1, n_sequences)[:, None]
    mask[1, 10:14], mask[2], mask[-1, :3] = False, False, False
    return np.where(mask, ids, random.choice([-100, 0, 2**31], ids.shape)), mask


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_counts_equal_a_plain_count(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(0, 4)), data.draw(st.integers(0, 12)))
    ids = data.draw(arrays(np.int64, shape, elements=st.sampled_from([0, 1, 2, 65_536, 2**31, -(2**62), 2**63 - 1])))
    mask = data.draw(arrays(np.bool_, shape))
    expected = plain(ids, mask)
    assert counts_in(repetition.repetition_columns(ids, mask)) == expected
    assert counts_in(repetition.repetition_columns(torch.from_numpy(ids), torch.from_numpy(mask))) == expected


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_ids_of_any_integer_dtype_count_alike(kind: Any) -> None:
    ids, mask = looping()
    ids = ids % 5
    assert counts_in(columns_of(ids.astype(kind), mask)) == plain(ids, mask)


def test_long_answers_are_counted_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = looping(n_sequences=9, horizon=600)
    expected = plain(ids, mask)
    assert counts_in(columns_of(ids, mask)) == expected
    monkeypatch.setattr(repetition, "BLOCK_TOKENS", 1200)
    assert counts_in(repetition.repetition_columns(ids, mask)) == expected


def test_the_share_is_of_all_responses_and_its_quantile_of_those_with_a_4_gram() -> None:
    ids = np.array([[7] * 8, range(8), [0] * 8])
    mask = np.array([[True] * 8, [True] * 8, [True] * 3 + [False] * 5])
    found = batch_signals.compute(columns_of(ids, mask))
    assert found["repeated_share"] == pytest.approx(4 / 10)
    assert found["repeated_share_p95"] == pytest.approx(np.quantile([4 / 5, 0.0], 0.95))
    short = batch_signals.compute(columns_of(ids[:, :3], mask[:, :3]))
    assert np.isnan([short["repeated_share"], short["repeated_share_p95"]]).all()


def test_nothing_else_changes_and_nothing_is_added_without_ids() -> None:
    ids, mask = looping()
    mask[2] = True
    with_ids, without = columns_of(ids, mask), columns_of(None, mask)
    assert {*with_ids} - {*without} == {*REPETITION_STEMS}
    for name in without:
        np.testing.assert_array_equal(with_ids[name], without[name], err_msg=name)
    assert not any(name.startswith("repeated") for name in batch_signals.compute(without))


@pytest.mark.parametrize("n_ids", [2, 7, 16])
def test_4_grams_of_few_ids_have_keys_of_their_own(n_ids: int) -> None:
    grams = np.indices((n_ids,) * 4).reshape(4, -1).T
    found = repetition.repetition_columns(grams.reshape(1, -1), np.ones((1, grams.size), bool))
    starts = np.lib.stride_tricks.sliding_window_view(grams.ravel(), 4)
    assert found["n_repeated_four_grams"].tolist() == [len(starts) - len(np.unique(starts, axis=0))]
