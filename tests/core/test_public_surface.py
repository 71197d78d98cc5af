"""The functional surface: other tools import these names from these modules and pass these keywords."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trmon_client.core import acceptance, bounds, divergence, signals, statistics
from trmon_client.core.columns import Columns

EXPORTS = {
    "statistics": {"columns"},
    "columns": {"Columns"},
    "divergence": {"HiddenStates", "exact", "exact_streamed", "topk_lower_bound"},
    "gradients": {"GradientMoments", "cosine", "gradient_moments", "progress_proxy"},
    "signals": {"compute", "SIGNALS", "REGISTRY_VERSION"},
    "acceptance": {"Criterion", "Decision", "Policy", "PolicyError", "TokenRule", "decide", "preset"},
    "bounds": {"ErrorBounds", "batch_bounds", "error_bounds", "max_delta"},
}
"""The names of each module of `trmon_client.core`."""

KEYWORDS: dict[Callable[..., Any], set[str]] = {
    statistics.columns: {
        *("rollout_logprobs", "old_logprobs", "logprobs", "ref_logprobs", "mask", "cu_seqlens"),
        *("advantages", "rewards", "group_ids"),
        *("versions", "truncated", "trainer_version", "old_version", "clip_low", "clip_high"),
        *("turn_ids", "turn_offsets", "backend"),
    },
    divergence.exact: {
        *("rollout_logits", "logits", "old_logits", "mask", "support", "tv", "sum_pi_squared", "backend"),
    },
    divergence.exact_streamed: {
        *("rollout_logits", "logits", "old_logits", "mask", "group", "tv", "sum_pi_squared"),
    },
    divergence.topk_lower_bound: {
        *("topk_ids", "topk_logprobs", "rollout_logprobs", "logits", "old_logits", "token_ids", "mask"),
    },
    acceptance.preset: {"delta", "lower", "upper", "soft_tau"},
    bounds.error_bounds: {"horizon", "kl_max", "kl_seq", "kl_is", "reward_range"},
    bounds.max_delta: {"horizon", "budget", "kl_seq"},
}
POSITIONAL: dict[Callable[..., Any], list[str]] = {
    signals.compute: ["columns"],
    acceptance.decide: ["columns", "policy"],
    acceptance.preset: ["name"],
    acceptance.Policy.parse: ["policy"],
}


@pytest.mark.parametrize("module", EXPORTS)
def test_a_module_exports_its_public_names(module: str) -> None:
    found = importlib.import_module(f"trmon_client.core.{module}")
    assert [name for name in EXPORTS[module] if not hasattr(found, name)] == []
    # A package or a facade lists what it exports; `statistics` defines its function itself.
    assert EXPORTS[module] <= {*getattr(found, "__all__", EXPORTS[module])}


@pytest.mark.parametrize("function", KEYWORDS, ids=lambda function: function.__name__)
def test_a_function_takes_exactly_these_keyword_only_arguments(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == KEYWORDS[function]


@pytest.mark.parametrize("function", POSITIONAL, ids=lambda function: function.__qualname__)
def test_a_function_takes_these_positional_arguments(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD] == POSITIONAL[function]


def test_the_surface_leads_from_log_probs_to_a_decision() -> None:
    logp = np.full((2, 3), -1.0)
    part = statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=logp < 0)
    columns = Columns.merge(part, part)
    assert columns["n_tokens"].tolist() == [3, 3, 3, 3]
    assert signals.compute(columns)["total_kl_k3"] == 0.0
    policy = acceptance.Policy.parse({"name": "strict", "criteria": [{"statistic": "max_k3", "upper": 0.1}]})
    for chosen in (policy, acceptance.Policy.parse("geo_mask"), acceptance.preset("trm_max", delta=0.05)):
        decision = acceptance.decide(columns, chosen)
        assert decision.accepted.tolist() == [True] * 4
        assert decision.reasons == [None] * 4
        assert np.isnan(decision.values).all()
        assert (decision.certified.any(), decision.mask_rate) == (False, 0.0)


def test_the_surface_leads_from_logits_to_error_bounds() -> None:
    logits, mask = np.zeros((1, 2, 5)), np.ones((1, 2), bool)
    exact = divergence.exact(rollout_logits=logits, logits=logits, mask=mask, support=None, tv=False)
    assert (exact["max_kl"].tolist(), exact.kl_is) == ([0.0], "exact")
    logp = np.log(np.full((1, 2), 0.2))
    lower = divergence.topk_lower_bound(
        topk_ids=np.array([[[0], [1]]]),
        topk_logprobs=logp[..., None],
        rollout_logprobs=logp,
        logits=logits,
        token_ids=np.array([[0, 1]]),
        mask=mask,
    )
    assert (lower["max_kl"].tolist(), lower.kl_is) == ([0.0], "lower_bound")
    found = bounds.error_bounds(horizon=2, kl_max=0.0, kl_seq=0.0)
    assert isinstance(found, bounds.ErrorBounds)
    assert found.adaptive == 0.0
    assert bounds.max_delta(horizon=2, budget=0.5, kl_seq=None) > 0
