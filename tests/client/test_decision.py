"""Decisions as the trainer uses them: masks of its own kind, and gradients that stay finite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.trainer import batch, settings
from trmon_client.decision import Decision
from trmon_client.monitor import Monitor

MASK = [True, False, False, True]


def decide(tmp_path: Path, arguments: dict[str, Any], *, mode: str = "enforce") -> Decision:
    monitor = Monitor(settings(tmp_path, mode=mode))
    decision = monitor.log_batch(step=0, **arguments)
    monitor.close()
    return decision


def tensors() -> dict[str, Any]:
    """Four sequences: the second is off-policy, and mu of the third is NaN."""
    return {name: torch.from_numpy(array) for name, array in batch(far=(1,), dead=(2,)).items()}


def loss(decision: Decision, mu: torch.Tensor, pi: torch.Tensor) -> torch.Tensor:
    """The loss of the two lines."""
    per_sequence_loss = -(pi - mu).exp().sum(-1)
    return torch.where(decision.mask, per_sequence_loss, 0).sum() / len(decision.mask)


def test_gradients_are_finite_when_mu_of_a_rejected_row_is_nan(tmp_path: Path) -> None:
    given = tensors()
    mu, pi = given["rollout_logprobs"], given["logprobs"].requires_grad_()
    decision = decide(tmp_path, given)
    assert decision.mask.tolist() == MASK

    loss(decision, decision.clean(mu, pi), pi).backward()
    assert pi.grad is not None
    assert pi.grad.isfinite().all()
    assert (pi.grad[1:3] == 0).all()
    assert (pi.grad[[0, 3]] != 0).all()


def test_gradients_are_not_finite_without_clean(tmp_path: Path) -> None:
    given = tensors()
    mu, pi = given["rollout_logprobs"], given["logprobs"].requires_grad_()
    loss(decide(tmp_path, given), mu, pi).backward()
    assert pi.grad is not None
    assert pi.grad[2].isnan().all()


def test_clean_changes_rejected_rows_only_and_nothing_in_observe(tmp_path: Path) -> None:
    given = tensors()
    mu, pi = given["rollout_logprobs"], given["logprobs"]
    cleaned = decide(tmp_path, given).clean(mu, pi)
    assert torch.equal(cleaned[[0, 3]], mu[[0, 3]])
    assert torch.equal(cleaned[1:3], pi[1:3])
    assert decide(tmp_path, given, mode="observe").clean(mu, pi) is mu


def test_clean_keeps_the_dtype_of_mu_and_takes_numpy_and_lists(tmp_path: Path) -> None:
    given = tensors()
    decision = decide(tmp_path, given)
    half = given["rollout_logprobs"].bfloat16()
    assert decision.clean(half, given["logprobs"]).dtype == torch.bfloat16
    arrays = batch(far=(1,), dead=(2,))
    cleaned = decision.clean(arrays["rollout_logprobs"], arrays["logprobs"])
    assert np.isfinite(cleaned).all()
    rows = decision.clean(list(given["rollout_logprobs"]), list(given["logprobs"]))
    assert torch.equal(torch.stack(rows), decision.clean(given["rollout_logprobs"], given["logprobs"]))


def test_clean_with_shapes_that_do_not_fit_returns_mu(tmp_path: Path) -> None:
    decision = decide(tmp_path, tensors())
    mu = torch.zeros(3, 6)
    assert decision.clean(mu, torch.zeros(3, 6)) is mu


KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda array: array,
    "float32 tensors": lambda array: torch.from_numpy(array).float(),
    "float16 tensors that require grad": lambda array: torch.from_numpy(array).half().requires_grad_(),
    "bfloat16 tensors": lambda array: torch.from_numpy(array).bfloat16(),
    "non-contiguous tensors": lambda array: torch.from_numpy(np.repeat(array, 2, axis=1))[:, ::2],
    "lists of tensors": lambda array: list(torch.from_numpy(array)),
    "lists of arrays": list,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_masks_are_of_the_kind_of_the_inputs(tmp_path: Path, kind: Callable[[np.ndarray], Any], mode: str) -> None:
    given = {name: kind(array) for name, array in batch(dead=(1, 2)).items()}
    decision = decide(tmp_path, given | {"mask": given["mask"]}, mode=mode)
    first = given["logprobs"][0] if isinstance(given["logprobs"], list) else given["logprobs"]
    for mask in (decision.mask, decision.accepted):
        assert isinstance(mask, type(first.detach()) if isinstance(first, torch.Tensor) else np.ndarray)
        assert mask.dtype in (torch.bool, np.dtype(bool))
        assert mask.shape == (4,)
    assert decision.accepted[1:3].tolist() == [False, False]
    assert decision.mask[1:3].tolist() == [mode == "observe"] * 2


def test_no_sequences_give_an_empty_mask(tmp_path: Path) -> None:
    decision = decide(tmp_path, {name: array[:0] for name, array in batch().items()})
    assert decision.mask.shape == (0,)
    assert np.isnan(decision.mask_rate)


def test_what_token_policies_will_give_is_none(tmp_path: Path) -> None:
    decision = decide(tmp_path, batch())
    assert (decision.token_mask, decision.weights, decision.advice) == (None, None, None)
