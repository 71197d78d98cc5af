"""What the Triton kernels share: launches go to the device of the tensors."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.core import triton_device  # noqa: F401, before Triton
from trmon_client.core.triton_functions import on_device_of


def test_kernels_are_launched_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []

    def device(place: Any) -> Any:
        entered.append(place)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "device", device)
    with on_device_of(SimpleNamespace(is_cuda=True, device="cuda:1")), on_device_of(torch.zeros(1)):
        assert entered == ["cuda:1"]
