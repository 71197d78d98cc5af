"""The statistics against golden vectors, a plain reference and their laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.core import golden, reference
from tests.core.agreement import agree, same
from tests.core.examples import GIVES, POISON, batch, batch_of_zeros
from trmon_client.core import statistics
from trmon_client.core.column_schema import COLUMNS, N_BINS, PAIR_STEMS, PAIRS
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import check_inputs
from trmon_client.core.reduction.sequences import BLOCK_TOKENS


@pytest.mark.parametrize("case", golden.cases())
def test_columns_equal_the_golden_values_and_no_other_column_exists(case: str) -> None:
    found = statistics.columns(**golden.inputs(case))
    expected = golden.columns(case)
    # The golden files are older than these columns, which have the plain reference.
    newer = {"n_mu_zero", "sum_sq_logp_rollout", "sum_sq_logp_old", "sum_sq_logp"}
    newer |= {"n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail", "n_positive", "max_positive"}
    newer |= {"n_clipped_high", "n_dual_clipped", "n_positive_advantage", "n_negative_advantage"}
    assert set(found) - newer == set(expected) | {"advantage"}
    with np.errstate(invalid="ignore"):
        agree(found, expected)


@pytest.mark.parametrize("names", GIVES.values(), ids=GIVES)
@pytest.mark.parametrize(
    ("noise", "odd", "horizon"),
    [(1e-4, 0.0, 12), (0.3, 0.1, 12), (8.0, 0.0, 12), (8.0, 0.1, 12), (0.1, 0.05, 1), (0.1, 0.05, 300)],
)
def test_columns_equal_the_plain_reference(names: tuple[str, ...], noise: float, odd: float, horizon: int) -> None:
    inputs = batch(seed=7, n_sequences=12, horizon=horizon, noise=noise, odd=odd)
    given = {name: inputs[name] for name in names}
    advantages = np.random.default_rng(8).normal(size=inputs["mask"].shape)
    found = statistics.columns(**given, mask=inputs["mask"], advantages=advantages)
    with np.errstate(invalid="ignore"):
        agree(found, reference.columns(given, inputs["mask"], advantages))
    for pair in found.pairs:
        assert found.histograms[pair].tolist() == reference.histogram(given, inputs["mask"], pair)


def test_columns_have_the_dtype_of_the_schema_and_pairs_have_all_their_columns() -> None:
    labels: dict[str, Any] = {
        "advantages": np.ones(6, np.float32),
        "rewards": np.ones(6),
        "group_ids": [1] * 6,
        "versions": np.ones(6, int),
        "truncated": [True] * 6,
    }
    found = statistics.columns(**batch(0), **labels)
    assert all(array.dtype == COLUMNS[name].dtype and array.shape == (6,) for name, array in found.items())
    assert {f"{pair}_{stem}" for pair in PAIRS for stem in PAIR_STEMS} <= set(found)
    assert all(counts.dtype == np.int64 and counts.shape == (N_BINS,) for counts in found.histograms.values())


@pytest.mark.parametrize("odd", [0.0, 0.1])
@pytest.mark.parametrize("horizon", [12, 300])
def test_torch_and_numpy_give_the_same_columns(odd: float, horizon: int) -> None:
    inputs = batch(seed=5, odd=odd, horizon=horizon)
    extra = {
        "advantages": np.random.default_rng(1).normal(size=(6, horizon)),
        "versions": np.random.default_rng(2).integers(0, 9, (6, horizon)),
        "rewards": np.arange(6.0),
        "group_ids": np.arange(6),
        "truncated": np.arange(6) > 3,
    }
    mask = inputs.pop("mask")
    on_host = check_inputs(**inputs, mask=mask, **extra)
    found = statistics.columns_of_inputs(on_host.mapped(lambda array: torch.from_numpy(np.array(array))))
    assert all(isinstance(array, torch.Tensor) for array in found.values())
    same(found.numpy(), statistics.columns_of_inputs(on_host))


@pytest.mark.parametrize("horizon", [12, 300])
@pytest.mark.parametrize("n_sequences", [1, 6, 2000])
def test_torch_never_reads_a_value_from_the_device(n_sequences: int, horizon: int) -> None:
    shape = (n_sequences, horizon)
    logp = dict.fromkeys(GIVES["all three"], np.zeros(shape, np.float32))
    labels = {"mask": np.ones(shape), "rewards": np.ones(n_sequences), "group_ids": np.arange(n_sequences)}
    by_token = {"advantages": np.ones(shape), "versions": np.ones(shape, int)}
    for given in (logp | by_token, dict(list(logp.items())[:1]), {}):
        inputs = check_inputs(**given, **labels)
        # Tensors on the meta device hold no values, so reading one raises.
        found = statistics.columns_of_inputs(inputs.mapped(lambda array: torch.from_numpy(array).to("meta")))
        assert {array.device.type for array in (*found.values(), *found.histograms.values())} == {"meta"}
        assert {tuple(array.shape) for array in found.values()} == {(n_sequences,)}


def test_reducing_block_by_block_gives_the_same_columns() -> None:
    inputs = batch(seed=2, n_sequences=700, horizon=64)
    halves = [{name: array[part] for name, array in inputs.items()} for part in (slice(None, 300), slice(300, None))]
    whole = statistics.columns(**inputs)
    assert whole.n_sequences * 64 > BLOCK_TOKENS
    same(whole, Columns.merge(*(statistics.columns(**half) for half in halves)))


@pytest.mark.parametrize("magnitude", [1e-3, 1e-4, 1e-6])
def test_k3_is_accurate_at_the_healthy_scale_where_float32_is_not(magnitude: float) -> None:
    random = np.random.default_rng(0)
    rollout = (-random.random((1, 512)) * 1e-2 - magnitude * 2).astype(np.float32)
    new = (rollout + magnitude * random.choice([-1, 1, 1], rollout.shape)).astype(np.float32)
    found = statistics.columns(rollout_logprobs=rollout, logprobs=new, mask=np.ones_like(rollout))
    d = new - rollout
    exact = math.fsum(reference.columns({"rollout_logprobs": rollout, "logprobs": new}, [[1] * 512])["total_sum_k3"])
    naive = float((np.exp(d) - np.float32(1) - d).sum())
    assert found["total_sum_k3"][0] == pytest.approx(exact, rel=1e-9, abs=0)
    assert abs(naive - exact) > 1e-5 * exact, "plain float32 would be accurate enough"


def test_sums_of_probabilities_near_one_keep_a_variance_that_float32_loses() -> None:
    logp = np.full((1, 100_000), -1e-5, np.float32)
    logp[0, ::2] = -3e-5
    found = statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=np.ones_like(logp))
    n = logp.size
    variance = found["total_sum_pp"][0] / n - (found["total_sum_p"][0] / n) ** 2
    p = np.exp(logp)
    naive = float((p * p).sum() / np.float32(n) - (p.sum() / np.float32(n)) ** 2)
    assert variance == pytest.approx(1e-10, rel=1e-3)
    assert abs(naive - 1e-10) > 1e-10


@pytest.mark.parametrize("value", POISON)
@pytest.mark.parametrize("name", GIVES["all three"])
def test_an_invalid_log_prob_removes_its_token_from_every_pair_and_is_counted(name: str, value: float) -> None:
    inputs = batch(seed=4)
    inputs["mask"][:] = True
    without = inputs["mask"].copy()
    without[2, 5] = False
    expected = statistics.columns(**inputs | {"mask": without})
    inputs[name][2, 5] = value
    found = statistics.columns(**inputs)
    assert found["n_invalid"].tolist() == [0, 0, 1, 0, 0, 0]
    assert found["n_positive"].tolist() == [0, 0, int(value > 1e-4), 0, 0, 0]
    assert found["max_positive"][2] == (value if value > 1e-4 else -math.inf) or np.isnan(value)
    counted = {each: expected[each] for each in ("n_invalid", "n_positive", "max_positive")}
    same(Columns({**found, **counted}, found.histograms), expected)


TOKENS = {
    "zero where the trainer gives 0.9 is saturated": ((0.0, math.log(0.9)), {"n_saturated": 1}),
    "zero where the trainer gives 0.995 is not": ((0.0, math.log(0.995)), {"n_saturated": 0}),
    "d of 20 is not clamped": ((-20.0, 0.0), {"n_clamped": 0, "total_n_band_high": 1, "total_n_trunc": 1}),
    "a ratio of one half is in the band": ((-1.0, -1.0 - math.log(2)), {"total_n_band_low": 0}),
    "for a certain token the rest takes its smallest value": ((-1e-9, -999.0), {"total_max_binary_kl": 999.0 - 1.0}),
}


@pytest.mark.parametrize(("logps", "expected"), TOKENS.values(), ids=TOKENS)
def test_columns_of_a_single_token(logps: tuple[float, float], expected: dict[str, float]) -> None:
    rollout, new = (np.array([[logp]]) for logp in logps)
    found = statistics.columns(rollout_logprobs=rollout, logprobs=new, mask=np.ones((1, 1), bool))
    assert {name: float(found[name][0]) for name in expected} == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("horizon", [1, 12, 300, 2048], ids=["one", "time first", "time last", "large"])
@pytest.mark.parametrize("names", GIVES.values(), ids=GIVES)
def test_zeros_of_the_sampler_and_their_tails_are_counted_by_every_reduction(
    horizon: int, names: tuple[str, ...]
) -> None:
    inputs = batch_of_zeros(3, horizon=horizon)
    given = {name: inputs[name] for name in names}
    expected = reference.columns(given, inputs["mask"])
    counts = {name: expected[name] for name in ZERO_COUNTS if name in expected}
    assert not counts or horizon < 12 or all(any(numbers) for numbers in counts.values())
    on_host = check_inputs(**given, mask=inputs["mask"])
    agree(statistics.columns_of_inputs(on_host), counts)
    agree(statistics.columns_of_inputs(on_host.mapped(torch.as_tensor)), counts)
    assert set(counts) in ({*ZERO_COUNTS}, set())


ZERO_COUNTS = ("n_mu_zero", "n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail", "n_positive")


def test_a_probability_of_one_half_is_not_unlikely() -> None:
    half = np.array([[np.log(np.float32(0.5)), np.nextafter(np.log(np.float32(0.5)), np.float32(-1))]])
    for dtype in (np.float32, np.float64):
        logp = half.astype(dtype)
        assert statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=logp < 0)["n_unlikely"].tolist() == [1]


def test_argmax_is_the_first_of_equal_largest_log_ratios() -> None:
    rollout = np.full((2, 5), -2.0)
    new = rollout + np.array([[0.0, 0.5, -0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    mask = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 1]])
    assert statistics.columns(rollout_logprobs=rollout, logprobs=new, mask=mask)["argmax_abs_d"].tolist() == [2, 1]


@pytest.mark.parametrize("shape", [(0, 0), (0, 7), (3, 0)])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_an_empty_batch_is_allowed(shape: tuple[int, int], kind: Any) -> None:
    none = kind(np.zeros(shape, np.float32))
    found = statistics.columns(rollout_logprobs=none, old_logprobs=none, logprobs=none, mask=none, advantages=none)
    for name, array in found.items():
        np.testing.assert_array_equal(array, np.full(shape[0], COLUMNS[name].identity), err_msg=name)
    assert all(counts.sum() == 0 for counts in found.histograms.values())


def test_a_strict_floating_point_state_does_not_raise() -> None:
    with np.errstate(all="raise"):
        found = statistics.columns(**batch(seed=6, odd=0.2, noise=30.0))
    assert np.isfinite(found["total_sum_k3"]).all()


FEWER = {"one policy": ("logprobs",), "the rollout's policy": ("rollout_logprobs",), "no policy": ()}


@pytest.mark.parametrize("names", FEWER.values(), ids=FEWER)
@pytest.mark.parametrize("horizon", [12, 600], ids=["short", "long"])
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_fewer_than_two_policies_have_the_columns_that_need_no_pair(
    names: tuple[str, ...], horizon: int, odd: float
) -> None:
    inputs = batch(seed=9, horizon=horizon, odd=odd)
    given, mask = {name: inputs[name] for name in names}, inputs["mask"]
    labels = {"rewards": np.arange(6.0), "advantages": np.random.default_rng(0).normal(size=mask.shape)}
    found = statistics.columns(**given, mask=mask, **labels)
    # The reference needs a pair: it gets the same policy twice.
    twin = given | {"old_logprobs": given.get(*names) if names else np.full(mask.shape, -1.0)}
    twin |= {"logprobs": twin["old_logprobs"]}
    expected = reference.columns(twin, mask)
    own = {reference.NAMES[name] for name in names}
    counted = {"n_tokens", "n_invalid", *own, *(name.replace("sum_", "sum_sq_") for name in own)}
    counted |= {"n_mu_zero"} if "rollout_logprobs" in names else set()
    assert set(found) == counted | {"reward", "advantage"}
    assert (found.pairs, found.primary, found.histograms) == ((), None, {})
    agree(found, {name: expected[name] for name in counted})


def test_one_policy_can_be_packed_ragged_or_a_tensor() -> None:
    rows = [np.array([-1.0, -2.0, -0.5]), np.array([-3.0])]
    ragged = statistics.columns(logprobs=rows)
    packed = statistics.columns(logprobs=np.concatenate(rows), cu_seqlens=[0, 3, 4])
    lengths = statistics.columns(cu_seqlens=[0, 3, 4], rewards=[1.0, 0.0])
    masked = statistics.columns(mask=[torch.ones(3), torch.ones(1)], rewards=[1.0, 0.0])
    same(packed, ragged, relative=0)
    assert ragged["sum_logp"].tolist() == [-3.5, -3.0]
    assert lengths["n_tokens"].tolist() == masked["n_tokens"].tolist() == [3, 1]


def test_a_list_of_none_is_not_given() -> None:
    inputs = batch(seed=9, n_sequences=2)
    found = statistics.columns(**inputs | {"rollout_logprobs": [None, None]})
    assert found.pairs == ("staleness",)
