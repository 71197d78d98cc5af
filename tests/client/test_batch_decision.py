"""Decisions as the trainer uses them: masks of the inputs' kind, and gradients that stay finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.trainer import batch, settings, spooled
from trmon_client.batch_decision import BatchDecision
from trmon_client.core import wire
from trmon_client.core.policies.policy import preset
from trmon_client.monitor import Monitor

MASK = [True, False, False, True]


def decide(tmp_path: Path, arguments: dict[str, Any], *, mode: str = "enforce", policy: Any = None) -> BatchDecision:
    monitor = Monitor(settings(tmp_path, mode=mode, policy=policy))
    decision = monitor.log_batch(step=0, **arguments)
    monitor.close()
    return decision


def tensors() -> dict[str, Any]:
    """Four sequences: the second is off-policy, and mu of the third is NaN."""
    return {name: torch.from_numpy(array) for name, array in batch(far=(1,), dead=(2,)).items()}


def loss(decision: BatchDecision, mu: torch.Tensor, pi: torch.Tensor) -> torch.Tensor:
    """Return the loss as the README computes it."""
    per_sequence_loss = -(pi - mu).exp().sum(-1)
    return torch.where(decision.mask, per_sequence_loss, 0).sum() / len(decision.mask)


def test_gradients_are_finite_when_mu_of_a_rejected_row_is_nan(tmp_path: Path) -> None:
    given = tensors()
    mu, pi = given["rollout_logprobs"], given["logprobs"].requires_grad_()
    decision = decide(tmp_path, given)
    assert decision.mask.tolist() == MASK

    loss(decision, decision.clean(mu, pi), pi).backward()
    assert pi.grad.isfinite().all()
    assert (pi.grad[1:3] == 0).all()
    assert (pi.grad[[0, 3]] != 0).all()


def test_clean_changes_rejected_rows_only_and_nothing_in_observe(tmp_path: Path) -> None:
    given = tensors()
    mu, pi = given["rollout_logprobs"], given["logprobs"]
    decision = decide(tmp_path, given)
    cleaned = decision.clean(mu, pi)
    assert torch.equal(cleaned[[0, 3]], mu[[0, 3]])
    assert torch.equal(cleaned[1:3], pi[1:3])
    assert decide(tmp_path, given, mode="observe").clean(mu, pi) is mu
    # The dtype of mu stays, arrays and lists of rows are cleaned alike, and what does not fit is returned.
    assert decision.clean(mu.bfloat16(), pi).dtype == torch.bfloat16
    assert decision.clean(mu.numpy(), pi.numpy()).tolist() == cleaned.tolist()
    assert torch.equal(torch.stack(decision.clean(list(mu), list(pi))), cleaned)
    misfit = torch.zeros(3, 6)
    assert decision.clean(misfit, misfit.clone()) is misfit


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
def test_masks_and_weights_are_like_the_inputs(tmp_path: Path, kind: Callable[[np.ndarray], Any], mode: str) -> None:
    given = {name: kind(array) for name, array in batch(dead=(1, 2)).items()}
    decision = decide(tmp_path, given, policy="tis", mode=mode)
    first = given["logprobs"][0]
    for mask in (decision.mask, decision.accepted):
        assert isinstance(mask, torch.Tensor) == isinstance(first, torch.Tensor)
        assert mask.dtype in (torch.bool, np.dtype(bool))
        assert mask.shape == (4,)
    assert decision.accepted.tolist() == [True, False, False, True]
    assert decision.mask.tolist() == ([True] * 4 if mode == "observe" else [True, False, False, True])
    for found, name in ((decision.token_mask, "bool"), (decision.weights, "float32")):
        assert isinstance(found, list) == isinstance(given["logprobs"], list)
        assert [str(row.dtype).split(".")[-1] for row in found] == [name] * 4
        assert [tuple(row.shape) for row in found] == [(6,)] * 4
        assert isinstance(found[0], torch.Tensor) == isinstance(first, torch.Tensor)


def test_a_token_policy_masks_and_weights_tokens_of_accepted_sequences(tmp_path: Path) -> None:
    given = tensors()
    decision = decide(tmp_path, given, policy="icepop")
    rho = (given["logprobs"] - given["rollout_logprobs"]).exp()
    rows = torch.tensor([True, True, False, True])[:, None]
    expected = rows & (rho >= 0.5) & (rho <= 5.0)
    assert decision.mask.tolist() == rows[:, 0].tolist()
    assert decision.token_mask.tolist() == expected.tolist()
    assert torch.allclose(decision.weights.double(), torch.where(expected, rho, 0.0), rtol=1e-6)
    assert (decision.token_mask.dtype, decision.weights.dtype) == (torch.bool, torch.float32)
    assert decision.signals["token_weight_mean"] == pytest.approx(rho[expected].sum().item() / 18)
    (report,) = [message for message in spooled(tmp_path) if isinstance(message, wire.Report)]
    assert report.policy == preset("icepop").hash
    assert wire.unpack_bits(report.accepted or b"", 4).tolist() == [True, True, False, True]
    np.testing.assert_allclose(wire.unpack_columns(report)["sum_token_weight"], decision.weights.sum(1), rtol=1e-6)


def test_in_observe_mode_every_token_of_the_trainers_mask_has_weight_1(tmp_path: Path) -> None:
    given = batch(far=(1,), dead=(2,))
    given["mask"][0, 3:] = 0
    decision = decide(tmp_path, given, policy="icepop", mode="observe")
    assert decision.token_mask.tolist() == (given["mask"] != 0).tolist()
    assert decision.weights.tolist() == given["mask"].tolist()
    assert not decision.tokens.mask[2].any()


@pytest.mark.parametrize("convert", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_the_trainer_may_change_token_masks(tmp_path: Path, convert: Callable[[np.ndarray], Any]) -> None:
    given = {name: convert(array) for name, array in batch().items()}
    given["mask"] = given["mask"] != 0
    decision = decide(tmp_path, given, mode="observe")
    decision.token_mask[:] = False
    assert given["mask"].all()


def test_without_token_rules_tokens_of_accepted_sequences_have_weight_1(tmp_path: Path) -> None:
    """A trainer that weights its loss keeps working when the service changes the policy."""
    decision = decide(tmp_path, tensors())
    assert decision.tokens is None
    assert decision.token_mask.tolist() == [[accepted] * 6 for accepted in MASK]
    assert decision.weights.tolist() == decision.token_mask.double().tolist()


def packed(convert: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """Three sequences of 6, 2 and 4 tokens; the second is off-policy, and mu of the third is NaN."""
    given = batch(3, far=(1,), dead=(2,))
    lengths = np.array([6, 2, 4])
    rows = np.arange(6) < lengths[:, None]
    return {name: convert(array[rows]) for name, array in given.items()} | {"cu_seqlens": [0, 6, 8, 12]}


@pytest.mark.parametrize("convert", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_packed_input_is_decided_cleaned_and_weighted(tmp_path: Path, convert: Callable[[np.ndarray], Any]) -> None:
    given = packed(convert)
    decision = decide(tmp_path, given, policy={"name": "p", "criteria": [FAR], "tokens": [TIS]})
    assert decision.mask.tolist() == [True, False, False]
    cleaned = decision.clean(given["rollout_logprobs"], given["logprobs"])
    assert cleaned.tolist() == [*given["rollout_logprobs"][:6].tolist(), *given["logprobs"][6:].tolist()]
    assert decision.token_mask.tolist() == [True] * 6 + [False] * 6
    assert (decision.weights > 0).tolist() == decision.token_mask.tolist()
    assert isinstance(decision.weights, type(given["logprobs"]))


FAR = {"statistic": "max_abs_d", "upper": 0.5}
TIS = {"rule": "tis", "upper": 2.0}


SOFT = {"name": "soft", "criteria": [{"statistic": "max_abs_d", "upper": 0.5}], "soft_tau": 2.0}
"""Row 1 of `tensors` has |d| of about 1: an excess of about 1."""


def test_a_soft_policy_weights_sequences_and_masks_only_what_has_no_weight(tmp_path: Path) -> None:
    given = tensors()
    decision = decide(tmp_path, given, policy=SOFT)
    largest = (given["logprobs"] - given["rollout_logprobs"]).abs().amax(-1)[1].item()
    expected = [1.0, math.exp(-(largest / 0.5 - 1) / 2), 0.0, 1.0]
    assert decision.mask.tolist() == MASK == decision.accepted.tolist()
    assert decision.is_soft
    assert decision.sequence_weights.tolist() == pytest.approx(expected, rel=1e-6)
    assert decision.weights[:, 0].tolist() == decision.sequence_weights.tolist()
    assert decision.token_mask.all(-1).tolist() == [True, True, False, True]
    assert (decision.weights.dtype, decision.sequence_weights.dtype) == (torch.float32, torch.float32)


def test_a_soft_policy_scales_the_gradients_and_keeps_those_of_invalid_rows_finite(tmp_path: Path) -> None:
    given = tensors()
    mu, pi = given["rollout_logprobs"], given["logprobs"].requires_grad_()
    decision = decide(tmp_path, given, policy=SOFT)
    cleaned = decision.clean(mu, pi)
    assert torch.equal(cleaned[[0, 1, 3]], mu[[0, 1, 3]])
    per_token = -(pi - cleaned).exp()
    torch.where(decision.token_mask, per_token * decision.weights, 0).sum().backward()  # type: ignore[arg-type]
    assert (pi.grad[2] == 0).all()
    expected = -(pi - mu).exp().detach()[1] * decision.sequence_weights[1]
    torch.testing.assert_close(pi.grad[1], expected)


@pytest.mark.parametrize("policy", [SOFT, None], ids=["soft", "hard"])
def test_sequence_weights_are_1_in_observe_mode(tmp_path: Path, policy: Any) -> None:
    decision = decide(tmp_path, tensors(), mode="observe", policy=policy)
    assert decision.sequence_weights.tolist() == [1.0] * 4
    assert not decision.is_soft
    assert (decision.weights == 1).all()


def test_sequence_weights_of_a_hard_policy_are_its_mask(tmp_path: Path) -> None:
    decision = decide(tmp_path, batch(far=(1,), dead=(2,)))
    assert not decision.is_soft
    assert isinstance(decision.sequence_weights, np.ndarray)
    assert decision.sequence_weights.tolist() == [float(kept) for kept in MASK]
