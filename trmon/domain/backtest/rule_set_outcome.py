"""What one rule set raises over a run."""

from __future__ import annotations

import msgspec

from trmon.domain.backtest.raised_alerts import BacktestAlert
from trmon.domain.backtest.rule_gaps import RuleGap


class RuleSetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule set raises over a run.

    `n_raised` alerts fire and incidents open or change, of which `n_sent` notify and `n_pages` notify as a page.
    `first_alarm` and `first_page` are steps; `first_steps` the first step of each rule. `alerts` are the first 200.
    """

    rules: str
    n_raised: int
    n_sent: int
    n_pages: int
    first_alarm: int | None
    first_page: int | None
    first_steps: dict[str, int]
    alerts: tuple[BacktestAlert, ...]
    gaps: tuple[RuleGap, ...]
