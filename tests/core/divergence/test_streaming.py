"""Exact divergences from tiles and shards against those of the whole vocabulary, and against their definitions."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import softmaxes
from tests.core.divergence.test_divergence_columns import CASES
from tests.core.softmaxes import SHAPES, pair
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import HiddenStates, divergence_columns, exact, exact_streamed
from trmon_client.core.divergence.vocabulary_sums import DivergenceSums, Softmax

PROCESS = Path(__file__).with_name("sharded_process.py")
ROOT = Path(__file__).parents[3]


def equal(found: Any, expected: Columns, *, rtol: float = 1e-12) -> None:
    assert list(found) == list(expected)
    for name in expected:
        # Columns of extremes are float32.
        within = max(rtol, 2e-7) if expected[name].dtype == np.float32 else rtol
        np.testing.assert_allclose(found[name], expected[name], rtol=within, atol=1e-14, err_msg=name)


def sums_of(a: Any, b: Any, cuts: list[int]) -> DivergenceSums:
    """Return the merged sums of the parts between the cuts."""
    edges = [0, *sorted(cuts), a.shape[-1]]
    parts = [slice(*edge) for edge in itertools.pairwise(edges) if edge[0] < edge[1]]
    return DivergenceSums.merged(
        DivergenceSums.of(Softmax.of(a[..., part]), Softmax.of(b[..., part]), squares=True) for part in parts
    )


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(SHAPES), st.lists(st.integers(0, 41), max_size=6))
def test_merged_parts_of_any_vocabulary_equal_the_definitions(seed: int, shape: str, cuts: list[int]) -> None:
    policies = pair(seed, shape=shape)
    with np.errstate(all="ignore"):
        found = sums_of(policies.rollout_logits.astype(np.float64), policies.logits.astype(np.float64), cuts)
        computed = found.divergences()
    expected = softmaxes.divergences(policies.rollout_logits, policies.logits)
    expected["pi_squared"] = (np.exp(softmaxes.log_softmax(policies.logits)) ** 2).sum(-1)
    for name in computed:
        np.testing.assert_allclose(computed[name], expected[name].astype(float), rtol=1e-9, atol=1e-14, err_msg=name)


@pytest.mark.parametrize(("a", "b", "kl", "reverse_kl"), CASES.values(), ids=CASES)
def test_zero_probabilities_and_odd_logits_split_over_parts(
    a: list[float], b: list[float], kl: float, reverse_kl: float
) -> None:
    with np.errstate(all="ignore"):
        found = sums_of(np.array([a]), np.array([b]), list(range(len(a)))).divergences()
    np.testing.assert_allclose(found["kl"], [kl], atol=1e-15)
    np.testing.assert_allclose(found["reverse_kl"], [reverse_kl], atol=1e-15)


def states(*, size: tuple[int, int, int] = (3, 300, 16), vocabulary: int = 2500) -> dict[str, Any]:
    """Return hidden states of two policies, one output head and their logits at temperature 0.7, float64."""
    given = heads(size=size, vocabulary=vocabulary)
    logits = {"rollout_logits": "hidden", "logits": "new_hidden"}
    return given | {name: given[states] @ given["weight"].T / 0.7 for name, states in logits.items()}


def heads(*, size: tuple[int, int, int], vocabulary: int) -> dict[str, Any]:
    """Return hidden states of two policies, a mask and one output head, float64."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=size)
    new_hidden = hidden + random.normal(0, 1e-2, size)
    weight = random.normal(size=(vocabulary, size[-1]))
    mask = random.random(size[:2]) < 0.8
    return {"hidden": hidden, "new_hidden": new_hidden, "weight": weight, "mask": mask}


def whole(given: dict[str, Any]) -> Columns:
    options = {name: given[name] for name in ("rollout_logits", "logits", "mask")}
    return exact(**options, tv=True, sum_pi_squared=True)


def test_ranks_that_share_a_vocabulary_agree_with_the_whole(tmp_path: Path) -> None:
    n_ranks, given = 2, states(size=(3, 100, 16))
    np.savez(tmp_path / "given.npz", **given)
    command = [sys.executable, str(PROCESS), str(tmp_path)]
    ranks = [subprocess.Popen([*command, str(rank), str(n_ranks)], cwd=ROOT) for rank in range(n_ranks)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0] * n_ranks
    expected = whole(given)
    for source in ("logits", "hidden"):
        first = np.load(tmp_path / f"{source}-0.npz")
        equal(first, expected, rtol=1e-9)
        for rank in range(1, n_ranks):
            other = np.load(tmp_path / f"{source}-{rank}.npz")
            assert all((first[name] == other[name]).all() for name in first)


def test_the_gaps_of_hidden_states_are_those_of_their_logits() -> None:
    given = states()
    random = np.random.default_rng(3)
    hidden = {
        "rollout_logits": given["hidden"],
        "logits": given["new_hidden"],
        "old_logits": given["hidden"] + 0.1 * random.normal(size=given["hidden"].shape),
    }
    heads = {name: HiddenStates(states_, given["weight"], None, 0.7) for name, states_ in hidden.items()}
    projected = {name: states_ @ given["weight"].T / 0.7 for name, states_ in hidden.items()}
    found = exact_streamed(**heads, mask=given["mask"])
    equal(found, exact(**projected, mask=given["mask"]), rtol=1e-9)
    assert {"max_tv_mismatch", "sum_tv_staleness"} <= found.keys()


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_hidden_states_give_the_divergences_of_their_logits(kind: Any) -> None:
    given = states()
    heads = [HiddenStates(kind(given[name]), kind(given["weight"]), None, 0.7) for name in ("hidden", "new_hidden")]
    mask = kind(given["mask"])
    found = exact_streamed(rollout_logits=heads[0], logits=heads[1], mask=mask, tv=True, sum_pi_squared=True)
    equal(found, whole(given), rtol=1e-9)
    assert (found.kl_is, found.kl_pair) == ("exact", "total")


def test_half_precision_heads_with_a_bias_are_projected_in_float32() -> None:
    given = states()
    hidden, weight = (torch.from_numpy(given[name]).bfloat16() for name in ("hidden", "weight"))
    bias = torch.linspace(-1, 1, len(weight))
    head = HiddenStates(hidden, weight, bias)
    found = exact_streamed(rollout_logits=head, old_logits=given["logits"], mask=given["mask"])
    logits = (hidden.double() @ weight.double().T + bias.double()).numpy()
    expected = exact(rollout_logits=logits, old_logits=given["logits"], mask=given["mask"])
    equal(found, expected, rtol=1e-5)
    assert found.kl_pair == "mismatch"


def test_no_tensor_of_tokens_by_vocabulary_is_made() -> None:
    given = heads(size=(2, 512, 8), vocabulary=32_768)
    logits_bytes = 8 * 2 * 512 * 32_768
    states_of = [HiddenStates(given[name], given["weight"]) for name in ("hidden", "new_hidden")]
    tracemalloc.start()
    exact_streamed(rollout_logits=states_of[0], logits=states_of[1], mask=given["mask"], tv=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tile_bytes = 8 * divergence_columns.HOST_TILE[0] * divergence_columns.HOST_TILE[1]
    assert peak < 5 * tile_bytes < logits_bytes / 6


def test_positions_that_do_not_count_are_not_projected() -> None:
    hidden = np.full((2, 600, 4), np.nan)
    head = HiddenStates(hidden, np.ones((8, 4)))
    found = exact_streamed(rollout_logits=head, logits=head, mask=np.zeros((2, 600)))
    assert found["n_tokens"].tolist() == [0, 0]
    assert found["max_kl"].tolist() == [-np.inf, -np.inf]


STATES = np.ones((1, 2, 3))
WRONG: dict[str, dict[str, Any]] = {
    "logits.weight has shape (5, 4); expected (V, 3)": {"logits": HiddenStates(STATES, np.ones((5, 4)))},
    "logits has logits of shape (1, 2, 7)": {"logits": HiddenStates(STATES, np.ones((7, 3)))},
    "logits.bias has shape (4,)": {"logits": HiddenStates(STATES, np.ones((5, 3)), np.ones(4))},
    "logits.temperature is 0.0": {"logits": HiddenStates(STATES, np.ones((5, 3)), None, 0.0)},
    "logits has dtype int64; expected a floating dtype": {"logits": np.ones((1, 2, 5), int)},
    "logits is (2, 5); expected a torch or numpy array [B, T, V]": {"logits": np.ones((2, 5))},
    "mask has shape (2, 2); expected (1, 2)": {"mask": np.ones((2, 2))},
    "logits (KL of total) or old_logits (KL of mismatch) is required": {"logits": None},
    "old_logits has logits of shape (1, 2, 4); expected (1, 2, 5)": {"old_logits": np.ones((1, 2, 4))},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_named(message: str) -> None:
    arguments = {"rollout_logits": np.ones((1, 2, 5)), "logits": np.ones((1, 2, 5)), "mask": np.ones((1, 2))}
    with pytest.raises(ValueError, match=re.escape(message)):
        exact_streamed(**{**arguments, **WRONG[message]})


def test_squares_are_refused_by_the_triton_kernel() -> None:
    logits = np.ones((1, 2, 5))
    with pytest.raises(ValueError, match="sum_pi_squared needs backend='blocks'"):
        exact(rollout_logits=logits, logits=logits, mask=np.ones((1, 2)), sum_pi_squared=True, backend="triton")
