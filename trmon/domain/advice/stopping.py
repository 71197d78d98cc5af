"""When a trainer that opted in should stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon.domain.model.finding import Finding

STOP_OPTION = "stop_on_collapse"
"""The key of a run's configuration that opts in."""
STOPPING_FINDINGS = frozenset({Finding.REWARD_COLLAPSE, Finding.NOT_A_NUMBER})
"""The findings that stop: each is the collapse itself. A stop on findings of drift would have ended 13 of 98 runs that
did not collapse; formulas, section 10."""


def stops_on_collapse(config: Mapping[str, Any]) -> bool:
    """Whether the configuration of a run opts in: `stop_on_collapse` is true."""
    return config.get(STOP_OPTION) is True
