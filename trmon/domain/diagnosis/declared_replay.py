"""Whether a run's configuration declares that training takes the rollout's experts again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon.domain.diagnosis.run_config import config_value

OPTIONS = (
    "router_replay",
    "router_replay.mode",
    "actor_rollout_ref.actor.megatron.router_replay.mode",
)
"""The last one is verl's."""
REPLAYS = (True, "R2", "R3")


def declares_replay(config: Mapping[str, Any]) -> bool:
    """Whether `router_replay` is true, or it or verl's mode is R2 or R3."""
    return any(config_value(config, option) in REPLAYS for option in OPTIONS)
