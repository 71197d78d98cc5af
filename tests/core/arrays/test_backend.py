"""The array functions of numpy and torch, and the conversions between their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core.arrays import NUMPY, dtype_kind, to_computable, torch_arrays

CPU = torch.device("cpu")


def test_a_cpu_tensor_is_viewed_and_not_copied() -> None:
    tensor = torch.ones(3, requires_grad=True)
    assert np.shares_memory(to_computable(tensor, None), tensor.detach().numpy())


ODD_ARRAYS = {
    "reversed": np.arange(3.0)[::-1],
    "read-only": np.broadcast_to(np.arange(3.0), (2, 3)),
    "big-endian": np.arange(3, dtype=">f4"),
    "a list": [1, 2],
}


@pytest.mark.parametrize("value", ODD_ARRAYS.values(), ids=ODD_ARRAYS)
def test_any_numpy_array_can_be_converted_to_torch(value: Any) -> None:
    found = to_computable(value, CPU)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), value)


KINDS = {
    "b": [np.bool_, torch.bool],
    "i": [np.int8, np.uint8, torch.uint8, torch.int64],
    "f": [np.float16, np.float64, torch.bfloat16, torch.float32],
    "c": [np.complex64, torch.complex64],
}


@pytest.mark.parametrize(("expected", "dtype"), [(name, dtype) for name, dtypes in KINDS.items() for dtype in dtypes])
def test_the_kind_of_an_array_follows_from_its_dtype(expected: str, dtype: Any) -> None:
    array = torch.zeros(1, dtype=dtype) if isinstance(dtype, torch.dtype) else np.zeros(1, dtype)
    assert dtype_kind(array) == expected


@pytest.mark.parametrize("length", [1, 2, 7, 8, 100])
@pytest.mark.parametrize("axis", [-1, -2])
def test_running_sums_of_torch_and_numpy_are_equal(length: int, axis: int) -> None:
    array = np.random.default_rng(length).normal(size=(2, length, 3) if axis == -2 else (2, 3, length))
    tensor = torch.from_numpy(array.copy())
    found = torch_arrays().running_sum(tensor, axis)
    np.testing.assert_allclose(found.numpy(), NUMPY.running_sum(array, axis), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_without_loss(dtype: Any) -> None:
    numbers = [0.0, -0.0, 1.0, -1.5, 3e-5, 6e4, float("inf"), -float("inf"), float("nan"), -9999.0]
    tensor = torch.tensor(numbers, dtype=dtype).repeat(3, 1)
    for given in (tensor, tensor.T, tensor[:, ::2], tensor.clone().requires_grad_()):
        found = to_computable(given, None)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, given.detach().float().numpy())
