"""The compiled kernels give the columns of the general reduction; needs numba."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("numba")

from tests.core.agreement import agree, same
from tests.core.large_batches.drawn_batches import LABELS, assert_general, inputs, inputs_of, widened
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.histogram import FLOAT32_EDGES, histogram_in_place
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.large_batches import reduce
from trmon_client.core.large_batches.compiled.kernel_loading import KernelLoader
from trmon_client.core.reduction.block_reduction import reduce_block
from trmon_client.core.reduction.ppo_clipping import DEFAULT_CLIP, ClipRange

POLICIES = ("rollout_logprobs", "old_logprobs", "logprobs")


@pytest.fixture(scope="module", autouse=True)
def loader() -> Iterator[KernelLoader]:
    """Kernels for this module alone: loaded ones would reduce the batches of every later test of the process."""
    loader = KernelLoader()
    loader.start(pytest.fail)
    assert loader.wait(timeout_seconds=300)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(reduce, "KERNELS", loader)
        yield loader


def compiled_columns(given: CheckedInputs, *, clip: ClipRange = DEFAULT_CLIP) -> Columns:
    assert reduce.KERNELS.loaded is not None
    return reduce.reduce_large_batch(given, clip=clip)


@settings(max_examples=80, deadline=None)
@given(inputs)
def test_columns_equal_those_of_the_general_reduction(drawn: CheckedInputs) -> None:
    assert_general(compiled_columns(drawn), drawn)


def test_every_float32_beside_an_edge_falls_into_the_bin_that_sorting_gives() -> None:
    near = [np.nextafter(FLOAT32_EDGES, np.float32(side)) for side in (-np.inf, np.inf)]
    d = np.concatenate([FLOAT32_EDGES, *near, np.float32([0.0, -0.0, 1e-45, -1e-45, 900.0, -900.0])])
    # One of the two log-probs is 0, so that d is exact; those with positive log-probs are left to the mirrored pair.
    negative = d[d <= 0]
    for sign in (1, -1):
        logp = {"old_logprobs": negative, "rollout_logprobs": np.zeros_like(negative)}
        if sign < 0:
            logp = {"old_logprobs": logp["rollout_logprobs"], "rollout_logprobs": logp["old_logprobs"]}
        whole = check_inputs(
            **{name: array[None] for name, array in logp.items()}, mask=np.ones((1, len(negative)), bool)
        )
        found = compiled_columns(whole).histograms["mismatch"]
        expected = histogram_in_place((logp["old_logprobs"] - logp["rollout_logprobs"]).copy(), n_absent=0)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("odd", [0.0, 0.05], ids=["clean", "poisoned"])
@pytest.mark.parametrize("noise", [1e-4, 0.3, 8.0], ids=lambda noise: f"noise {noise}")
def test_sequences_of_many_chunks_are_as_accurate_as_float64(noise: float, odd: float) -> None:
    whole = inputs_of(9, names=POLICIES, n_sequences=12, horizon=4096, noise=noise, odd=odd)
    found = compiled_columns(whole)
    with np.errstate(all="ignore"):
        expected = reduce_block(widened(whole), clip=DEFAULT_CLIP)
        agree(found, {name: expected[name] for name in expected if name not in {"argmax_abs_d", *LABELS}})


def test_an_outlier_costs_the_tokens_after_it_no_digit() -> None:
    """Of 2,000 tokens the first has a clamped ratio of e^20, whose square is 2e17; truncated, it counts as 2."""
    rollout = np.full((1, 2000), -0.5, np.float32)
    rollout[0, 0] = -30.0
    new = np.full_like(rollout, -0.25)
    found = compiled_columns(check_inputs(rollout_logprobs=rollout, logprobs=new, mask=np.ones_like(rollout)))
    ratio = np.exp(0.25)
    assert found["total_sum_trunc_ratio"][0] == pytest.approx(2 + 1999 * ratio, rel=1e-9)
    assert found["total_sum_sq_trunc_ratio"][0] == pytest.approx(4 + 1999 * ratio**2, rel=1e-9)


@pytest.mark.parametrize("magnitude", [1e-3, 1e-4, 1e-6])
def test_k3_is_accurate_at_the_healthy_scale(magnitude: float) -> None:
    random = np.random.default_rng(0)
    rollout = (-random.random((4, 4096)) * 1e-2 - magnitude * 2).astype(np.float32)
    new = (rollout + magnitude * random.choice([-1, 1], rollout.shape)).astype(np.float32)
    found = compiled_columns(check_inputs(rollout_logprobs=rollout, logprobs=new, mask=np.ones_like(rollout)))
    d = new.astype(np.float64) - rollout
    np.testing.assert_allclose(found["total_sum_k3"], (d**2 / 2 + d**3 / 6 + d**4 / 24).sum(-1), rtol=1e-9)


@pytest.mark.parametrize("clip", [ClipRange(0.0, 0.0), ClipRange(0.5, 3.0), ClipRange(1.0, 0.2), ClipRange(2.0, 9.0)])
@pytest.mark.parametrize("is_per_token", [False, True])
def test_clipped_tokens_are_counted_for_any_range(clip: ClipRange, is_per_token: bool) -> None:
    whole = inputs_of(2, names=POLICIES, n_sequences=6, horizon=700, noise=1.0, odd=0.05)
    assert whole.advantages is not None
    if not is_per_token:
        whole = CheckedInputs(**{**_fields(whole), "advantages": whole.advantages[:, 0]})
    found = compiled_columns(whole, clip=clip)
    with np.errstate(all="ignore"):
        expected = reduce_block(whole, clip=clip)
    for name in ("n_clipped", "n_leaked", "n_leaked_high"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_slices_and_read_only_arrays_are_accepted() -> None:
    whole = inputs_of(4, names=POLICIES, n_sequences=8, horizon=1025, noise=0.1)
    contiguous = compiled_columns(whole.mapped(lambda array: array[..., 1:].copy() if array.ndim == 2 else array))
    for array in whole.logprobs.values():
        array.setflags(write=False)
    sliced = compiled_columns(whole.mapped(lambda array: array[..., 1:] if array.ndim == 2 else array))
    same(sliced, contiguous, relative=0)


def _fields(given: CheckedInputs) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.__dataclass_fields__}


ABSENT = """
import sys
sys.modules["numba"] = None
import threading
import numpy as np
from trmon_client.core import statistics
from trmon_client.core.large_batches.compiled.kernel_loading import KERNELS
reasons = []
KERNELS.start(reasons.append)
assert not KERNELS.wait(60) and len(reasons) == 1 and "numba" in reasons[0], reasons
logp = -np.ones((64, 1024), np.float32)
assert statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=logp < 0)["n_tokens"].sum() == logp.size
"""


def test_without_numba_the_reason_is_told_once_and_numpy_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_no_thread_is_left_once_the_kernels_are_loaded(loader: KernelLoader) -> None:
    loader.start(pytest.fail)
    assert "trmon-compiler" not in {thread.name for thread in threading.enumerate()}
