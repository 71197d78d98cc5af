"""Small pairs for tests: untrained policies, few updates, and records without a run."""

from __future__ import annotations

from typing import Any

from tests.lab.grpo.experiments import small
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.interventions.arms import ARMS
from trmon_research.interventions.pair_record import FORMAT, ArmRecord, PairPlan, PairRecord, PairSetup, PrefixRecord
from trmon_research.interventions.trigger import SignalTrigger
from trmon_research.interventions.watched_prefix import PrefixEnd

AT_ONCE = SignalTrigger(signal="lr", threshold=0.0, for_steps=3)
"""Fires after the third step."""
NEVER = SignalTrigger(signal="lr", threshold=1e9)


def plan(config: ExperimentConfig | None = None, *, collapses: bool = True, **changed: Any) -> PairPlan:
    """Return a plan of a small pair, whose trigger fires after three updates."""
    usual = {"trigger": AT_ONCE, "arms": ARMS, "healthy_at": 2}
    return PairPlan(config=config or small(n_updates=6), setup=PairSetup(**usual | changed), collapses=collapses)


def arm(name: str, *, onset: int | None = None, end_reward: float = 0.8, mask_rate: float = 0.0) -> ArmRecord:
    """Return the record of an arm."""
    return ArmRecord(
        arm=name,
        actions=(),
        learning_rate_scale=1.0,
        restored_update=None,
        onset=onset,
        sign=None,
        n_updates=6,
        end_reward=end_reward,
        mask_rate=mask_rate,
        cpu_seconds=1.0,
    )


def record(*arms: ArmRecord, collapses: bool = True, seed: int = 0, n_updates: int = 3) -> PairRecord:
    """Return the record of a pair whose reward had a peak of 0.8."""
    prefix = PrefixRecord(
        end=PrefixEnd.TRIGGERED,
        n_updates=n_updates,
        onset=None,
        finding=None,
        last_good_step=None,
        policy="trm_auto",
        peak_reward=0.8,
        end_reward=0.8,
        cpu_seconds=1.0,
    )
    return PairRecord(format=FORMAT, plan=plan(small(seed=seed), collapses=collapses), prefix=prefix, arms=arms)
