"""Transfers: one copy for each device, read only after the device has finished it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core.arrays import HostCopy, Transfer


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


def test_tensors_of_several_widths_are_copied_at_once() -> None:
    device = LateDevice()
    transfer = Transfer.begin(TENSORS, start=device.start)
    assert device.n_copies == 1
    for found, tensor in zip(transfer.wait(), TENSORS, strict=True):
        np.testing.assert_array_equal(found, tensor.detach().numpy())
        assert found.dtype == tensor.detach().numpy().dtype


def test_nothing_is_read_before_the_device_has_finished() -> None:
    device = LateDevice()
    transfer = Transfer.begin([torch.ones(3)], start=device.start)
    assert not device.host.any()
    assert transfer.wait()[0].tolist() == [1.0, 1.0, 1.0]


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


def test_without_tensors_nothing_is_copied() -> None:
    device = LateDevice()
    assert Transfer.begin([1, 2.0], start=device.start).wait() == [1, 2.0]
    assert Transfer.begin([], start=device.start).wait() == []
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
