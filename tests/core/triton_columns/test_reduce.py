"""The Triton kernel of the columns: its interpreted results against the other reductions, and its compilation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.core import golden, reference
from tests.core.agreement import agree, same
from tests.core.batches import GIVES, ODD, POISON, batch
from trmon_client.core import statistics
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import N_BINS
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.reduction.block_reduction import reduce_block
from trmon_client.core.reduction.ppo_clipping import DEFAULT_CLIP

# Read when Triton is imported, which only the tests of its kernels do in this process, with the same value.
os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernel needs Triton, which is published for Linux only")

SEVERAL_TILES = 2_300
"""A horizon of three tiles, of which the last is partly filled."""
LOGPROBS = GIVES["all three"]


@pytest.fixture(autouse=True)
def _ignore_numpy_warnings() -> Iterator[None]:
    """Ignore warnings of numpy, which the interpreter uses and a compiled kernel does not emit."""
    with np.errstate(all="ignore"):
        yield


def widened(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with log-probs in float64, which every other reduction keeps."""
    return {name: np.asarray(value, np.float64) if name in LOGPROBS else value for name, value in given.items()}


def both(given: dict[str, Any], **options: Any) -> tuple[Columns, Columns]:
    """Return the columns of the kernel and of the blocks."""
    kernel = statistics.columns(**given, **options, backend="triton")
    return kernel, statistics.columns(**widened(given), **options)


def assert_equal(found: Columns, expected: Columns) -> None:
    """Compare columns and histograms up to the order of summation, with their dtypes."""
    expected = expected.numpy()
    same(found, expected)
    assert {name: array.dtype for name, array in found.items()} == {n: a.dtype for n, a in expected.items()}
    assert list(found.histograms) == list(expected.histograms)


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


@pytest.mark.slow
@pytest.mark.parametrize("case", golden.cases())
def test_columns_equal_the_golden_values(case: str) -> None:
    found = statistics.columns(**golden.inputs(case), backend="triton")
    agree(found, golden.columns(case))


@pytest.mark.parametrize("names", GIVES.values(), ids=GIVES)
@pytest.mark.parametrize("noise", [1e-6, 0.3, 8.0], ids=lambda noise: f"noise {noise}")
@pytest.mark.parametrize("odd", [0.0, 0.1], ids=["clean", "poisoned"])
def test_columns_equal_the_plain_reference_and_the_blocks(names: tuple[str, ...], noise: float, odd: float) -> None:
    inputs = batch(seed=7, n_sequences=4, noise=noise, odd=odd)
    given = {name: inputs[name] for name in names}
    advantages = np.random.default_rng(8).normal(size=inputs["mask"].shape)
    found, expected = both({**given, "mask": inputs["mask"], "advantages": advantages})
    assert_equal(found, expected)
    agree(found, reference.columns(given, inputs["mask"], advantages))


@pytest.mark.parametrize("names", [GIVES["rollout and old"], LOGPROBS], ids=["one pair", "three pairs"])
@pytest.mark.parametrize("odd", [0.0, 0.1], ids=["clean", "poisoned"])
def test_the_tiles_of_a_sequence_are_joined(names: tuple[str, ...], odd: float) -> None:
    inputs = batch(seed=1, n_sequences=3, horizon=SEVERAL_TILES, noise=1.0, odd=odd)
    # Whole tiles are empty: the second of one sequence, all of another.
    inputs["mask"][0, 1024:2048] = False
    inputs["mask"][1] = False
    given = {name: inputs[name] for name in names} | labels(inputs["mask"].shape, per_token=True)
    assert_equal(*both({**given, "mask": inputs["mask"]}))


@pytest.mark.parametrize("horizon", [1, 255, 256, 257, 1024])
def test_any_horizon_is_supported(horizon: int) -> None:
    assert_equal(*both(batch(seed=2, n_sequences=1, horizon=horizon)))


def test_the_first_of_equal_largest_log_ratios_is_named() -> None:
    rollout = np.full((2, SEVERAL_TILES), -1.0)
    new = rollout.copy()
    new[0, [5, 1500, 2200]] -= 0.5
    new[1, [1030, 2299]] -= 0.25
    found = statistics.columns(rollout_logprobs=rollout, logprobs=new, mask=rollout < 0, backend="triton")
    assert found["argmax_abs_d"].tolist() == [5, 1030]


@pytest.mark.parametrize("per_token", [False, True], ids=["of sequences", "of tokens"])
def test_labels_are_those_of_the_blocks(per_token: bool) -> None:
    inputs = batch(seed=3, n_sequences=3, odd=0.1)
    inputs["mask"][0] = False
    assert_equal(*both(inputs | labels(inputs["mask"].shape, per_token=per_token)))


def test_the_clip_range_turns_and_a_reference_policy_are_respected() -> None:
    inputs = batch(seed=4, n_sequences=2, noise=0.3)
    given = inputs | {"advantages": np.ones(2), "ref_logprobs": inputs["old_logprobs"] - 0.1}
    found, expected = both(given, clip_low=0.05, clip_high=0.4, turn_ids=np.arange(12) // 4 * np.ones((2, 1), int))
    assert_equal(found, expected)
    assert found.turns is not None
    assert expected.turns is not None
    assert {name: array.tolist() for name, array in found.turns.by_name.items()} == {
        name: array.tolist() for name, array in expected.turns.by_name.items()
    }


def test_ragged_log_probs_are_supported() -> None:
    lengths = (3, 0, 200)
    given = {name: [np.linspace(-2.0, -1.0 + i / 9, n) for n in lengths] for i, name in enumerate(LOGPROBS)}
    assert_equal(statistics.columns(**given, backend="triton"), statistics.columns(**given))


def test_extreme_values_are_judged_as_by_the_blocks() -> None:
    extremes = (*POISON, *ODD, -999.9999, 1e-4, 20.5)
    inputs = batch(seed=5, n_sequences=len(extremes))
    for position, name in enumerate(LOGPROBS):
        inputs[name][:, position * 4] = extremes
    assert_equal(*both(inputs))


def test_values_under_the_mask_are_ignored() -> None:
    inputs = batch(seed=6, n_sequences=2)
    poisoned = {name: np.where(inputs["mask"], inputs[name], np.nan) for name in LOGPROBS}
    found, expected = (statistics.columns(**given, backend="triton") for given in (inputs, {**inputs, **poisoned}))
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in expected.items()}


def test_k3_is_accurate_at_the_healthy_scale() -> None:
    random = np.random.default_rng(0)
    rollout = (-random.random((2, 1200)) * 1e-2 - 2e-4).astype(np.float32)
    new = (rollout + 1e-4 * random.choice([-1, 1], rollout.shape)).astype(np.float32)
    found = statistics.columns(rollout_logprobs=rollout, logprobs=new, mask=rollout < 0, backend="triton")
    d = new.astype(np.float64) - rollout
    np.testing.assert_allclose(found["total_sum_k3"], (d**2 / 2 + d**3 / 6 + d**4 / 24).sum(-1), rtol=1e-9)


def tensors(given: dict[str, Any], dtype: torch.dtype) -> CheckedInputs:
    """Return the arguments as tensors, as on a device; on the host they would become float32 arrays."""
    inputs = check_inputs(**given).mapped(torch.as_tensor)
    inputs.logprobs.update({name: array.to(dtype) for name, array in inputs.logprobs.items()})
    return inputs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_any_floating_dtype_is_read(dtype: torch.dtype) -> None:
    inputs = tensors(batch(seed=8, n_sequences=3, odd=0.1), dtype)
    found = statistics.columns_of_inputs(inputs, backend="triton")
    assert_equal(found, reduce_block(inputs, clip=DEFAULT_CLIP))


def test_any_strides_are_supported() -> None:
    inputs = tensors(batch(seed=9, n_sequences=2) | labels((2, 12), per_token=True), torch.float32)
    strided = inputs.mapped(lambda array: array.repeat_interleave(2, -1)[..., ::2] if array.ndim == 2 else array)
    time_first = inputs.mapped(lambda array: array.T.contiguous().T if array.ndim == 2 else array)
    found, *others = (statistics.columns_of_inputs(given, backend="triton") for given in (inputs, strided, time_first))
    for other in others:
        assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in other.items()}


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)], ids=["no sequences", "no positions"])
def test_an_empty_batch_is_allowed(shape: tuple[int, int]) -> None:
    logp = np.zeros(shape)
    assert_equal(*both({"rollout_logprobs": logp, "logprobs": logp, "mask": np.zeros(shape), "advantages": logp}))


def test_one_policy_has_no_pair_and_needs_no_kernel() -> None:
    logp = np.full((2, 3), -1.0)
    found, expected = both({"logprobs": logp, "mask": logp < 0})
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in expected.items()}


def test_joining_the_tiles_reads_no_value_of_the_device() -> None:
    shape, n_tiles = (4, 2048), 2
    # Tensors of this device have no values: reading one raises.
    given = {name: torch.empty(shape, device="meta") for name in (*LOGPROBS, "advantages")}
    versions = torch.empty(shape, dtype=torch.int64, device="meta")
    inputs = check_inputs(**given, versions=versions, mask=torch.empty(shape, dtype=torch.bool, device="meta"))
    from trmon_client.core.triton_columns import kernel, reduce

    tiles = reduce.TileResults(
        torch.empty((len(kernel.SEQUENCE_ROWS), shape[0], n_tiles), dtype=torch.float64, device="meta"),
        torch.empty((3, len(kernel.PAIR_ROWS), shape[0], n_tiles), dtype=torch.float64, device="meta"),
        torch.empty((3, N_BINS), dtype=torch.int64, device="meta"),
    )
    found, expected = reduce.columns_of_tiles(inputs, tiles), reduce_block(inputs, clip=DEFAULT_CLIP)
    assert {name: (array.shape, array.dtype) for name, array in found.items()} == {
        name: (array.shape, array.dtype) for name, array in expected.items()
    }


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


def run(code: str) -> list[str]:
    """Return the lines that a process without the interpreter prints."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_triton_is_imported_on_request_only_and_takes_no_host_arrays_then() -> None:
    assert run(PROCESS) == [
        "[]",
        "the arguments are on the host; backend='triton' takes CUDA tensors, 'blocks' takes both",
    ]


def test_an_unknown_backend_is_rejected_by_name() -> None:
    logp = np.full((1, 2), -1.0)
    with pytest.raises(ValueError, match=re.escape("backend is 'cuda'; expected 'blocks' or 'triton'")):
        statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=logp < 0, backend="cuda")  # type: ignore[arg-type]


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from trmon_client.core.triton_columns import kernel, reduce

constants = {"THREE": True, "HAS_ADVANTAGES": True, "CLIP_LOW": 0.2, "CLIP_HIGH": 0.2, "TILE": reduce.MIN_TILE}
logprobs = ("first_ptr", "second_ptr", "third_ptr")
for dtype in ("bf16", "fp16", "fp32", "fp64"):
    types = dict.fromkeys(kernel.columns_kernel.arg_names, "i64") | dict.fromkeys(constants, "constexpr")
    types |= dict.fromkeys(logprobs, f"*{dtype}") | dict.fromkeys(("n_sequences", "horizon"), "i32")
    types |= {"mask_ptr": "*u8", "advantage_ptr": "*fp32", "count_ptr": "*i64"}
    types |= dict.fromkeys(("edges_ptr", "sequence_ptr", "pair_ptr"), "*fp64")
    source = ASTSource(kernel.columns_kernel, signature=types, constexprs=constants)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": reduce.N_WARPS})
    print(dtype, len(built.asm["cubin"]) > 0)
"""


@pytest.mark.slow
def test_the_kernel_compiles_without_a_device() -> None:
    assert run(COMPILE) == ["bf16 True", "fp16 True", "fp32 True", "fp64 True"]
