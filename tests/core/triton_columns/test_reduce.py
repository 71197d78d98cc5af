"""The Triton kernel of the columns against the other reductions, on a CUDA device or interpreted."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.core import reference
from tests.core.agreement import agree, equal
from tests.core.examples import GIVES, ODD, POISON, batch, batch_of_zeros
from tests.core.triton_device import HAS_DEVICE, quiet_numpy, without_interpreter  # noqa: F401, a fixture
from trmon_client.core import statistics
from trmon_client.core.column_schema import N_BINS
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.reduction.sequences import reduce_block
from trmon_client.core.reduction.token_terms import DEFAULT_CLIP
from trmon_client.core.triton_functions import on_device_of

SEVERAL_STRETCHES = 700
"""A horizon of three stretches where they are short, of which the last is partly filled."""
LOGPROBS = GIVES["all three"]


def on_device(value: Any) -> Any:
    """Return an argument as a tensor of the device if there is one."""
    if isinstance(value, list):
        return [on_device(one) for one in value]
    return torch.as_tensor(value, device="cuda") if HAS_DEVICE and isinstance(value, np.ndarray) else value


def fused(**given: Any) -> Columns:
    """Return the columns of the kernel on the host."""
    given = {name: on_device(value) for name, value in given.items()}
    return statistics.columns(**given, backend="triton").numpy()


def widened(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with log-probs in float64, which every other reduction keeps."""
    return {name: np.asarray(value, np.float64) if name in LOGPROBS else value for name, value in given.items()}


def both(given: dict[str, Any], **options: Any) -> tuple[Columns, Columns]:
    """Return the columns of the kernel and of the blocks."""
    return fused(**given, **options), statistics.columns(**widened(given), **options)


def assert_equal(found: Columns, expected: Columns) -> None:
    """Compare columns within the stated tolerances, histograms and dtypes exactly."""
    expected = expected.numpy()
    assert {name: array.dtype for name, array in found.items()} == {n: a.dtype for n, a in expected.items()}
    agree(found, dict(expected))
    assert list(found.histograms) == list(expected.histograms)
    for pair, counts in expected.histograms.items():
        np.testing.assert_array_equal(found.histograms[pair], counts)


def labels(shape: tuple[int, int], *, per_token: bool) -> dict[str, Any]:
    random = np.random.default_rng(9)
    size = shape if per_token else shape[0]
    return {
        "advantages": random.normal(size=size).astype(np.float32),
        "versions": random.integers(3, 9, size),
        "rewards": random.normal(size=shape[0]),
        "group_ids": np.arange(shape[0]) // 2,
        "truncated": random.random(shape[0]) < 0.5,
    }


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program reduce 128 or 256 tokens in place of 512 or 2,048; the interpreter also runs tiles without any."""
    from trmon_client.core.triton_columns import reduce

    monkeypatch.setattr(reduce, "SHORT", 1)
    monkeypatch.setattr(reduce, "LONG", 2)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize(
    ("names", "noise", "odd"),
    [
        ("rollout and old", 1e-6, 0.1),
        ("rollout and new", 0.3, 0.0),
        ("old and new", 8.0, 0.1),
        ("all three", 1e-6, 0.0),
        ("all three", 0.3, 0.1),
        ("all three", 8.0, 0.0),
    ],
)
def test_columns_equal_the_plain_reference_and_the_blocks(names: str, noise: float, odd: float) -> None:
    inputs = batch(seed=7, n_sequences=4, noise=noise, odd=odd)
    given = {name: inputs[name] for name in GIVES[names]}
    advantages = np.random.default_rng(8).normal(size=inputs["mask"].shape)
    found, expected = both({**given, "mask": inputs["mask"], "advantages": advantages})
    assert_equal(found, expected)
    agree(found, reference.columns(given, inputs["mask"], advantages))


@pytest.mark.usefixtures("short_stretches")
def test_the_stretches_of_a_sequence_are_joined() -> None:
    inputs = batch(seed=1, n_sequences=3, horizon=SEVERAL_STRETCHES, noise=1.0, odd=0.1)
    # Whole stretches are empty: the second of one sequence, all of another.
    inputs["mask"][0, 256:512] = False
    inputs["mask"][1] = False
    assert_equal(*both(inputs | labels(inputs["mask"].shape, per_token=True)))


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("names", ["rollout and new", "all three"])
def test_tails_of_zeros_are_joined(names: str) -> None:
    inputs = batch_of_zeros(3, n_sequences=3, horizon=SEVERAL_STRETCHES)
    # A tail of two stretches, with holes, and an empty stretch after it.
    inputs["rollout_logprobs"][0, 200:] = 0.0
    inputs["mask"][0, 512:] = False
    found, expected = both({name: inputs[name] for name in (*GIVES[names], "mask")})
    assert_equal(found, expected)
    assert expected["n_zero_tail"][0] > 200


@pytest.mark.parametrize("horizon", [1, 128, 129, 2049])
def test_any_horizon_is_supported(horizon: int) -> None:
    assert_equal(*both(batch(seed=2, n_sequences=1, horizon=horizon)))


@pytest.mark.usefixtures("short_stretches")
def test_the_first_of_equal_largest_log_ratios_is_named() -> None:
    rollout = np.full((2, SEVERAL_STRETCHES), -1.0)
    new = rollout.copy()
    new[0, [5, 300, 600]] -= 0.5
    new[1, [600, 699]] -= 0.25
    found = fused(rollout_logprobs=rollout, logprobs=new, mask=rollout < 0)
    assert found["argmax_abs_d"].tolist() == [5, 600]


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("per_token", [False, True], ids=["of sequences", "of tokens"])
def test_labels_are_those_of_the_blocks(per_token: bool) -> None:
    inputs = batch(seed=3, n_sequences=3, odd=0.1)
    inputs["mask"][0] = False
    assert_equal(*both(inputs | labels(inputs["mask"].shape, per_token=per_token)))


@pytest.mark.usefixtures("short_stretches")
def test_the_clip_range_turns_and_a_reference_policy_are_respected() -> None:
    inputs = batch(seed=4, n_sequences=2, noise=0.3)
    given = inputs | {"advantages": np.ones(2), "ref_logprobs": inputs["old_logprobs"] - 0.1}
    found, expected = both(given, clip_low=0.05, clip_high=0.4, turn_ids=np.arange(12) // 4 * np.ones((2, 1), int))
    assert_equal(found, expected)
    assert found.turns.by_name.keys() == expected.turns.by_name.keys()
    for name, array in expected.turns.by_name.items():
        np.testing.assert_allclose(found.turns.by_name[name], array, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.usefixtures("short_stretches")
def test_ragged_log_probs_are_supported() -> None:
    lengths = (3, 0, 200)
    given = {name: [np.linspace(-2.0, -1.0 + i / 9, n) for n in lengths] for i, name in enumerate(LOGPROBS)}
    assert_equal(fused(**given), statistics.columns(**given))


@pytest.mark.usefixtures("short_stretches")
def test_extreme_values_are_judged_as_by_the_blocks() -> None:
    extremes = (*POISON, *ODD, -999.9999, 1e-4, 20.5)
    inputs = batch(seed=5, n_sequences=len(extremes))
    for position, name in enumerate(LOGPROBS):
        inputs[name][:, position * 4] = extremes
    assert_equal(*both(inputs))


@pytest.mark.usefixtures("short_stretches")
def test_k3_is_accurate_at_the_healthy_scale() -> None:
    random = np.random.default_rng(0)
    rollout = (-random.random((2, 500)) * 1e-2 - 2e-4).astype(np.float32)
    new = (rollout + 1e-4 * random.choice([-1, 1], rollout.shape)).astype(np.float32)
    found = fused(rollout_logprobs=rollout, logprobs=new, mask=rollout < 0)
    d = new.astype(np.float64) - rollout
    np.testing.assert_allclose(found["total_sum_k3"], (d**2 / 2 + d**3 / 6 + d**4 / 24).sum(-1), rtol=1e-6)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("scale", [1e-5, 5.0], ids=lambda scale: f"log p of {scale}")
def test_the_variance_of_probabilities_keeps_its_digits(scale: float) -> None:
    random = np.random.default_rng(3)
    rollout = -random.exponential(scale, (2, 500)).astype(np.float32)
    new = rollout * (1 + 0.01 * random.normal(size=rollout.shape)).astype(np.float32)
    found, expected = both({"rollout_logprobs": rollout, "logprobs": new, "mask": np.ones(rollout.shape, bool)})
    n = expected["n_tokens"]

    def moments(columns: Columns) -> list[Any]:
        p, q, pp, qq, pq = (columns[f"total_sum_{stem}"] / n for stem in ("p", "q", "pp", "qq", "pq"))
        return [pp - p * p, qq - q * q, pq - p * q]

    np.testing.assert_allclose(moments(found), moments(expected), rtol=1e-4)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize(("mismatch", "staleness"), [(0.3, 1e-6), (1e-3, 0.2), (15.0, 1e-3)])
def test_importance_ratios_apart_by_little_keep_their_difference(mismatch: float, staleness: float) -> None:
    signs = np.random.default_rng(4).choice([-1.0, 1.0], (2, 200))
    rollout = np.full(signs.shape, -20.0)
    old = rollout + mismatch * signs
    given = {"rollout_logprobs": rollout, "old_logprobs": old, "logprobs": old + staleness * signs[:, ::-1]}
    # In float64, which the log-ratios keep.
    inputs = tensors({**given, "mask": np.ones(signs.shape, bool)}, torch.float64)
    inputs.logprobs.update({name: torch.as_tensor(array, device=inputs.mask.device) for name, array in given.items()})
    found = statistics.columns_of_inputs(inputs, backend="triton").numpy()
    expected = np.abs(np.exp(given["logprobs"] - rollout) - np.exp(old - rollout)).sum(-1)
    np.testing.assert_allclose(found["sum_abs_is_dev"], expected, rtol=1e-5)


def tensors(given: dict[str, Any], dtype: torch.dtype) -> CheckedInputs:
    """Return the arguments as tensors, as on a device; on the host they would become float32 arrays."""
    inputs = check_inputs(**given).mapped(partial(torch.as_tensor, device="cuda" if HAS_DEVICE else "cpu"))
    inputs.logprobs.update({name: array.to(dtype) for name, array in inputs.logprobs.items()})
    return inputs


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_any_floating_dtype_is_read(dtype: torch.dtype) -> None:
    inputs = tensors(batch(seed=8, n_sequences=2, odd=0.1), dtype)
    found = statistics.columns_of_inputs(inputs, backend="triton").numpy()
    assert_equal(found, reduce_block(inputs, clip=DEFAULT_CLIP))


@pytest.mark.usefixtures("short_stretches")
def test_any_strides_are_supported() -> None:
    inputs = tensors(batch(seed=9, n_sequences=2) | labels((2, 12), per_token=True), torch.float32)
    strided = inputs.mapped(lambda array: array.repeat_interleave(2, -1)[..., ::2] if array.ndim == 2 else array)
    time_first = inputs.mapped(lambda array: array.T.contiguous().T if array.ndim == 2 else array)
    found, *others = (statistics.columns_of_inputs(given, backend="triton") for given in (inputs, strided, time_first))
    for other in others:
        equal(other, found)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("shape", [(0, 5), (2, 0)], ids=["no sequences", "no positions"])
def test_an_empty_batch_is_allowed(shape: tuple[int, int]) -> None:
    logp = np.zeros(shape)
    assert_equal(*both({"rollout_logprobs": logp, "logprobs": logp, "mask": np.zeros(shape), "advantages": logp}))


def test_one_policy_has_no_pair_and_needs_no_kernel() -> None:
    logp = np.full((2, 3), -1.0)
    equal(*both({"logprobs": logp, "mask": logp < 0}))


@pytest.mark.parametrize("with_advantage", ["none", "sequence", "token"])
def test_joining_the_stretches_reads_no_value_of_the_device(with_advantage: str) -> None:
    shape, n_stretches = (4, 4096), 2
    # Tensors of this device have no values: reading one raises.
    given = {name: torch.empty(shape, device="meta") for name in LOGPROBS}
    if with_advantage != "none":
        given["advantages"] = torch.empty(shape if with_advantage == "token" else shape[:1], device="meta")
    versions = torch.empty(shape, dtype=torch.int64, device="meta")
    inputs = check_inputs(**given, versions=versions, mask=torch.empty(shape, dtype=torch.bool, device="meta"))
    from trmon_client.core.triton_columns import kernel, reduce

    summed = kernel.names_of_sums(LOGPROBS, advantages=with_advantage)
    n_rows = len(summed) + len(kernel.names_of_maxima(LOGPROBS)) + 1
    stored = reduce.StretchResults(
        torch.empty((n_rows, shape[0], n_stretches), dtype=torch.float64, device="meta"),
        torch.empty((kernel.N_SHARDS, 3, N_BINS), dtype=torch.int32, device="meta"),
    )
    found, expected = reduce.columns_of_stretches(inputs, stored), reduce_block(inputs, clip=DEFAULT_CLIP)
    assert {name: (array.shape, array.dtype) for name, array in found.items()} == {
        name: (array.shape, array.dtype) for name, array in expected.items()
    }


def test_kernels_are_launched_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []

    def device(place: Any) -> Any:
        entered.append(place)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "device", device)
    with on_device_of(SimpleNamespace(is_cuda=True, device="cuda:1"))(), on_device_of(torch.zeros(1))():
        assert entered == ["cuda:1"]


PROCESS = """
import sys
import numpy as np
from trmon_client.core import statistics

logp = np.full((1, 2), -1.0)
given = {"rollout_logprobs": logp, "logprobs": logp, "mask": logp < 0}
statistics.columns(**given)
print(sorted({"torch", "triton"} & sys.modules.keys()))
try:
    statistics.columns(**given, backend="triton")
except ValueError as error:
    print(error)
"""


def test_triton_is_imported_on_request_only_and_takes_no_host_arrays_then() -> None:
    assert without_interpreter(PROCESS) == [
        "[]",
        "the arguments are on the host; backend='triton' takes CUDA tensors, 'blocks' takes both",
    ]
