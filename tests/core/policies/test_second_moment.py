"""M2PO's mask against every subset of a small batch, and on ties, invalid tokens and one token."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core import statistics
from trmon_client.core.arrays import NUMPY, torch_arrays
from trmon_client.core.policies.policy import preset
from trmon_client.core.policies.token_decision import apply_token_rules, fraction_dropped, kept_by_second_moment
from trmon_client.core.signals import batch_signals


def largest_allowed_subset(squares: list[float], limit: float) -> int:
    """Return the size of the largest subset whose mean is below the limit, by trying all of them; at least 1."""
    sizes = [
        n
        for n in range(1, len(squares) + 1)
        if any(math.fsum(chosen) / n < limit for chosen in itertools.combinations(squares, n))
    ]
    return max(sizes, default=1)


@pytest.mark.parametrize("seed", range(40))
def test_it_keeps_the_largest_set_of_tokens_whose_second_moment_is_below_the_limit(seed: int) -> None:
    random = np.random.default_rng(seed)
    squares = random.choice([0.0, 1e-3, 0.02, 0.05, 0.1, 0.7, 4.0], (2, 5))
    limit = float(random.choice([5e-4, 0.04, 0.2, 10.0]))
    kept = kept_by_second_moment(NUMPY, squares, valid=np.ones((2, 5), bool), limit=limit)
    assert kept.sum() == largest_allowed_subset(squares.ravel().tolist(), limit)
    if not kept.all():
        assert squares[kept].max() <= squares[~kept].min()


def test_of_equal_tokens_the_first_are_kept_by_numpy_and_torch_alike() -> None:
    squares, valid = np.array([[0.0, 0.1, 0.1], [0.1, 0.0, 0.0]]), np.ones((2, 3), bool)
    kept = kept_by_second_moment(NUMPY, squares, valid=valid, limit=0.05)
    assert kept.tolist() == [[True, True, True], [False, True, True]]
    tensors = {"valid": torch.from_numpy(valid), "limit": 0.05}
    assert kept_by_second_moment(torch_arrays(), torch.from_numpy(squares), **tensors).tolist() == kept.tolist()


def test_one_valid_token_is_kept_however_large_and_invalid_ones_never() -> None:
    squares, valid = np.array([[9.0, 0.0, 4.0]]), np.array([[True, False, True]])
    assert kept_by_second_moment(NUMPY, squares, valid=valid, limit=0.04).tolist() == [[False, False, True]]
    nothing = kept_by_second_moment(NUMPY, squares, valid=valid & False, limit=0.04)
    assert not nothing.any()


def of_log_ratios(d: np.ndarray[Any, Any]) -> dict[str, Any]:
    rollout = np.full(d.shape, -20.0)
    return {"rollout_logprobs": rollout, "old_logprobs": rollout + d, "mask": np.ones(d.shape, bool)}


def test_the_mask_is_of_the_whole_call_even_if_it_is_computed_in_blocks_elsewhere() -> None:
    d = np.random.default_rng(0).normal(0, 0.5, (300, 2000))
    given = of_log_ratios(d)
    found = apply_token_rules(preset("m2po"), **given)
    kept = (d**2)[found.mask]
    smallest_dropped = (d**2)[~found.mask].min()
    assert kept.mean() < 0.04 <= (kept.sum() + smallest_dropped) / (kept.size + 1)
    assert kept.max() <= smallest_dropped
    signals = batch_signals.compute(found.attached_to(statistics.columns(**given)))
    assert signals["token_mask_rate"] == pytest.approx(1 - found.mask.mean())
    assert found.weights.tolist() == found.mask.astype(float).tolist()


def test_masks_of_micro_batches_differ_from_that_of_the_batch() -> None:
    d = np.array([[0.0] * 8, [0.5] * 8])
    whole = apply_token_rules(preset("m2po", upper=0.13), **of_log_ratios(d)).mask
    parts = [apply_token_rules(preset("m2po", upper=0.13), **of_log_ratios(row[None])).mask for row in d]
    assert (whole.sum(), sum(int(part.sum()) for part in parts)) == (16, 8 + 1)


def test_without_the_proximal_policy_it_reads_the_total() -> None:
    given = of_log_ratios(np.array([[0.0, 0.1, 3.0]]))
    given["logprobs"] = given.pop("old_logprobs")
    assert apply_token_rules(preset("m2po"), **given).mask.tolist() == [[True, True, False]]


@pytest.mark.parametrize("seed", range(20))
def test_the_fraction_dropped_of_counted_values_is_that_of_the_tokens(seed: int) -> None:
    random = np.random.default_rng(seed)
    values, counts = np.array([0.0, 0.01, 0.04, 0.2, 1.0, math.inf]), random.integers(0, 30, 6)
    counts[0] += 1
    tokens = np.repeat(np.where(np.isinf(values), 1e6, values), counts)[None]
    kept = kept_by_second_moment(NUMPY, tokens, valid=np.ones(tokens.shape, bool), limit=0.04)
    assert fraction_dropped(values, counts, limit=0.04) == pytest.approx(1 - kept.mean())


def test_the_fraction_dropped_without_tokens_is_nan_and_one_token_is_kept() -> None:
    assert math.isnan(fraction_dropped(np.array([0.0]), np.array([0]), limit=0.04))
    assert fraction_dropped(np.array([0.0, 1.0]), np.array([0, 4]), limit=0.04) == 0.75
