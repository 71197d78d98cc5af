"""Acceptance policies and decisions: the public names of `trmon_client.core.policies`."""

from trmon_client.core.policies.acceptance import (
    CERTIFICATE_MARGIN,
    PRESETS,
    SEMANTICS_VERSION,
    STATISTICS,
    TOKEN_POLICIES,
    TOKEN_RULES,
    Criterion,
    Decision,
    PairChoice,
    Policy,
    PolicyError,
    TokenRule,
    Where,
    decide,
    preset,
)

__all__ = [
    "CERTIFICATE_MARGIN",
    "PRESETS",
    "SEMANTICS_VERSION",
    "STATISTICS",
    "TOKEN_POLICIES",
    "TOKEN_RULES",
    "Criterion",
    "Decision",
    "PairChoice",
    "Policy",
    "PolicyError",
    "TokenRule",
    "Where",
    "decide",
    "preset",
]
