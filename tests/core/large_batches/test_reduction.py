"""Large batches on the host have the columns of the general reduction, with one thread or two."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.agreement import agree, same
from tests.core.examples import GIVES, batch
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.large_batches import reduction
from trmon_client.core.large_batches.blocks import row_blocks, sequence_positions
from trmon_client.core.reduction.sequences import reduce_block
from trmon_client.core.reduction.token_terms import DEFAULT_CLIP, RATIOS

QUICK = settings(max_examples=40)
LABELS = ("advantage", "reward", "group_id", "version_min", "version_max", "truncated")


def inputs_of(seed: int, *, names: tuple[str, ...], **drawn: Any) -> CheckedInputs:
    """Return a random batch with advantages and versions per token."""
    arrays = batch(seed, **drawn)
    mask = arrays.pop("mask")
    random = np.random.default_rng(seed)
    lengths = random.integers(0, mask.shape[1] + 1, (len(mask), 1))
    mask &= (np.arange(mask.shape[1]) < lengths) | (seed % 3 == 0)
    return check_inputs(
        **{name: arrays[name] for name in names},
        mask=np.ones_like(mask) if seed % 5 == 0 else mask,
        advantages=random.normal(size=mask.shape),
        versions=random.integers(0, 9, mask.shape),
        rewards=random.normal(size=len(mask)),
        group_ids=np.arange(len(mask)),
        truncated=random.random(len(mask)) < 0.5,
    )


def widened(inputs: CheckedInputs) -> CheckedInputs:
    """Return the inputs as float64, which the general reduction keeps."""
    return inputs.mapped(lambda array: array.astype(np.float64) if array.dtype == np.float32 else array)


inputs = st.builds(
    inputs_of,
    st.integers(0, 10**6),
    names=st.sampled_from([*GIVES.values()]),
    n_sequences=st.integers(1, 9),
    horizon=st.sampled_from([1, 7, 300]),
    noise=st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0, 8.0]),
    odd=st.sampled_from([0.0, 0.0, 0.05, 0.4]),
)


def assert_general(found: Columns, inputs: CheckedInputs) -> None:
    """Assert that columns of inputs are those of the general reduction."""
    with np.errstate(all="ignore"):
        expected = reduce_block(widened(inputs), clip=DEFAULT_CLIP)
        # float32 cannot tell which of two nearly equal |d| is larger.
        agree(found, {name: expected[name] for name in expected if name not in {"argmax_abs_d", *LABELS}})
    for name in LABELS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, err_msg=name)
    assert set(found) == set(expected)
    assert {name: array.dtype for name, array in found.items()} == {n: a.dtype for n, a in expected.items()}
    assert (found["argmax_abs_d"] >= 0).tolist() == (expected["argmax_abs_d"] >= 0).tolist()
    above, below = RATIOS[expected.primary or "total"]
    with np.errstate(invalid="ignore"):
        size = np.abs(inputs.logprobs[above].astype(np.float64) - inputs.logprobs[below])
    places = [columns["argmax_abs_d"][:, None] for columns in (found, expected)]
    of_found, of_expected = (np.take_along_axis(size, place, 1)[expected["n_tokens"] > 0] for place in places)
    np.testing.assert_allclose(of_found, of_expected, rtol=1e-6, atol=1e-6)
    for pair in expected.pairs:
        np.testing.assert_array_equal(found.histograms[pair], expected.histograms[pair])


@QUICK
@given(inputs)
def test_columns_equal_those_of_the_general_reduction(inputs: CheckedInputs) -> None:
    assert_general(reduction.reduce_large_batch(inputs, clip=DEFAULT_CLIP), inputs)


@QUICK
@given(
    seed=st.integers(0, 10**6),
    n_sequences=st.integers(1, 40),
    horizon=st.sampled_from([1, 300, 1024]),
    size=st.sampled_from([1, 1000, 4096]),
)
def test_row_blocks_hold_every_counting_token_once_and_have_similar_lengths(
    seed: int, n_sequences: int, horizon: int, size: int
) -> None:
    random = np.random.default_rng(seed)
    mask = random.random((n_sequences, horizon)) < random.choice([0.0, 0.5, 1.0])
    mask &= np.arange(horizon) < random.integers(0, horizon + 1, (n_sequences, 1))
    (found,) = row_blocks(mask, size)
    assert sorted(place for block in found for place in sequence_positions(block.rows)) == list(range(n_sequences))
    for block in found:
        assert not mask[block.rows, block.horizon :].any()
        assert len(sequence_positions(block.rows)) * block.horizon <= max(size, block.horizon)
    horizons = [block.horizon for block in found]
    assert horizons == sorted(horizons, reverse=True)


@pytest.mark.parametrize("magnitude", [1e-3, 1e-4, 1e-6])
def test_k3_is_accurate_at_the_healthy_scale(magnitude: float) -> None:
    random = np.random.default_rng(0)
    rollout = (-random.random((4, 4096)) * 1e-2 - magnitude * 2).astype(np.float32)
    new = (rollout + magnitude * random.choice([-1, 1], rollout.shape)).astype(np.float32)
    given = {"rollout_logprobs": rollout, "logprobs": new}
    found = reduction.reduce_large_batch(check_inputs(**given, mask=np.ones_like(rollout)), clip=DEFAULT_CLIP)
    d = new.astype(np.float64) - rollout
    np.testing.assert_allclose(found["total_sum_k3"], (d**2 / 2 + d**3 / 6 + d**4 / 24).sum(-1), rtol=1e-9)


def test_a_binary_kl_of_5e_7_is_accurate() -> None:
    rollout = np.linspace(-3.0, -0.5, 1 << 14, dtype=np.float32).reshape(4, -1)
    given = {"rollout_logprobs": rollout, "logprobs": rollout + np.float32(2e-3)}
    found = reduction.reduce_large_batch(check_inputs(**given, mask=np.ones_like(rollout)), clip=DEFAULT_CLIP)
    below, above = (given[name].astype(np.float64) for name in ("rollout_logprobs", "logprobs"))
    rest_below, rest_above = -np.expm1(below), -np.expm1(above)
    exact = np.exp(below) * (below - above) + rest_below * np.log(rest_below / rest_above)
    assert 1e-7 < exact.mean() < 1e-6
    np.testing.assert_allclose(found["total_sum_binary_kl"], exact.sum(-1), rtol=1e-6)


def test_float64_short_rows_and_device_tensors_use_the_general_reduction() -> None:
    def is_large(shape: tuple[int, int], dtype: Any = np.float32) -> bool:
        logp = np.zeros(shape, dtype)
        return reduction.is_large(check_inputs(logprobs=logp, old_logprobs=logp, mask=np.ones(shape)))

    assert is_large((64, 1024))
    assert not is_large((64, 1024), np.float64)
    assert not is_large((64, 1024), np.float16)
    assert not is_large((8192, 16))
    assert not is_large((4, 512))
    logp = torch.zeros((64, 1024), device="meta")
    assert not reduction.is_large(CheckedInputs({"logprobs": logp, "old_logprobs": logp}, logp > 0, layout=None))  # type: ignore[arg-type]


@pytest.fixture
def torch_threads() -> Any:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_many_blocks_give_the_columns_of_one_with_one_thread_or_two_that_end_with_the_call(torch_threads: Any) -> None:
    whole = inputs_of(1, names=("rollout_logprobs", "old_logprobs"), n_sequences=80, horizon=8192, odd=0.01)
    assert whole.mask.size >= reduction.THREADED_TOKENS
    found: dict[int, Columns] = {}
    for n_threads in (1, 2):
        torch_threads(n_threads)
        alive = set(threading.enumerate())
        found[n_threads] = reduction.reduce_large_batch(whole, clip=DEFAULT_CLIP)
        assert set(threading.enumerate()) <= alive
        assert torch.get_num_threads() == n_threads
    same(found[1], found[2], relative=0)
    assert_general(found[1], whole)


def test_the_next_call_does_not_overwrite_columns() -> None:
    names = ("rollout_logprobs", "old_logprobs", "logprobs")
    first, second = (inputs_of(seed, names=names, horizon=4096) for seed in (1, 2))
    found = reduction.reduce_large_batch(first, clip=DEFAULT_CLIP)
    copy = Columns({name: array.copy() for name, array in found.items()}, dict(found.histograms))
    reduction.reduce_large_batch(second, clip=DEFAULT_CLIP)
    same(found, copy, relative=0)


FORK = """
import os, sys, numpy as np, torch
from trmon_client.core import statistics
torch.set_num_threads(2)
logp = -np.ones((128, 8192), np.float32)
given = dict(rollout_logprobs=logp, logprobs=logp - np.float32(0.5), mask=logp < 0)
expected = statistics.columns(**given)["total_sum_k3"].sum()
child = os.fork()
found = statistics.columns(**given)["total_sum_k3"].sum()
if not child:
    os._exit(0 if found == expected else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or int(found != expected))
"""


def test_a_trainer_can_fork_after_a_large_batch() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("horizon", [1 << 13, 1 << 17])
def test_sums_keep_five_digits_when_every_addition_rounds_the_same_way(horizon: int) -> None:
    rollout = np.full((2, horizon), -0.7, np.float32)
    given = {"rollout_logprobs": rollout, "logprobs": rollout + np.float32(0.0123)}
    whole = check_inputs(**given, mask=np.ones_like(rollout))
    expected = reduce_block(widened(whole), clip=DEFAULT_CLIP)
    agree(reduction.reduce_large_batch(whole, clip=DEFAULT_CLIP), {name: expected[name] for name in expected})
