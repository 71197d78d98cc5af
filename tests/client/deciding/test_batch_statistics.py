"""The statistics of a batch: by compiled kernels where the trainer asked for them and they work, else without."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client import batch_statistics
from trmon_client.batch_statistics import BatchStatistics, GivenLogits
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.statistics import columns_of_inputs


@dataclass
class Kernels:
    """Kernels of a device that fail, and what is tried."""

    error: Exception
    tried: list[str] = field(default_factory=list)

    def reduce(self, inputs: CheckedInputs, *, backend: str) -> Columns:
        self.tried.append(backend)
        if backend == "triton":
            raise self.error
        return columns_of_inputs(inputs)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Take tensors of the host for tensors of a device, on which no kernel can be compiled."""
    found = Kernels(RuntimeError("no C compiler"))
    monkeypatch.setattr(batch_statistics, "_is_on_cuda", lambda array: isinstance(array, torch.Tensor))
    monkeypatch.setattr(batch_statistics, "columns_of_inputs", found.reduce)
    return found


def inputs_of(logp: Any) -> CheckedInputs:
    given = check_inputs(rollout_logprobs=logp, logprobs=logp, mask=logp < 0)
    return given.mapped(torch.as_tensor) if isinstance(logp, torch.Tensor) else given


BATCH = -torch.rand((2, 3), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("error", [RuntimeError("no C compiler"), ValueError("cannot be accessed")], ids=str)
def test_a_kernel_that_fails_is_tried_once_and_named(error: Exception, kernels: Kernels) -> None:
    kernels.error = error
    warnings: list[tuple[str, str]] = []
    statistics = BatchStatistics(compiled=True, warn=lambda *warning: warnings.append(warning))
    found = [statistics.of(inputs_of(BATCH), logits=GivenLogits()) for _ in range(2)]
    assert [columns.n_sequences for columns in found] == [2, 2]
    assert kernels.tried == ["triton", "blocks", "blocks"]
    expected = f"compiled kernels are not used on the device: {type(error).__name__}: {error}"
    assert [text for _, text in warnings] == [expected]


def test_a_kernel_that_lacks_memory_is_tried_again(kernels: Kernels) -> None:
    kernels.error = torch.OutOfMemoryError("no room")
    warnings: dict[str, str] = {}
    statistics = BatchStatistics(compiled=True, warn=warnings.setdefault)
    for _ in range(2):
        statistics.of(inputs_of(BATCH), logits=GivenLogits())
    assert kernels.tried == ["triton", "blocks", "triton", "blocks"]
    assert len(warnings) == 1


def test_without_a_request_no_kernel_is_tried(kernels: Kernels) -> None:
    BatchStatistics(compiled=False, warn=pytest.fail).of(inputs_of(BATCH), logits=GivenLogits())
    assert kernels.tried == ["blocks"]


def test_a_wrong_argument_is_no_failure_of_the_kernel(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_statistics, "columns_of_inputs", lambda inputs, **_: columns_of_inputs(inputs))
    statistics = BatchStatistics(compiled=True, warn=pytest.fail)
    with pytest.raises(ValueError, match="tv needs rollout_logits"):
        statistics.of(inputs_of(BATCH), logits=GivenLogits(tv=True))
    assert not kernels.tried


@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        (torch.bfloat16, {}, "triton"),
        (torch.float32, {"tv": True}, "triton"),
        (torch.float64, {}, "blocks"),
        (torch.float8_e4m3fn, {}, "blocks"),
        (torch.float32, {"sum_pi_squared": True}, "blocks"),
    ],
    ids=str,
)
def test_logits_that_the_kernel_cannot_read_are_left_to_torch(
    dtype: torch.dtype, options: dict[str, Any], expected: str, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    monkeypatch.setattr(batch_statistics, "columns_of_inputs", lambda inputs, **_: columns_of_inputs(inputs))
    monkeypatch.setattr(
        batch_statistics, "attach_divergences", lambda columns, *, backend, **_: used.append(backend) or columns
    )
    logits = torch.zeros(2, 3, 5).to(dtype)
    statistics = BatchStatistics(compiled=True, warn=pytest.fail)
    statistics.of(inputs_of(BATCH), logits=GivenLogits(rollout_logits=logits, logits=logits, **options))
    assert used == [expected]
    assert not kernels.tried


def test_a_batch_of_the_host_is_reduced_without_kernels_and_said_so_once(kernels: Kernels) -> None:
    warnings: dict[str, str] = {}
    statistics = BatchStatistics(compiled=True, warn=warnings.setdefault)
    for _ in range(2):
        statistics.of(inputs_of(-np.ones((2, 3))), logits=GivenLogits())
    assert kernels.tried == ["blocks", "blocks"]
    assert list(warnings.values()) == [batch_statistics.NOT_ON_CUDA]
