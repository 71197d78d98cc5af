"""Exact divergences of a vocabulary, whole, in tiles and in shards, against golden vectors, definitions and laws."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import golden, softmaxes
from tests.core.agreement import equal
from tests.core.examples import batch
from tests.core.softmaxes import SHAPES, Pair, pair
from trmon_client.core import acceptance, statistics
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import HiddenStates, divergence_columns, exact_streamed
from trmon_client.core.divergence.divergence_columns import blockwise_divergences, reduce_divergences
from trmon_client.core.divergence.logits import BLOCK_ELEMENTS, check_logits
from trmon_client.core.divergence.vocabulary_sums import DivergenceSums, Softmax
from trmon_client.core.inputs.checked_inputs import valid_mask
from trmon_client.core.signals import batch_signals

NAN, INF = float("nan"), float("inf")


def exact(policies: Pair, **changes: Any) -> Columns:
    arguments = {
        "rollout_logits": policies.rollout_logits,
        "logits": policies.logits,
        "mask": policies.mask,
        "tv": True,
    }
    return divergence_columns.exact(**{**arguments, **changes})


def per_token(rollout_logits: Any, logits: Any, **changes: Any) -> Columns:
    """Return the divergences of positions [n, V], each as a sequence of one token."""
    one = np.ones((len(logits), 1))
    return divergence_columns.exact(rollout_logits=rollout_logits[:, None], logits=logits[:, None], mask=one, **changes)


def test_columns_equal_the_golden_values() -> None:
    given = golden.load("exact")
    logits = {name: golden.numbers(given[name]) for name in ("rollout_logits", "logits")}
    found, expected = divergence_columns.exact(**logits, mask=np.array(given["mask"]), tv=True), given["columns"]
    assert set(found) == {*expected, "n_tokens", "argmax_kl"}
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], golden.numbers(values), rtol=1e-7, err_msg=name)
    kl = np.where(given["mask"], golden.numbers(given["per_token"]["kl"]), -1)
    assert found["argmax_kl"].tolist() == kl.argmax(-1).tolist()
    assert (found.kl_is, found.kl_pair) == ("exact", "total")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [1e-4, 0.3, 8.0], ids=lambda noise: f"noise {noise}")
@pytest.mark.parametrize("size", [(3, 5, 41), (200, 7, 60), (2, 3, 30_000)], ids=str)
def test_columns_equal_their_definitions_in_extended_precision(
    shape: str, noise: float, size: tuple[int, int, int]
) -> None:
    policies = pair(1, shape=shape, noise=noise, size=size)
    found = exact(policies)
    for quantity, values in softmaxes.divergences(policies.rollout_logits, policies.logits).items():
        values = np.where(policies.mask, values, 0).astype(np.float64)
        np.testing.assert_allclose(found[f"sum_{quantity}"], values.sum(-1), rtol=1e-7, atol=1e-14, err_msg=quantity)
        if f"max_{quantity}" in found and policies.mask.any(-1).all():
            np.testing.assert_allclose(found[f"max_{quantity}"], values.max(-1), rtol=2e-7, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_healthy_kl_is_accurate_where_float32_log_sum_exps_differ_by_noise(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    a = (torch.randn(64, 4096, generator=random) * 3).to(dtype)
    b = a.float() + torch.randn(64, 4096, generator=random) * 1e-3
    expected = softmaxes.divergences(a.double().numpy(), b.double().numpy())["kl"].astype(np.float64)
    assert 1e-7 < np.median(expected) < 1e-6
    error = np.abs(per_token(a, b)["sum_kl"] / expected - 1)
    p = torch.softmax(a.float(), -1)
    naive = torch.logsumexp(b, -1) - torch.logsumexp(a.float(), -1) - (p * (b - a.float())).sum(-1)
    naive_error = np.abs(naive.double().numpy() / expected - 1)
    assert error.max() < 1e-7
    assert np.median(naive_error) > 0.1


CASES: dict[str, tuple[list[float], list[float], float, float]] = {
    "a token that neither can sample adds nothing": ([0, 0, -INF], [0, 0, -INF], 0, 0),
    "mass of mu outside the other's support is unbounded": ([0, 0], [0, -INF], INF, np.log(2)),
    "mass of the other outside mu's support is not": ([0, -INF], [0, 0], np.log(2), INF),
    "supports that do not meet are unbounded both ways": ([0, -INF], [-INF, 0], INF, INF),
    "one token holds all mass in both": ([5, -INF], [-3, -INF], 0, 0),
    "a probability that underflows is no mass": ([0, -1e4], [0, -INF], 0, 0),
    "a tiny probability of the other is not zero": ([0, 0], [0, -1e4], 5e3 - np.log(2), np.log(2)),
    "a constant added to logits changes nothing": ([0, 1, 2], [1000, 1001, 1002], 0, 0),
    "NaN logits give NaN": ([0, NAN], [0, 0], NAN, NAN),
    "infinite logits give NaN": ([0, INF], [0, 0], NAN, NAN),
    "a policy without any mass gives NaN": ([-INF, -INF], [0, 0], NAN, NAN),
}


@pytest.mark.parametrize(("a", "b", "kl", "reverse_kl"), CASES.values(), ids=CASES)
def test_zero_probabilities_and_odd_logits(a: list[float], b: list[float], kl: float, reverse_kl: float) -> None:
    found = per_token(np.array([a], np.float64), np.array([b], np.float64))
    np.testing.assert_allclose(found["sum_kl"], [kl], atol=1e-15)
    np.testing.assert_allclose(found["max_kl"], np.float32([kl]), atol=1e-15)
    np.testing.assert_allclose(found["sum_reverse_kl"], [reverse_kl], atol=1e-15)
    assert found["n_unbounded"].tolist() == [int(kl == INF)]
    with np.errstate(all="ignore"):
        of_parts = sums_of(np.array([a]), np.array([b]), list(range(len(a)))).divergences()
    np.testing.assert_allclose(of_parts["kl"], [kl], atol=1e-15)
    np.testing.assert_allclose(of_parts["reverse_kl"], [reverse_kl], atol=1e-15)


def test_values_under_the_mask_are_ignored() -> None:
    policies = pair(3)
    expected = exact(policies)
    for poison in (NAN, INF, -INF, -9999.0):
        spoilt = np.where(policies.mask[..., None], policies.logits, np.float32(poison))
        equal(exact(policies, logits=spoilt), expected)
        spoilt = np.where(policies.mask[..., None], policies.rollout_logits, poison)
        equal(exact(policies, rollout_logits=spoilt), expected)


def test_a_nan_logit_affects_only_its_own_sequence_which_is_rejected() -> None:
    policies = replace(pair(4, noise=1e-4), mask=np.ones((3, 5), bool))
    logits = policies.logits.copy()
    logits[1, 2, 7] = NAN
    found = exact(policies, logits=logits)
    assert np.isnan(found["max_kl"]).tolist() == [False, True, False]
    columns = statistics.columns(
        rollout_logprobs=policies.rollout_logprobs, logprobs=policies.logprobs, mask=policies.mask
    )
    decision = acceptance.decide(divergence_columns.with_divergences(columns, found), acceptance.preset("trm_max"))
    assert decision.reasons == [None, "max_kl", None]


@pytest.mark.parametrize("per", ["vocabulary", "position"])
def test_a_support_restricts_both_policies(per: str) -> None:
    policies = pair(5)
    support = np.random.default_rng(5).random(policies.logits.shape if per == "position" else 41) < 0.5
    found = exact(policies, support=support)
    a = np.where(support, policies.rollout_logits, -INF)
    equal(found, exact(policies, rollout_logits=a, logits=np.where(support, policies.logits, -INF)))
    if per == "vocabulary":
        smaller = exact(policies, rollout_logits=a[..., support], logits=policies.logits[..., support])
        np.testing.assert_allclose(found["sum_kl"], smaller["sum_kl"], rtol=1e-12)
    tensors = {"rollout_logits": torch.from_numpy(policies.rollout_logits), "support": torch.from_numpy(support)}
    equal(exact(policies, **tensors), found)


FORMS: dict[str, Any] = {
    "torch that requires grad": lambda a: torch.from_numpy(a).requires_grad_(),
    "float64": lambda a: a.astype(np.float64),
    "vocabulary first": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, -1, 0)), 0, -1),
    "every second position of torch": lambda a: torch.from_numpy(np.repeat(a, 2, axis=1))[:, ::2],
    "read-only": lambda a: np.broadcast_to(a, a.shape),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_logits_in_another_form_give_the_same_columns(form: Any) -> None:
    policies = pair(6, size=(4, 30, 5_000))
    expected = exact(policies)
    changed = exact(policies, rollout_logits=form(policies.rollout_logits), logits=form(policies.logits))
    for name in expected:
        np.testing.assert_allclose(changed[name], expected[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_converted_exactly(dtype: torch.dtype) -> None:
    policies = pair(7)
    short = [torch.from_numpy(array).to(dtype) for array in (policies.rollout_logits, policies.logits)]
    wide = [tensor.double() for tensor in short]
    found, expected = (exact(policies, rollout_logits=given[0], logits=given[1]) for given in (short, wide))
    equal(found, expected)


def test_the_logits_of_the_caller_are_not_modified() -> None:
    policies = pair(8)
    a, b = torch.from_numpy(policies.rollout_logits).double(), torch.from_numpy(policies.logits).double()
    before = a.clone(), b.clone()
    exact(policies, rollout_logits=a, logits=b, support=np.arange(41) < 20)
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


def on(policies: Pair, device: str) -> Columns:
    """Return the columns computed by torch on a device; without a device numpy computes them."""
    tensors = {"rollout_logits": torch.from_numpy(policies.rollout_logits), "logits": torch.from_numpy(policies.logits)}
    logits = check_logits({name: tensor.to(device) for name, tensor in tensors.items()}, mask=policies.mask)
    moved = replace(logits, device=torch.device(device), mask=torch.from_numpy(policies.mask).to(device))
    found = blockwise_divergences(moved, target="logits", variations={"tv": ("rollout_logits", "logits")})
    return reduce_divergences(found, mask=moved.mask, kl_is="exact", kl_pair="total")


def test_torch_and_numpy_give_the_same_columns() -> None:
    policies = pair(9, shape="truncated", size=(5, 40, 700))
    found, expected = on(policies, "cpu"), exact(policies)
    assert list(found) == list(expected)
    for name in expected:
        np.testing.assert_allclose(found[name].numpy(), expected[name], rtol=1e-7, atol=1e-14, err_msg=name)


def test_torch_never_reads_a_value_from_the_device() -> None:
    # Tensors of the meta device hold no values: whatever would read one raises.
    found = on(pair(9), "meta")
    assert {array.device.type for array in found.values()} == {"meta"}


def test_temporary_memory_does_not_grow_with_the_logits() -> None:
    a = np.zeros((2, 512, 8_192), np.float32)
    tracemalloc.start()
    divergence_columns.exact(rollout_logits=a, logits=a, mask=np.ones((2, 512), bool), tv=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * BLOCK_ELEMENTS * 8 < a.nbytes / 3


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (2, 5, 3)], ids=["no sequences", "no positions", "all masked"])
def test_an_empty_batch_gives_the_identity_of_each_reduction(shape: tuple[int, int, int]) -> None:
    logits = np.zeros(shape, np.float32)
    found = divergence_columns.exact(rollout_logits=logits, logits=logits, mask=np.zeros(shape[:2]), tv=True)
    for name, array in found.items():
        expected = -1 if name.startswith("argmax") else -INF if name.startswith("max") else 0
        assert array.tolist() == [expected] * shape[0], name


def test_the_pair_follows_from_the_given_logits_and_total_variation_is_computed_on_request() -> None:
    policies = pair(10)
    total, mismatch = exact(policies), exact(policies, logits=None, old_logits=policies.logits)
    assert (total.kl_pair, mismatch.kl_pair) == ("total", "mismatch")
    assert {*total} - {*exact(policies, tv=False)} == {"max_tv", "sum_tv"}
    equal(mismatch, total)


def test_the_logits_of_all_three_policies_give_the_total_variation_of_both_gaps() -> None:
    policies, random = pair(11, noise=0.3, size=(3, 5, 41)), np.random.default_rng(11)
    old = policies.logits + random.normal(0.0, 0.2, policies.logits.shape)
    given = {"rollout_logits": policies.rollout_logits, "old_logits": old, "logits": policies.logits}
    found = exact(policies, old_logits=old)
    probabilities = {name: np.exp(logits - logits.max(-1, keepdims=True)) for name, logits in given.items()}
    of = {name: p / p.sum(-1, keepdims=True) for name, p in probabilities.items()}
    gaps = {"mismatch": ("rollout_logits", "old_logits"), "staleness": ("old_logits", "logits")}
    largest = {}
    for gap, (first, second) in gaps.items():
        each = np.where(policies.mask, np.abs(of[first] - of[second]).sum(-1) / 2, 0.0)
        np.testing.assert_allclose(found[f"sum_tv_{gap}"], each.sum(-1), rtol=1e-6)
        largest[gap] = each.max(-1)
        np.testing.assert_allclose(found[f"max_tv_{gap}"], largest[gap], rtol=1e-6)
    assert (found["max_tv"] <= largest["mismatch"] + largest["staleness"] + 1e-6).all(), "[3P]: the triangle"
    without = exact(policies)
    assert found.kl_pair == "total"
    equal(found, replace(found, by_name={**found.by_name, **without.by_name}))


def test_attached_divergences_work_in_decisions_signals_and_merges() -> None:
    policies = replace(pair(12, noise=1e-3, size=(4, 6, 50)), mask=np.ones((4, 6), bool))
    logits = policies.logits.copy()
    logits[2, 3] = 0
    drifted = replace(policies, logits=logits)
    columns = statistics.columns(
        rollout_logprobs=drifted.rollout_logprobs, logprobs=drifted.logprobs, mask=drifted.mask
    )
    joined = divergence_columns.with_divergences(columns, exact(drifted))
    decision = acceptance.decide(joined, acceptance.preset("trm_max"))
    assert decision.reasons == [None, None, "max_kl", None]
    assert decision.certified.tolist() == [False, False, True, False]
    assert batch_signals.compute(joined)["kl_max"] == joined["max_kl"].max()
    merged = Columns.merge(joined, joined)
    assert merged["max_kl"].tolist() == 2 * joined["max_kl"].tolist()
    assert (merged.kl_is, merged.kl_pair) == ("exact", "total")
    with pytest.raises(ValueError, match="divergences has 3 sequences; expected 4"):
        divergence_columns.with_divergences(columns, exact(pair(1)))


def test_the_valid_mask_marks_the_tokens_that_statistics_count() -> None:
    inputs = batch(seed=2, odd=0.2)
    columns = statistics.columns(**inputs)
    valid = valid_mask(**inputs)
    assert valid.sum(-1).tolist() == columns["n_tokens"].tolist()
    assert not (valid & ~inputs["mask"]).any()


class Distributed(np.ndarray[Any, Any]):
    """Has what torch's distributed tensors have."""

    full_tensor = None


A = np.zeros((2, 3, 4), np.float32)
MASK = np.ones((2, 3), bool)
WRONG: dict[str, dict[str, Any]] = {
    "logits (KL of total) or old_logits (KL of mismatch) is required; got neither": {"logits": None},
    "old_logits has shape (2, 3, 3); expected (2, 3, 4) like rollout_logits": {"old_logits": A[..., :3]},
    "rollout_logits is NoneType; expected a torch or numpy array": {"rollout_logits": None},
    "rollout_logits has shape (3, 4); expected [sequences, tokens, vocabulary]": {"rollout_logits": A[0]},
    "logits has shape (2, 3, 3); expected (2, 3, 4) like rollout_logits": {"logits": A[..., :3]},
    "rollout_logits has shape (2, 3, 0); expected": {"rollout_logits": A[..., :0]},
    "logits is distributed; expected .full_tensor()": {"logits": A.view(Distributed)},
    "logits has dtype int64; expected a floating dtype": {"logits": A.astype(int)},
    "mask has shape (2, 2); expected (2, 3)": {"mask": MASK[:, :2]},
    "mask is None; expected shape (2, 3)": {"mask": None},
    "mask has dtype <U1; expected booleans, integers or floats": {"mask": np.full((2, 3), "a")},
    "support has dtype int64; expected booleans": {"support": np.arange(4)},
    "support has shape (3,); expected (4,) or (2, 3, 4)": {"support": np.ones(3, bool)},
    "backend is 'cuda'; expected 'blocks' or 'triton'": {"backend": "cuda"},
}


@pytest.mark.parametrize("message", WRONG)
def test_invalid_arguments_are_rejected_by_name(message: str) -> None:
    arguments = {"rollout_logits": A, "logits": A, "mask": MASK, **WRONG[message]}
    with pytest.raises(ValueError, match=re.escape(message)):
        divergence_columns.exact(**arguments)


def test_logits_beyond_float32_do_not_raise_under_a_strict_floating_point_state() -> None:
    with np.errstate(all="raise"):
        found = divergence_columns.exact(
            rollout_logits=np.array([[[0.0, 1.0]]]), logits=np.array([[[1e300, 0.0]]]), mask=np.ones((1, 1))
        )
    assert found["max_kl"].item() == np.inf
    assert found["sum_kl"].item() == pytest.approx(1e300 / (1 + np.exp(-1.0)))


PROCESS = Path(__file__).with_name("sharded_process.py")
ROOT = Path(__file__).parents[3]


def close(found: Any, expected: Columns, *, rtol: float = 1e-12) -> None:
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
    return divergence_columns.exact(**options, tv=True, sum_pi_squared=True)


def test_ranks_that_share_a_vocabulary_agree_with_the_whole(tmp_path: Path) -> None:
    n_ranks, given = 2, states(size=(3, 100, 16))
    np.savez(tmp_path / "given.npz", **given)
    command = [sys.executable, str(PROCESS), str(tmp_path)]
    ranks = [subprocess.Popen([*command, str(rank), str(n_ranks)], cwd=ROOT) for rank in range(n_ranks)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0] * n_ranks
    expected = whole(given)
    for source in ("logits", "hidden"):
        first = np.load(tmp_path / f"{source}-0.npz")
        close(first, expected, rtol=1e-9)
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
    close(found, divergence_columns.exact(**projected, mask=given["mask"]), rtol=1e-9)
    assert {"max_tv_mismatch", "sum_tv_staleness"} <= found.keys()


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_hidden_states_give_the_divergences_of_their_logits(kind: Any) -> None:
    given = states()
    heads = [HiddenStates(kind(given[name]), kind(given["weight"]), None, 0.7) for name in ("hidden", "new_hidden")]
    mask = kind(given["mask"])
    found = exact_streamed(rollout_logits=heads[0], logits=heads[1], mask=mask, tv=True, sum_pi_squared=True)
    close(found, whole(given), rtol=1e-9)
    assert (found.kl_is, found.kl_pair) == ("exact", "total")


def test_half_precision_heads_with_a_bias_are_projected_in_float32() -> None:
    given = states()
    hidden, weight = (torch.from_numpy(given[name]).bfloat16() for name in ("hidden", "weight"))
    bias = torch.linspace(-1, 1, len(weight))
    head = HiddenStates(hidden, weight, bias)
    found = exact_streamed(rollout_logits=head, old_logits=given["logits"], mask=given["mask"])
    logits = (hidden.double() @ weight.double().T + bias.double()).numpy()
    expected = divergence_columns.exact(rollout_logits=logits, old_logits=given["logits"], mask=given["mask"])
    close(found, expected, rtol=1e-5)
    assert found.kl_pair == "mismatch"


def test_no_tensor_of_tokens_by_vocabulary_is_made() -> None:
    given = heads(size=(1, 512, 8), vocabulary=32_768)
    logits_bytes = 8 * 512 * 32_768
    states_of = [HiddenStates(given[name], given["weight"]) for name in ("hidden", "new_hidden")]
    tracemalloc.start()
    exact_streamed(rollout_logits=states_of[0], logits=states_of[1], mask=given["mask"], tv=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tile_bytes = 8 * divergence_columns.HOST_TILE[0] * divergence_columns.HOST_TILE[1]
    assert peak < 5 * tile_bytes < logits_bytes / 3


def test_positions_that_do_not_count_are_not_projected() -> None:
    hidden = np.full((2, 600, 4), np.nan)
    head = HiddenStates(hidden, np.ones((8, 4)))
    found = exact_streamed(rollout_logits=head, logits=head, mask=np.zeros((2, 600)))
    assert found["n_tokens"].tolist() == [0, 0]
    assert found["max_kl"].tolist() == [-np.inf, -np.inf]


STATES = np.ones((1, 2, 3))
WRONG_STREAMED: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("message", WRONG_STREAMED)
def test_a_wrong_argument_is_named(message: str) -> None:
    arguments = {"rollout_logits": np.ones((1, 2, 5)), "logits": np.ones((1, 2, 5)), "mask": np.ones((1, 2))}
    with pytest.raises(ValueError, match=re.escape(message)):
        exact_streamed(**{**arguments, **WRONG_STREAMED[message]})


def test_squares_are_refused_by_the_triton_kernel() -> None:
    logits = np.ones((1, 2, 5))
    with pytest.raises(ValueError, match="sum_pi_squared needs backend='blocks'"):
        divergence_columns.exact(
            rollout_logits=logits, logits=logits, mask=np.ones((1, 2)), sum_pi_squared=True, backend="triton"
        )
