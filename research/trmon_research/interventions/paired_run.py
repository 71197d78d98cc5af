"""Runs one pair: the prefix once, then every arm from its end."""

from __future__ import annotations

import math
import time

from trmon.domain.analysis.collapse import smoothed
from trmon_research.interventions.arm_run import end_reward, run_arm
from trmon_research.interventions.pair_record import FORMAT, PairPlan, PairRecord, PrefixRecord
from trmon_research.interventions.watched_prefix import PrefixEnd, WatchedPrefix, train_prefix


def run_pair(plan: PairPlan) -> PairRecord:
    """Train the prefix of a pair and all its arms, and return the record."""
    started, setup = time.process_time(), plan.setup
    scheduled_at = None if plan.collapses else setup.healthy_at
    prefix = train_prefix(plan.config, trigger=setup.trigger, scheduled_at=scheduled_at)
    record = _record(prefix, cpu_seconds=time.process_time() - started)
    goes_on = prefix.end is not PrefixEnd.OVER and prefix.state.next_update < plan.config.n_updates
    arms = tuple(run_arm(prefix, name) for name in setup.arms) if goes_on else ()
    return PairRecord(format=FORMAT, plan=plan, prefix=record, arms=arms)


def _record(prefix: WatchedPrefix, *, cpu_seconds: float) -> PrefixRecord:
    levels = smoothed([outcome.evaluated.reward for outcome in prefix.outcomes])
    known = [level for level in levels if not math.isnan(level)]
    reward = end_reward(prefix.outcomes)
    return PrefixRecord(
        end=prefix.end,
        n_updates=len(prefix.outcomes),
        onset=prefix.label.onset,
        finding=prefix.cause.finding,
        last_good_step=prefix.cause.last_good_step,
        policy=prefix.policy.name,
        peak_reward=max(known, default=reward),
        end_reward=reward,
        cpu_seconds=round(cpu_seconds, 1),
    )
