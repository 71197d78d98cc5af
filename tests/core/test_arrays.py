"""The array functions of numpy and torch, and the conversions between their arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core import arrays
from trmon_client.core.arrays import NUMPY, HostCopy, Transfer, dtype_kind, to_computable, torch_arrays

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


def test_the_kind_of_an_array_follows_from_its_dtype() -> None:
    of_numpy = [np.bool_, np.int8, np.uint8, np.float16, np.complex64]
    of_torch = [torch.bool, torch.int64, torch.uint8, torch.bfloat16, torch.complex64]
    assert [dtype_kind(np.zeros(1, dtype)) for dtype in of_numpy] == [*"biifc"]
    assert [dtype_kind(torch.zeros(1, dtype=dtype)) for dtype in of_torch] == [*"biifc"]


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


@dataclass
class LateDevice:
    """A device that copies only when it is awaited, as CUDA may."""

    packed: Any = None
    host: Any = None
    n_copies: int = 0

    def start(self, packed: Any) -> HostCopy:
        self.n_copies += 1
        self.packed, self.host = packed, torch.zeros_like(packed)
        return HostCopy(self.host, self)

    def synchronize(self) -> None:
        self.host.copy_(self.packed)


TENSORS = [
    torch.tensor([1.5, -2.0], dtype=torch.float32),
    torch.tensor([[1, 2], [3, -4]]),
    torch.zeros(0, dtype=torch.float64),
    torch.tensor([True, False, True]),
    torch.arange(6, dtype=torch.float64)[::2],
    torch.tensor(7.25, requires_grad=True),
]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> LateDevice:
    device = LateDevice()
    monkeypatch.setattr(arrays, "to_pinned", device.start)
    return device


def test_tensors_of_several_widths_are_copied_at_once(device: LateDevice) -> None:
    transfer = Transfer.begin(TENSORS)
    assert device.n_copies == 1
    assert not device.host.any()
    for found, tensor in zip(transfer.wait(), TENSORS, strict=True):
        np.testing.assert_array_equal(found, tensor.detach().numpy())
        assert found.dtype == tensor.detach().numpy().dtype


def test_later_changes_of_the_trainer_do_not_affect_a_transfer() -> None:
    tensor = torch.ones(2)
    transfer = Transfer.begin([tensor])
    tensor.zero_()
    assert transfer.wait()[0].tolist() == [1.0, 1.0]


def test_other_values_keep_their_positions() -> None:
    array = np.arange(2)
    found = Transfer.begin([array, torch.ones(1), "a", None, torch.zeros(1)]).wait()
    assert found[0] is array
    assert found[2:4] == ["a", None]
    assert [float(found[i][0]) for i in (1, 4)] == [1.0, 0.0]


def test_values_without_a_tensor_need_no_copy(device: LateDevice) -> None:
    assert Transfer.begin([1, 2.0]).wait() == [1, 2.0]
    assert device.n_copies == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_copy_from_cuda_does_not_wait_until_it_is_awaited() -> None:
    tensors = [tensor.detach().cuda() for tensor in TENSORS]
    torch.cuda.set_sync_debug_mode("error")
    try:
        transfer = Transfer.begin(tensors)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert transfer.bundles[0].copy.host.is_pinned()
    for found, tensor in zip(transfer.wait(), TENSORS, strict=True):
        np.testing.assert_array_equal(found, tensor.detach().numpy())
