"""Certified lower bounds: golden values, never above the exact KL, and rejected where nothing is proven."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.core import golden, softmaxes
from tests.core.agreement import equal
from tests.core.softmaxes import SHAPES, Pair, pair
from trmon_client.core import acceptance, statistics
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns, topk_certificate
from trmon_client.core.divergence.logits import check_logits

ROUNDING = 2e-6
"""The error in nats of a bound from float32 log-probs; the margin of a certificate is 50 times as large."""
INF = float("inf")


def arguments(policies: Pair, *, k: int = 4, **changes: Any) -> dict[str, Any]:
    ids, logprobs = policies.topk(k)
    given = {
        "topk_ids": ids,
        "topk_logprobs": logprobs.astype(np.float32),
        "rollout_logprobs": policies.rollout_logprobs.astype(np.float32),
        "token_ids": policies.token_ids,
        "logits": policies.logits,
        "mask": policies.mask,
    }
    return {**given, **changes}


def bound(policies: Pair, **changes: Any) -> Columns:
    return divergence_columns.topk_lower_bound(**arguments(policies, **changes))


def as_single_tokens(policies: Pair) -> Pair:
    """Return each token as a sequence of its own, all counting."""
    n, size = policies.mask.size, policies.logits.shape[-1]
    return Pair(
        policies.rollout_logits.reshape(n, 1, size),
        policies.logits.reshape(n, 1, size),
        policies.token_ids.reshape(n, 1),
        np.ones((n, 1), bool),
    )


def exact(policies: Pair) -> Columns:
    return divergence_columns.exact(rollout_logits=policies.rollout_logits, logits=policies.logits, mask=policies.mask)


def test_token_bounds_equal_the_golden_values() -> None:
    found = golden.load("exact")
    logits, rollout_logits = (golden.numbers(found[name]) for name in ("logits", "rollout_logits"))
    tokens = as_single_tokens(Pair(rollout_logits, logits, np.array(found["token_ids"]), np.array(found["mask"])))
    ids = np.array(found["topk_ids"]).reshape(len(tokens.mask), 1, found["topk"])
    logprobs = np.take_along_axis(softmaxes.log_softmax(tokens.rollout_logits), ids, -1).astype(np.float64)
    result = bound(
        tokens, topk_ids=ids, topk_logprobs=logprobs, rollout_logprobs=tokens.rollout_logprobs.astype(np.float64)
    )
    np.testing.assert_allclose(result["sum_kl"], np.ravel(golden.numbers(found["per_token"]["lower_bound"])), rtol=1e-9)
    assert (result.kl_is, result.kl_pair) == ("lower_bound", "total")


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_the_whole_vocabulary_gives_the_exact_kl_and_fewer_tokens_less(noise: float) -> None:
    tokens = as_single_tokens(pair(1, noise=noise))
    kl = exact(tokens)["sum_kl"]
    np.testing.assert_allclose(bound(tokens, k=tokens.logits.shape[-1])["sum_kl"], kl, rtol=1e-5, atol=ROUNDING)
    found = bound(tokens, k=4)["sum_kl"]
    assert (found <= kl * (1 + ROUNDING) + ROUNDING).all()
    assert (found < kl - ROUNDING).any()


def test_a_drift_above_delta_is_certified_without_the_logits_of_the_engine() -> None:
    policies = replace(pair(1, noise=1e-3), mask=np.ones((3, 5), bool))
    logits = policies.logits.copy()
    logits[1, 2] = 0
    drifted = replace(policies, logits=logits)
    given = {name: np.asarray(getattr(drifted, name), np.float32) for name in ("rollout_logprobs", "logprobs")}
    joined = divergence_columns.with_divergences(statistics.columns(**given, mask=drifted.mask), bound(drifted))
    decision = acceptance.decide(joined, acceptance.preset("trm_max"))
    assert decision.reasons == [None, "max_kl", None]
    assert decision.certified.tolist() == [False, True, False]
    assert joined["argmax_kl"][1] == 2


EVEN = [0.0, 0.0, 0.0, 0.0]
EDGES: dict[str, tuple[list[float], list[float], float]] = {
    "equal policies prove nothing": (EVEN, EVEN, 0),
    "a certain token that the other halves": ([20.0, 0, 0, 0], [0, -INF, 0, -INF], np.log(2) - 0.5),
    "a returned token that the other cannot sample is unbounded": (EVEN, [-INF, 0, 0, 0], INF),
    "one that is only very unlikely is not": (
        EVEN,
        [-9000, 0, 0, 0],
        9000 / 4 + np.log(3 / 4),
    ),
    "mass of the other where mu has none, under the floor": ([20.0, 0, 0, 0], [40.0, 0, 0, 0], 0),
}


@pytest.mark.parametrize(("a", "b", "expected"), EDGES.values(), ids=EDGES)
def test_probabilities_of_zero_and_one(a: list[float], b: list[float], expected: float) -> None:
    # A second, even token shows that the log-probs are not renormalised.
    tokens = Pair(np.array([[a], [EVEN]]), np.array([[b], [EVEN]]), np.zeros((2, 1), int), np.ones((2, 1), bool))
    found = bound(tokens, k=1, topk_logprobs=tokens.topk(1)[1].astype(np.float64))
    np.testing.assert_allclose(found["sum_kl"][0], expected, rtol=1e-6, atol=1e-7)
    assert found["n_unbounded"].tolist() == [int(expected == INF), 0]


REFUSED: dict[str, Any] = {
    "log-probs renormalised over the returned k": lambda given: _renormalised(given),
    "log-probs that disagree with the sampled token's": lambda given: {
        "rollout_logprobs": given["rollout_logprobs"] - np.float32(2e-3)
    },
    "log-probs at another temperature": lambda given: {"topk_logprobs": given["topk_logprobs"] * np.float32(1.1)},
    "probabilities that sum to more than 1": lambda given: {
        "topk_logprobs": np.full_like(given["topk_logprobs"], -0.1),
        "rollout_logprobs": np.full_like(given["rollout_logprobs"], -0.1),
    },
}


def _renormalised(given: dict[str, Any]) -> dict[str, Any]:
    logprobs = given["topk_logprobs"].astype(np.float64)
    over_k = (logprobs - np.log(np.exp(logprobs).sum(-1, keepdims=True))).astype(np.float32)
    # The engine gives the sampled token the same treatment, as far as it is in the list.
    listed = given["topk_ids"] == given["token_ids"][..., None]
    sampled = np.where(listed.any(-1), np.where(listed, over_k, 0).sum(-1), given["rollout_logprobs"])
    return {"topk_logprobs": over_k, "rollout_logprobs": sampled.astype(np.float32)}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_log_probs_that_are_not_of_one_whole_softmax_are_rejected(change: Any) -> None:
    policies = pair(2)
    given = arguments(policies)
    assert divergence_columns.topk_lower_bound(**given).kl_is == "lower_bound"
    refused = divergence_columns.topk_lower_bound(**{**given, **change(given)})
    assert refused.kl_is == "sampled"
    assert refused.kl_pair is None
    assert list(refused) == ["n_tokens"]


def test_a_corrupt_token_does_not_hide_that_the_others_are_renormalised() -> None:
    given = arguments(pair(2, size=(10, 40, 41)))
    given |= _renormalised(given)
    given["topk_logprobs"][0, :2, 0] = np.nan
    assert divergence_columns.topk_lower_bound(**given).kl_is == "sampled"


def test_values_under_the_mask_are_ignored() -> None:
    policies = pair(3)
    given = arguments(policies)
    spoilt = dict(given)
    for name in ("topk_logprobs", "rollout_logprobs", "logits"):
        mask = policies.mask if given[name].ndim == 2 else policies.mask[..., None]
        spoilt[name] = np.where(mask, given[name], np.float32(np.nan))
    spoilt["token_ids"] = np.where(policies.mask, given["token_ids"], -100)
    spoilt["topk_ids"] = np.where(policies.mask[..., None], given["topk_ids"], 2**40)
    found, expected = divergence_columns.topk_lower_bound(**spoilt), divergence_columns.topk_lower_bound(**given)
    assert found.kl_is == "lower_bound"
    equal(found, expected)


def test_a_batch_without_counting_tokens_keeps_kl_is_lower_bound() -> None:
    found = bound(pair(4), mask=np.zeros((3, 5)))
    assert found.kl_is == "lower_bound"
    assert found["max_kl"].tolist() == [-INF] * 3


def test_duplicate_tokens_and_empty_entries_change_nothing() -> None:
    policies = pair(5)
    given = arguments(policies)
    ids, logprobs = given["topk_ids"], given["topk_logprobs"]
    fill = np.full((*policies.mask.shape, 1), -1)
    twice = np.concatenate([ids[..., :1], ids, fill, fill, policies.token_ids[..., None], fill], -1)
    sampled = given["rollout_logprobs"][..., None]
    empty = [np.full_like(sampled, value) for value in (np.nan, -INF, 0.0)]
    longer = np.concatenate([logprobs[..., :1], logprobs, *empty[:2], sampled, empty[2]], -1)
    found = divergence_columns.topk_lower_bound(**{**given, "topk_ids": twice, "topk_logprobs": longer})
    np.testing.assert_allclose(found["sum_kl"], divergence_columns.topk_lower_bound(**given)["sum_kl"], rtol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_torch_and_numpy_give_the_same_bound_without_reading_a_value(device: str) -> None:
    policies = pair(6, size=(4, 9, 300))
    given = arguments(policies)
    names = {
        "ids": "topk_ids",
        "logprobs": "topk_logprobs",
        "sampled_ids": "token_ids",
        "sampled_logprobs": "rollout_logprobs",
    }
    tensors = {field: torch.from_numpy(np.array(given[name])).to(device) for field, name in names.items()}
    tensors |= {field: tensors[field].double() for field in ("logprobs", "sampled_logprobs")}
    logits = check_logits({"logits": torch.from_numpy(policies.logits).to(device)}, mask=policies.mask)
    moved = replace(logits, device=torch.device(device), mask=torch.from_numpy(policies.mask).to(device))
    found = topk_certificate.lower_bounds(moved, target="logits", topk=topk_certificate.TopK(**tensors, vocabulary=300))
    assert found.device.type == device
    if device == "cpu":
        sums = np.where(policies.mask, found.numpy(), 0).sum(-1)
        expected = divergence_columns.topk_lower_bound(**given)
        np.testing.assert_allclose(sums, expected["sum_kl"], rtol=1e-12)
        given = {name: torch.from_numpy(np.array(array)) for name, array in given.items()}
        assert divergence_columns.topk_lower_bound(**given)["max_kl"].tolist() == expected["max_kl"].tolist()


HALF = torch.zeros((3, 5, 4), dtype=torch.float16)
WRONG: dict[str, dict[str, Any]] = {
    "topk_ids has shape (3, 5); expected (3, 5, 1)": {"topk_ids": np.zeros((3, 5), int)},
    "topk_logprobs has shape (3, 5, 2); expected (3, 5, 4)": {"topk_logprobs": np.zeros((3, 5, 2), np.float32)},
    "topk_ids has dtype float64; expected an integer dtype": {"topk_ids": np.zeros((3, 5, 4))},
    "expected float32 or float64": {"topk_logprobs": HALF},
    "token_ids is None; expected shape (3, 5)": {"token_ids": None},
    "rollout_logprobs has shape (3, 4); expected (3, 5)": {"rollout_logprobs": np.zeros((3, 4), np.float32)},
    "logits (KL of total) or old_logits (KL of mismatch) is required": {"logits": None},
}


@pytest.mark.parametrize("message", WRONG)
def test_invalid_arguments_are_rejected_by_name(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        divergence_columns.topk_lower_bound(**{**arguments(pair(8)), **WRONG[message]})


def test_infinite_log_probs_do_not_raise_under_a_strict_floating_point_state() -> None:
    policies = pair(seed=1, shape=SHAPES[0], noise=0.3)
    given = arguments(policies)
    given["topk_logprobs"][..., -1] = -800.0
    with np.errstate(all="raise"):
        assert divergence_columns.topk_lower_bound(**given).kl_is == "lower_bound"
