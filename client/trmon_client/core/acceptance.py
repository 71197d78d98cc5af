"""Acceptance policies and decisions: the public names of `trmon_client.core.policies`."""

from trmon_client.core.policies.criteria import (
    TOKEN_RULES,
    TURN_STATISTICS,
    Criterion,
    PairChoice,
    TokenRule,
    TurnCriterion,
    Where,
)
from trmon_client.core.policies.decision import SEMANTICS_VERSION, Decision, TurnDecision, decide
from trmon_client.core.policies.policy import Policy, preset, preset_names
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN, PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS, PolicyError

__all__ = [
    "CERTIFICATE_MARGIN",
    "PRESETS",
    "SEMANTICS_VERSION",
    "STATISTICS",
    "TOKEN_POLICIES",
    "TOKEN_RULES",
    "TURN_STATISTICS",
    "Criterion",
    "Decision",
    "PairChoice",
    "Policy",
    "PolicyError",
    "TokenRule",
    "TurnCriterion",
    "TurnDecision",
    "Where",
    "decide",
    "preset",
    "preset_names",
]
