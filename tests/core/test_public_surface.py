"""The functional surface: other tools import these names from these modules and pass these keywords."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from trmon_client.core import acceptance, bounds, divergence, signals, statistics

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
        *("versions", "truncated", "trainer_version", "old_version", "clip_low", "clip_high", "clip_dual"),
        *("turn_ids", "turn_offsets", "finish_reasons", "token_ids", "backend"),
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
