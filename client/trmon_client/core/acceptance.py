"""Acceptance policies and decisions: the public names of `trmon_client.core.policies`."""

from trmon_client.core.policies.criterion import Criterion, PairChoice, Where
from trmon_client.core.policies.decide import SEMANTICS_VERSION, decide
from trmon_client.core.policies.decision import Decision
from trmon_client.core.policies.policy import Policy, preset, preset_names
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN, PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS, PolicyError
from trmon_client.core.policies.token_rule import TOKEN_RULES, TokenRule
from trmon_client.core.policies.turn_criterion import TURN_STATISTICS, TurnCriterion
from trmon_client.core.policies.turn_decision import TurnDecision

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
