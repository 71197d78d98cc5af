"""Tensors of a device: `log_batch` reads none of their values, so it never waits for the device.

Tensors of the `meta` device have no values: whatever would read one raises. With a card the same calls run on CUDA
under the mode of torch that raises where the host would wait.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.client.trainer import settings
from tests.core.agreement import agree
from trmon_client.monitor import Monitor

B, T, V = 5, 12, 50
CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))
DEVICES = ["meta", CUDA]

WAITING = frozenset(
    (
        *("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero", "masked_select", "argwhere"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "repeat_interleave.Tensor"),
    )
)
"""Operators that read a value from a device, or compute the shape of their result there."""


class NeverWaits(TorchDispatchMode):
    """Raises where this thread would wait for a device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in WAITING or f"{name}.{func._overloadname}" in WAITING:
            raise AssertionError(f"{func} waits for the device")
        if name.startswith("index") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for index in (args[1] if isinstance(args[1], (list, tuple)) else ())
        ):
            raise AssertionError(f"{func} by booleans waits for the device")
        found = func(*args, **kwargs)
        if name in ("_to_copy", "copy_") and _leaves_its_device(args, found):
            is_waited_for = not (kwargs.get("non_blocking", False) or (name == "copy_" and len(args) > 2 and args[2]))
            assert not is_waited_for, f"{func} from one device to another waits"
        return found


def _leaves_its_device(args: Any, found: Any) -> bool:
    return len({value.device for value in (*args[:2], found) if isinstance(value, torch.Tensor)}) > 1


@contextmanager
def never_waiting(device: str) -> Iterator[None]:
    """Raise where the calling thread waits for the device."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        with NeverWaits():
            yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def batch(device: str) -> dict[str, Any]:
    """Return three policies and all labels on the device."""
    random = np.random.default_rng(0)
    rollout = -random.exponential(1.0, (B, T)).astype(np.float32)
    given = {
        "rollout_logprobs": rollout,
        "old_logprobs": rollout - np.float32(0.01),
        "logprobs": rollout - np.float32(0.02),
        "mask": random.random((B, T)) < 0.8,
        "advantages": random.normal(size=(B, T)).astype(np.float32),
        "versions": random.integers(0, 5, (B, T)),
        "rewards": random.random(B),
        "group_ids": np.arange(B),
    }
    return {name: torch.from_numpy(array).to(device) for name, array in given.items()}


def labels_of_the_host(device: str) -> dict[str, Any]:
    """Return the same with labels on the host, as lists and arrays."""
    rows = {"rewards": [0.5] * B, "group_ids": [f"prompt {i}" for i in range(B)], "versions": np.arange(B)}
    return batch(device) | rows | {"advantages": np.ones(B)}


def short_floats(device: str) -> dict[str, Any]:
    """Return log-probs in bfloat16, and a mask of numbers."""
    given = {name: value.bfloat16() for name, value in batch(device).items() if name.endswith("logprobs")}
    return given | {"mask": torch.ones((B, T), device=device)}


def packed(device: str) -> dict[str, Any]:
    """Return the tokens one after the other, with offsets of the host."""
    given = {name: value.flatten() for name, value in batch(device).items() if value.ndim == 2}
    return given | {"cu_seqlens": np.arange(0, B * T + 1, T)}


def ragged(device: str) -> dict[str, Any]:
    """Return lists of sequences in which all tokens count."""
    given = {name: value for name, value in batch(device).items() if name.endswith(("logprobs", "advantages"))}
    return {name: [row[: T - i] for i, row in enumerate(value)] for name, value in given.items()}


def with_logits(device: str) -> dict[str, Any]:
    """Return the same with the logits of both sides."""
    logits = torch.zeros((B, T, V), device=device)
    return batch(device) | {"rollout_logits": logits, "logits": logits}


def with_turns(device: str) -> dict[str, Any]:
    """Return the same with two turns in every sequence."""
    return batch(device) | {"turn_offsets": [[0, T // 2]] * B}


def with_ids(device: str) -> dict[str, Any]:
    """Return the same with the ids of the tokens, and the ends of the responses as the engine names them."""
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, V, (B, T))).to(device)
    return batch(device) | {"token_ids": ids, "finish_reasons": ["stop", "length", None, "abort", "stop"]}


TURNS = {"name": "turns", "criteria": [], "turns": [{"statistic": "turn_mean_k3", "upper": 0.01}]}
FORMS = [batch, labels_of_the_host, short_floats, packed, ragged, with_logits, with_turns, with_ids]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_logged_and_decided_on_the_device(form: Any, mode: str, device: str, tmp_path: Path) -> None:
    given = form(device)
    with Monitor(settings(tmp_path, mode=mode)) as monitor, never_waiting(device):
        scalars = {"grad_norm": torch.ones((), device=device), "lr": 1e-6}
        decision = monitor.log_batch(step=0, scalars=scalars, trainer_version=5, **given)
        assert decision.columns is not None, "log_batch failed"
        assert {array.device.type for array in (*decision.columns.arrays, decision.mask, decision.accepted)} == {device}
        assert tuple(decision.mask.shape) == (B,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("form", FORMS)
def test_compiled_kernels_find_the_same_without_waiting(form: Any, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the kernels need Triton")
    given = form("cuda")
    with Monitor(settings(tmp_path / "plain")) as plain, Monitor(settings(tmp_path / "fused", triton=True)) as fused:
        expected = plain.log_batch(step=0, **given).columns
        for step in range(4):  # imports, compiles the columns, then the divergences; each by a thread
            with never_waiting("cuda"):
                found = fused.log_batch(step=step, **given).columns
            for thread in threading.enumerate():
                if thread.name == "trmon-compiler":
                    thread.join()
    agree(found.numpy(), dict(expected.numpy()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", [batch, short_floats, packed, ragged, with_ids])
def test_the_recorder_holds_a_batch_of_the_device(form: Any, device: str, tmp_path: Path) -> None:
    given, recordings = form(device), tmp_path / "recordings"
    with Monitor(settings(tmp_path, record_dir=recordings)) as monitor, never_waiting(device):
        monitor.log_batch(step=0, **given)
        recorder = monitor._current_session()._recorder
        assert [held.entry.step for held in recorder._held] == [0]
    assert len(list(recordings.rglob("recording.json"))) == (device == "cuda")


MASKED = [*itertools.product(["tis", "icepop", "m2po", "gspo"], [batch, packed, ragged]), (TURNS, with_turns)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("policy", "form"), MASKED)
def test_tokens_are_masked_and_weighted_on_the_device(policy: Any, form: Any, device: str, tmp_path: Path) -> None:
    given = form(device)
    with Monitor(settings(tmp_path, mode="enforce", policy=policy)) as monitor, never_waiting(device):
        decision = monitor.log_batch(step=0, **given)
        cleaned = decision.clean(given["rollout_logprobs"], given["logprobs"])
        for tokens in (decision.token_mask, decision.weights, cleaned):
            assert {row.device.type for row in tokens} == {device}
        assert (decision.turns is None) == (policy is not TURNS)
        assert decision.turns is None or decision.turns.accepted.device.type == device


@pytest.mark.parametrize(
    "wait",
    [
        lambda tensor: tensor[tensor > 0],
        lambda tensor: tensor.sum().item(),
        lambda tensor: bool(tensor.any()),
        lambda tensor: tensor.nonzero(),
        lambda tensor: tensor.to("meta"),
        lambda tensor: torch.unique(tensor),
    ],
)
def test_a_wait_for_the_device_is_detected(wait: Any) -> None:
    with pytest.raises(AssertionError, match="waits"), never_waiting("cpu"):
        wait(torch.ones(3))
