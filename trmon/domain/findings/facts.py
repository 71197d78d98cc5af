"""What a run's configuration declares of its engines, which clauses and healthy ranges depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon.domain.findings.configuration import config_value, decimal_of

REPLAY_OPTIONS = ("router_replay", "router_replay.mode", "actor_rollout_ref.actor.megatron.router_replay.mode")
REPLAYS = (True, "R2", "R3")
EXPERT_OPTIONS = ("num_experts", "n_routed_experts", "moe", "actor_rollout_ref.model.num_experts")
QUANTISATION_OPTIONS = (
    *("quantization", "rollout_quantization", "actor_rollout_ref.rollout.quantization"),
    *("kv_cache_dtype", "rollout_dtype", "fp8"),
)
TEMPERATURE_OPTIONS = (
    *("temperature", "actor_rollout_ref.rollout.temperature", "generator.sampling_params.temperature"),
    *("gconfig.temperature", "rollout_temperature"),
)


def facts_of(config: Mapping[str, Any]) -> dict[str, float]:
    """Return what a configuration declares: `replay_declared` and `noisy` (experts, FP8), 1 each, and `temperature`."""
    experts = (config_value(config, option) for option in EXPERT_OPTIONS)
    formats = (config_value(config, option) for option in QUANTISATION_OPTIONS)
    has_experts = any(given is True or ((n := decimal_of(given)) is not None and n > 1) for given in experts)
    declared = {
        "replay_declared": any(config_value(config, option) in REPLAYS for option in REPLAY_OPTIONS),
        "noisy": has_experts or any(given is True or "fp8" in str(given).lower() for given in formats),
    }
    facts = {name: 1.0 for name, is_declared in declared.items() if is_declared}
    given = (decimal_of(config_value(config, option)) for option in TEMPERATURE_OPTIONS)
    temperature = next((float(value) for value in given if value), None)
    return facts if temperature is None else {**facts, "temperature": temperature}
