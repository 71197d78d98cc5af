"""Monotonicity: a looser bound never accepts less, and a larger divergence never lowers an error bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.batches import batch
from tests.core.example_columns import with_kl
from trmon_client.core import statistics
from trmon_client.core.bounds import error_bounds
from trmon_client.core.columns import Columns
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES

LAW = settings(max_examples=60, derandomize=True)
BOUND_NAMES = ("trpo", "pinsker_marginal", "mixed", "adaptive")

drawn = {
    "seed": st.integers(0, 10**6),
    "noise": st.sampled_from([1e-3, 0.01, 0.1, 1.0]),
    "odd": st.sampled_from([0.0, 0.0, 0.02]),
}
slacks = st.floats(1e-4, 4.0)
"""The distance of a bound from the value that accepts only equal policies."""


def columns_of(seed: int, *, noise: float, odd: float, kl_is: str = "sampled") -> Columns:
    """Return columns of ten sequences, with a KL from logits unless it is only sampled."""
    random = np.random.default_rng(seed)
    labels = {"advantages": random.normal(size=10), "versions": random.integers(-1, 1, 10), "trainer_version": 0}
    columns = statistics.columns(**batch(seed, n_sequences=10, noise=noise, odd=odd), **labels)
    if kl_is == "sampled":
        return columns
    return with_kl(columns, (columns["total_max_k3"] + 1e-3).tolist(), kl_is=kl_is)


def at_slack(name: str, slack: float) -> Policy:
    """Return a preset whose bounds have this distance from the value of equal policies.

    A calibrated preset takes no bounds: a trainer receives it with plain ones, as here.
    """
    if name in PRESETS and PRESETS[name].takes == ("delta",):
        return preset(name, delta=slack)
    if name in PRESETS and PRESETS[name].is_calibrated:
        bounded = tuple(replace(criterion, upper=slack) for criterion in preset(name).criteria)
        return replace(preset(name), criteria=bounded, calibrate=None)
    rule: Any = (preset(name).criteria or preset(name).tokens)[0]
    is_ratio = rule.measured.is_ratio if isinstance(rule, Criterion) else rule.kind.is_ratio
    least, most = (1 / (1 + slack), 1 + slack) if is_ratio else (-slack, slack)
    given = {"lower": None if rule.lower is None else least, "upper": None if rule.upper is None else most}
    return preset(name, **given)


@pytest.mark.parametrize("kl_is", ["sampled", "lower_bound", "exact"])
@pytest.mark.parametrize("name", PRESETS)
@settings(LAW, max_examples=20)
@given(**drawn, slack=slacks, more=slacks)
def test_a_looser_bound_accepts_whatever_a_tighter_one_accepts(
    name: str, kl_is: str, seed: int, noise: float, odd: float, slack: float, more: float
) -> None:
    columns = columns_of(seed, noise=noise, odd=odd, kl_is=kl_is)
    tight, loose = (decide(columns, at_slack(name, bound)) for bound in (slack, slack + more))
    assert (loose.accepted >= tight.accepted).all()
    assert (loose.certified <= tight.certified).all()
    assert not tight.mask_rate < loose.mask_rate


@pytest.mark.parametrize("name", PRESETS)
def test_the_bound_of_every_preset_has_an_effect(name: str) -> None:
    """This shows that the law above is not vacuous."""
    columns = columns_of(3, noise=1e-3, odd=0.0, kl_is="exact")
    tight, loose = (decide(columns, at_slack(name, slack)) for slack in (1e-9, 1.0))
    assert loose.accepted.all()
    assert tight.accepted.sum() < loose.accepted.sum()


@pytest.mark.parametrize("name", TOKEN_POLICIES)
@settings(LAW, max_examples=30)
@given(**drawn, slack=slacks, more=slacks)
def test_a_looser_token_rule_never_keeps_fewer_tokens_or_lowers_weights(
    name: str, seed: int, noise: float, odd: float, slack: float, more: float
) -> None:
    inputs = batch(seed, noise=noise, odd=odd) | {"advantages": np.random.default_rng(seed).normal(size=6)}
    tight, loose = (
        token_decision.apply_token_rules(at_slack(name, bound), **inputs) for bound in (slack, slack + more)
    )
    assert (loose.mask >= tight.mask).all()
    assert (loose.weights >= tight.weights).all()


horizons = st.integers(1, 100_000)
kls = st.floats(0, 10)
factors = st.floats(1, 10)


@LAW
@given(horizons, kls, kls, st.floats(0.1, 10), factors, st.integers(0, 1000))
def test_every_error_bound_grows_with_each_argument(
    horizon: int, kl_max: float, kl_seq: float, reward_range: float, factor: float, longer: int
) -> None:
    base: dict[str, Any] = {"horizon": horizon, "kl_max": kl_max, "kl_seq": kl_seq, "reward_range": reward_range}
    grown = {name: value * factor for name, value in base.items()} | {"horizon": horizon + longer}
    before = error_bounds(**base)
    for name in base:
        after = error_bounds(**{**base, name: grown[name]})
        for kind in BOUND_NAMES:
            assert getattr(after, kind) >= getattr(before, kind), (name, kind)
