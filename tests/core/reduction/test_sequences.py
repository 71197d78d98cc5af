"""Labels, the KL to a reference policy and repeated 4-grams against plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.core.examples import batch
from trmon_client.core import statistics
from trmon_client.core.column_schema import REFERENCE_STEMS, REPETITION_STEMS
from trmon_client.core.columns import Columns
from trmon_client.core.reduction import repetition
from trmon_client.core.signals import batch_signals

LOGPS = ("rollout_logprobs", "old_logprobs", "logprobs")


def example(n_sequences: int = 6, horizon: int = 9) -> dict[str, Any]:
    """Return log-probs of four policies and a mask; the reference is invalid at one token, pi at another."""
    given = batch(seed=3, n_sequences=n_sequences, horizon=horizon, noise=0.3)
    found = {name: given[name].astype(np.float64) for name in LOGPS}
    found["ref_logprobs"] = np.minimum(
        found["logprobs"] + np.random.default_rng(1).normal(0, 0.5, (n_sequences, horizon)), 0.0
    )
    found["mask"] = given["mask"]
    found["mask"][0, :2], found["mask"][1] = True, False
    found["ref_logprobs"][0, 0], found["logprobs"][0, 1] = np.nan, -np.inf
    return found


def plain(given: dict[str, Any], policy: str) -> dict[str, list[float]]:
    """Return the columns by one Python float after another."""
    found: dict[str, list[float]] = {stem: [] for stem in REFERENCE_STEMS}
    for i, row in enumerate(given["mask"]):
        names = [name for name in (*LOGPS, "ref_logprobs") if name in given]
        tokens = [{name: float(given[name][i][t]) for name in names} for t in range(len(row)) if row[t]]
        tokens = [token for token in tokens if all(-1000 < value <= 1e-4 for value in token.values())]
        d = [token["ref_logprobs"] - token[policy] for token in tokens]
        k3 = [math.expm1(x) - x for x in d]
        found["n_ref_tokens"].append(len(d))
        found["sum_ref_d"].append(math.fsum(d))
        found["sum_sq_ref_d"].append(math.fsum(x * x for x in d))
        found["sum_ref_k3"].append(math.fsum(k3))
        found["max_ref_k3"].append(max(k3, default=-math.inf))
        if policy != "rollout_logprobs" and "rollout_logprobs" in given:
            rho = [math.exp(token[policy] - token["rollout_logprobs"]) for token in tokens]
            found["sum_ref_k3_is"].append(math.fsum(weight * x for weight, x in zip(rho, k3, strict=True)))
    return {stem: values for stem, values in found.items() if values}


@pytest.mark.parametrize("without", [(), ("logprobs",), ("logprobs", "old_logprobs"), ("rollout_logprobs",)])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_columns_equal_the_plain_reference(without: tuple[str, ...], kind: Any) -> None:
    given = {name: value for name, value in example().items() if name not in without}
    policy = next(name for name in reversed(LOGPS) if name in given)
    columns = statistics.columns(**{name: kind(value) for name, value in given.items()})
    expected = plain(given, policy)
    assert set(expected) == {name for name in columns if name in REFERENCE_STEMS}
    for name, values in expected.items():
        np.testing.assert_allclose(columns[name], values, rtol=2e-7 if name == "max_ref_k3" else 1e-12, err_msg=name)


def test_a_large_float32_batch_has_the_columns_of_the_plain_reference() -> None:
    given = {name: value if name == "mask" else value.astype(np.float32) for name, value in example(40, 300).items()}
    found = statistics.columns(**given)
    for name, values in plain(given, "logprobs").items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)


def test_nothing_else_changes_and_nothing_is_added_without_a_reference() -> None:
    given = example()
    without = {name: value for name, value in given.items() if name != "ref_logprobs"}
    columns, plain_columns = statistics.columns(**given), statistics.columns(**without)
    assert not {*plain_columns} & {*REFERENCE_STEMS}
    assert {*columns} - {*plain_columns} == {*REFERENCE_STEMS}
    for name in plain_columns:
        np.testing.assert_array_equal(columns[name], plain_columns[name], err_msg=name)
    assert not any(name.startswith("ref_") for name in batch_signals.compute(plain_columns))


def enumerated(weights: dict[str, Any]) -> tuple[dict[str, float], float]:
    """Return the signals of a batch that holds each token as often as mu samples it, and the true KL(pi||ref)."""
    counts = (weights["rollout_logprobs"] * 1000).round().astype(int)
    tokens = np.repeat(np.arange(len(counts)), counts)[None]
    logps = {name: np.log(p)[tokens] for name, p in weights.items()}
    pi, ref = weights["logprobs"], weights["ref_logprobs"]
    columns = statistics.columns(**logps, mask=np.ones(tokens.shape))
    return batch_signals.compute(columns), float((pi * np.log(pi / ref)).sum())


def test_each_estimator_has_its_expectation_on_every_token() -> None:
    mu = np.array([0.4, 0.3, 0.2, 0.1])
    pi, ref = np.array([0.3, 0.3, 0.25, 0.15]), np.array([0.25, 0.25, 0.25, 0.25])
    on_policy, kl = enumerated({"rollout_logprobs": pi, "logprobs": pi, "ref_logprobs": ref})
    assert on_policy["ref_kl_k1"] == pytest.approx(kl, rel=1e-12)
    assert on_policy["ref_kl_k3"] == pytest.approx(kl, rel=1e-12)
    off_policy, kl = enumerated({"rollout_logprobs": mu, "logprobs": pi, "ref_logprobs": ref})
    # Under mu only k3 with the weights pi/mu is unbiased.
    assert off_policy["ref_kl_k3_is"] == pytest.approx(kl, rel=1e-12)
    assert abs(off_policy["ref_kl_k3"] / kl - 1) > 0.05
    assert off_policy["ref_kl_k2"] == pytest.approx((mu * np.log(ref / pi) ** 2).sum() / 2, rel=1e-12)


def test_a_reference_without_a_valid_token_has_no_kl() -> None:
    given = example()
    columns = statistics.columns(**{**given, "ref_logprobs": np.full(given["mask"].shape, np.nan)})
    signals = batch_signals.compute(columns)
    assert all(math.isnan(signals[name]) for name in ("ref_kl_k1", "ref_kl_k2", "ref_kl_k3", "ref_kl_k3_max"))
    assert not math.isnan(signals["total_kl_k3"])


def test_advantages_and_versions_of_tokens_are_reduced_over_valid_tokens_only() -> None:
    logp = np.array([[-1.0, -1.0, -1.0], [-1.0, np.nan, -1.0], [-1.0, -1.0, -1.0]])
    found = statistics.columns(
        rollout_logprobs=logp,
        logprobs=logp,
        mask=np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]]),
        advantages=np.array([[1.0, 2.0, 9.0], [1.0, 9.0, 3.0], [9.0, 9.0, 9.0]]),
        versions=np.array([[3, 5, 99], [7, 1, 8], [4, 4, 4]]),
    )
    np.testing.assert_array_equal(found["advantage"], [1.5, 2.0, np.nan])
    assert found["version_min"].tolist() == [3, 7, -1]
    assert found["version_max"].tolist() == [5, 8, -1]
    negative = statistics.columns(logprobs=logp[:1], mask=[[1, 1, 0]], versions=np.array([[-5, -3, 0]]))
    assert (negative["version_min"].tolist(), negative["version_max"].tolist()) == ([-5], [-3])


def test_labels_of_a_sequence_are_copied() -> None:
    found = statistics.columns(
        **batch(0, n_sequences=2),
        advantages=[0.5, -1],
        rewards=[1, 0],
        versions=[4, 6],
        truncated=[3, 0],
        finish_reasons=["length", None],
        trainer_version=7,
        old_version=6,
    )
    assert found["advantage"].tolist() == [0.5, -1.0]
    assert found["reward"].tolist() == [1.0, 0.0]
    assert found["version_min"].tolist() == found["version_max"].tolist() == [4, 6]
    assert found["truncated"].tolist() == [1, 0]
    assert found["finish_reason"].tolist() == [1, -1]
    assert (found.trainer_version, found.old_version) == (7, 6)


def test_columns_own_their_memory() -> None:
    given = {"advantages": np.ones(3), "rewards": np.ones(3), "group_ids": np.arange(3), "versions": np.arange(3)}
    given["truncated"] = np.ones(3, np.int64)
    found = statistics.columns(**batch(seed=0, n_sequences=3), **given)
    assert not any(np.shares_memory(array, mine) for array in given.values() for mine in found.values())


CLIPPED = {
    "up with a gain: the clipped branch": (1.3, 1.0, (1, 0, 0)),
    "up with a loss: unbounded": (1.3, -1.0, (0, 1, 1)),
    "up with a loss beyond dual clip": (3.1, -1.0, (0, 1, 1)),
    "up with a gain beyond 3: the clipped branch": (3.1, 1.0, (1, 0, 0)),
    "down with a loss: the clipped branch": (0.7, -1.0, (1, 0, 0)),
    "down with a gain: leaks, but bounded": (0.7, 1.0, (0, 1, 0)),
    "within the range": (1.1, 1.0, (0, 0, 0)),
    "an unknown advantage": (1.3, math.nan, (0, 0, 0)),
}


@pytest.mark.parametrize(("ratio", "advantage", "expected"), CLIPPED.values(), ids=CLIPPED)
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("horizon", [2, 300, 1 << 13])
def test_a_token_is_counted_by_its_ratio_and_advantage(
    ratio: float, advantage: float, expected: tuple[int, ...], per_token: bool, horizon: int
) -> None:
    old = np.full((1, horizon), -2.0, np.float32)
    mask = np.arange(horizon)[None] == 0
    found = statistics.columns(
        old_logprobs=old,
        logprobs=old + np.float32(math.log(ratio)),
        mask=mask,
        advantages=np.full((1, horizon) if per_token else 1, advantage),
    )
    assert tuple(found[name][0] for name in ("n_clipped", "n_leaked", "n_leaked_high")) == expected
    by_sign = [found[name][0] for name in ("n_clipped_high", "n_dual_clipped")]
    assert by_sign == [ratio > 1.2 and advantage > 0, ratio > 3 and advantage < 0]
    assert [found["n_positive_advantage"][0], found["n_negative_advantage"][0]] == [advantage > 0, advantage < 0]


def test_the_clip_range_is_an_argument_and_applies_to_staleness_if_it_is_available() -> None:
    rollout = np.full((1, 1), -1.0)
    given: dict[str, Any] = {"mask": rollout < 0, "advantages": [1.0], "logprobs": rollout + math.log(1.25)}
    for clipped, changed in (
        (1, {"old_logprobs": rollout}),
        (0, {"old_logprobs": rollout, "clip_high": 0.28}),
        (1, {"rollout_logprobs": rollout}),
        (0, {"rollout_logprobs": rollout, "old_logprobs": given["logprobs"]}),
    ):
        assert statistics.columns(**given, **changed)["n_clipped"].tolist() == [clipped], changed


def plain_count(ids: Any, mask: Any) -> dict[str, list[int]]:
    """Return both counts of each sequence by a set of tuples, one token after another."""
    found: dict[str, list[int]] = {name: [] for name in REPETITION_STEMS}
    for row, counts in zip(ids, mask, strict=True):
        starts = [start for start in range(len(row) - 3) if all(counts[start : start + 4])]
        grams = [tuple(int(token) for token in row[start : start + 4]) for start in starts]
        found["n_four_grams"].append(len(grams))
        found["n_repeated_four_grams"].append(sum(gram in grams[:at] for at, gram in enumerate(grams)))
    return found


def columns_of(ids: Any, mask: Any, **given: Any) -> Columns:
    logp = -np.ones(np.shape(mask))
    return statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=mask, token_ids=ids, **given)


def counts_in(columns: Any) -> dict[str, list[int]]:
    return {name: [int(value) for value in columns[name]] for name in REPETITION_STEMS}


def looping(n_sequences: int = 7, horizon: int = 40) -> tuple[Any, Any]:
    """Return ids, of few words in the first half of the batch, with any number under the padding, and a mask."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 150_000, (n_sequences, horizon))
    ids[: n_sequences // 2] %= 3
    mask = np.arange(horizon) < random.integers(0, horizon + 1, n_sequences)[:, None]
    mask[1, 10:14], mask[2], mask[-1, :3] = False, False, False
    return np.where(mask, ids, random.choice([-100, 0, 2**31], ids.shape)), mask


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_counts_equal_a_plain_count(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(0, 4)), data.draw(st.integers(0, 12)))
    ids = data.draw(arrays(np.int64, shape, elements=st.sampled_from([0, 1, 2, 65_536, 2**31, -100])))
    mask = data.draw(arrays(np.bool_, shape))
    expected = plain_count(ids, mask)
    assert counts_in(repetition.repetition_columns(ids, mask)) == expected
    assert counts_in(repetition.repetition_columns(torch.from_numpy(ids), torch.from_numpy(mask))) == expected


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_ids_of_any_integer_dtype_count_alike(kind: Any) -> None:
    ids, mask = looping()
    ids = ids % 5
    assert counts_in(columns_of(ids.astype(kind), mask)) == plain_count(ids, mask)


def test_long_answers_are_counted_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = looping(n_sequences=9, horizon=600)
    expected = plain_count(ids, mask)
    assert counts_in(columns_of(ids, mask)) == expected
    monkeypatch.setattr(repetition, "BLOCK_TOKENS", 1200)
    assert counts_in(repetition.repetition_columns(ids, mask)) == expected


def test_the_share_is_of_all_responses_and_its_quantile_of_those_with_a_4_gram() -> None:
    ids = np.array([[7] * 8, range(8), [0] * 8])
    mask = np.array([[True] * 8, [True] * 8, [True] * 3 + [False] * 5])
    found = batch_signals.compute(columns_of(ids, mask))
    assert found["repeated_share"] == pytest.approx(4 / 10)
    assert found["repeated_share_p95"] == pytest.approx(np.quantile([4 / 5, 0.0], 0.95))
    short = batch_signals.compute(columns_of(ids[:, :3], mask[:, :3]))
    assert np.isnan([short["repeated_share"], short["repeated_share_p95"]]).all()


def test_nothing_else_changes_and_nothing_is_added_without_ids() -> None:
    ids, mask = looping()
    mask[2] = True
    with_ids, without = columns_of(ids, mask), columns_of(None, mask)
    assert {*with_ids} - {*without} == {*REPETITION_STEMS}
    for name in without:
        np.testing.assert_array_equal(with_ids[name], without[name], err_msg=name)
    assert not any(name.startswith("repeated") for name in batch_signals.compute(without))


@pytest.mark.parametrize("n_ids", [2, 7, 16])
def test_4_grams_of_few_ids_have_keys_of_their_own(n_ids: int) -> None:
    grams = np.indices((n_ids,) * 4).reshape(4, -1).T
    found = repetition.repetition_columns(grams.reshape(1, -1), np.ones((1, grams.size), bool))
    starts = np.lib.stride_tricks.sliding_window_view(grams.ravel(), 4)
    assert found["n_repeated_four_grams"].tolist() == [len(starts) - len(np.unique(starts, axis=0))]
