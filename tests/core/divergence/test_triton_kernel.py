"""The Triton kernel: its interpreted results against the numpy blocks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.core import softmaxes
from tests.core.agreement import equal
from tests.core.softmaxes import SHAPES, Pair, pair
from tests.core.triton_device import HAS_DEVICE, quiet_numpy  # noqa: F401, a fixture
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns

DTYPES = dict(zip(SHAPES, [torch.bfloat16, torch.float16, torch.float32, torch.bfloat16], strict=True))
INF = float("inf")
SEVERAL_TILES, MANY_TILES = 1_300, 4_500
"""Vocabularies of three and nine tiles, of which the last is partly filled."""


def tensors(policies: Pair, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    given = {"rollout_logits": policies.rollout_logits, "logits": policies.logits}
    return {name: torch.from_numpy(array).to(dtype) for name, array in given.items()} | {"mask": policies.mask}


def fused(arguments: dict[str, Any], **options: Any) -> Columns:
    """Return the columns of the kernel on the host."""
    if HAS_DEVICE:
        arguments = {name: torch.as_tensor(value, device="cuda") for name, value in arguments.items()}
    return divergence_columns.exact(**arguments, **options, backend="triton").numpy()


def both(arguments: dict[str, Any]) -> tuple[Columns, Columns]:
    """Return the columns of the kernel and of the blocks."""
    return fused(arguments, tv=True), divergence_columns.exact(**arguments, tv=True)


def agree(found: Columns, expected: Columns, *, relative: float = 2e-5, absolute: float = 3e-7) -> None:
    assert list(found) == list(expected)
    for name in expected:
        if name == "argmax_kl":
            continue
        np.testing.assert_allclose(found[name], expected[name], rtol=relative, atol=absolute, err_msg=name)


@pytest.mark.parametrize(("shape", "dtype"), DTYPES.items())
def test_the_kernel_and_the_blocks_give_the_same_columns(shape: str, dtype: torch.dtype) -> None:
    agree(*both(tensors(pair(1, shape=shape, size=(2, 2, SEVERAL_TILES)), dtype)))


def test_the_gaps_of_all_three_policies_are_those_of_the_blocks() -> None:
    given = tensors(pair(1, noise=0.3, size=(1, 2, 1_100)))
    given["old_logits"] = given["logits"] + 0.1 * torch.randn(1, 2, 1_100, generator=torch.Generator().manual_seed(0))
    found, expected = fused(given), divergence_columns.exact(**given)
    agree(found, expected)
    assert {"sum_tv_mismatch", "max_tv_staleness"} <= found.keys()


@pytest.mark.parametrize("vocabulary", [1, 2, 17, 512, 513])
def test_any_vocabulary_size_is_supported(vocabulary: int) -> None:
    agree(*both(tensors(pair(2, size=(2, 2, vocabulary)))))


@pytest.mark.parametrize("per", ["vocabulary", "position"])
def test_a_support_restricts_both_policies(per: str) -> None:
    policies = pair(3, size=(1, 2, 1_100))
    support = np.random.default_rng(3).random(policies.logits.shape if per == "position" else 1_100) < 0.5
    agree(*both({**tensors(policies), "support": torch.from_numpy(support)}))


def test_any_strides_are_supported() -> None:
    policies = pair(4, size=(2, 3, 500))
    given = tensors(policies)
    expected = fused(given)
    vocabulary_first = given["rollout_logits"].permute(2, 0, 1).contiguous().permute(1, 2, 0)
    every_second = torch.repeat_interleave(given["logits"], 2, dim=1)[:, ::2]
    equal(fused({**given, "rollout_logits": vocabulary_first, "logits": every_second}), expected)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 30.0], ids=lambda offset: f"logits apart by {offset}")
def test_a_healthy_kl_keeps_three_digits_in_float32(offset: float) -> None:
    random = np.random.default_rng(5)
    a = random.normal(0, 3, (1, 3, MANY_TILES)).astype(np.float32)
    b = (a + random.normal(0, 1e-3, a.shape) + offset).astype(np.float32)
    expected = softmaxes.divergences(a, b)
    found, _ = both({"rollout_logits": torch.from_numpy(a), "logits": torch.from_numpy(b), "mask": np.ones((1, 3))})
    assert 1e-7 < expected["kl"].mean() < 1e-6
    assert found["sum_kl"][0] == pytest.approx(float(expected["kl"].sum()), rel=1e-4)
    assert found["max_kl"][0] == pytest.approx(float(expected["kl"].max()), rel=1e-4)
    assert found["sum_reverse_kl"][0] == pytest.approx(float(expected["reverse_kl"].sum()), rel=1e-4)


FAR = SEVERAL_TILES - 1
ODD: dict[str, tuple[list[tuple[int, float]], list[tuple[int, float]]]] = {
    "mu cannot sample the first tiles": ([(slice(0, 1024), -INF)], []),
    "neither can": ([(slice(0, 1024), -INF)], [(slice(0, 1024), -INF)]),
    "mass of mu outside the other's support": ([], [(7, -INF)]),
    "mass of the other outside mu's support": ([(7, -INF)], []),
    "mu's favourite is the other's impossible token": ([(FAR, 30.0)], [(FAR, -INF)]),
    "the favourite comes last, 80 nats apart": ([(FAR, 90.0)], [(FAR, 10.0)]),
    "the other's favourite comes first, where mu has nothing": ([(0, -60.0)], [(0, 50.0)]),
    "the favourites change with every tile": ([(5, 10.0), (600, 20.0), (FAR, 30.0)], [(5, 10.5), (FAR, 31.0)]),
    "no mass at all": ([(slice(None), -INF)], []),
    "NaN": ([], [(700, float("nan"))]),
}


@pytest.mark.parametrize(("a", "b"), ODD.values(), ids=ODD)
def test_zero_probabilities_and_odd_logits_give_the_columns_of_the_blocks(a: list[Any], b: list[Any]) -> None:
    policies = replace(pair(6, size=(2, 1, SEVERAL_TILES)), mask=np.ones((2, 1), bool))
    for logits, changes in ((policies.rollout_logits, a), (policies.logits, b)):
        for index, value in changes:
            logits[0, 0, index] = value
    agree(*both(tensors(policies)))


TOP_K, FAVOURITE = 50, 700


@pytest.mark.parametrize(
    ("side", "raised", "masked"),
    [
        ("mu", 0.0, -INF),
        ("mu", 5.0, -1e9),
        ("mu", 30.0, -100.0),
        ("trainer", 0.0, -65504.0),
        ("trainer", 5.0, -INF),
        ("trainer", 30.0, -1e4),
    ],
)
def test_a_policy_of_its_most_probable_tokens_has_the_divergences_of_the_blocks(
    side: str, raised: float, masked: float
) -> None:
    random = np.random.default_rng(2)
    mu = random.normal(0, 2, SEVERAL_TILES)
    mu[FAVOURITE] = mu.max() + raised
    pi = mu + random.normal(0, 0.02, SEVERAL_TILES)
    is_kept = mu >= np.sort(mu)[-TOP_K]
    if side == "mu":
        mu = np.where(is_kept, mu, masked)
    else:
        pi = np.where(is_kept, pi, masked)
    given = {"rollout_logits": mu, "logits": pi}
    logits = {name: torch.tensor(row, dtype=torch.float32)[None, None] for name, row in given.items()}
    agree(*both({**logits, "mask": np.ones((1, 1), bool)}))


def test_values_under_the_mask_are_ignored() -> None:
    policies = pair(7, size=(2, 3, 41))
    given = tensors(policies)
    corrupted = given["logits"].masked_fill(~torch.from_numpy(policies.mask)[..., None], float("nan"))
    found, expected = (fused({**given, "logits": logits}) for logits in (corrupted, given["logits"]))
    assert found["sum_kl"].tolist() == expected["sum_kl"].tolist()


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3)], ids=["no sequences", "no positions"])
def test_an_empty_batch_is_allowed(shape: tuple[int, int, int]) -> None:
    found, expected = both(
        {"rollout_logits": torch.zeros(shape), "logits": torch.zeros(shape), "mask": np.zeros(shape[:2])}
    )
    assert found["max_kl"].tolist() == expected["max_kl"].tolist()


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros((1, 2, 3), np.float32), "rollout_logits is a numpy array; the kernel takes device tensors"),
        (torch.zeros((1, 2, 3), dtype=torch.float64), "rollout_logits has dtype torch.float64; the kernel takes"),
    ],
    ids=["numpy", "float64"],
)
def test_unsupported_logits_are_rejected_by_name(logits: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        divergence_columns.exact(rollout_logits=logits, logits=logits, mask=np.ones((1, 2)), backend="triton")
