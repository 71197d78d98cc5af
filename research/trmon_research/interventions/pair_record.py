"""The record of a pair: the run before the trigger, and what became of each arm."""

from __future__ import annotations

import msgspec

from trmon.domain.analysis.collapse import SHARE_LOST, CollapseSign
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_client.core.wire.messages import decodable
from trmon_research.interventions.intervention import Action
from trmon_research.interventions.trigger import Trigger
from trmon_research.interventions.watched_prefix import PrefixEnd

FORMAT = 1


class PairSetup(msgspec.Struct, frozen=True, kw_only=True):
    """How the pairs of a folder are run: the trigger, the arms, and when healthy runs are interrupted."""

    trigger: Trigger
    arms: tuple[str, ...]
    healthy_at: int


class PairPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A pair to run: a configuration whose stored run collapsed, or did not and is interrupted in any case."""

    config: ExperimentConfig
    setup: PairSetup
    collapses: bool

    @property
    def run_name(self) -> str:
        """The name of the configuration's run."""
        return self.config.run_name


class PrefixRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The run up to `n_updates`: why it ended there, its own collapse if there was one, and the service's view.

    `finding` is the id of the finding that led; `policy` is in force, calibrated or not. `peak_reward` is that of
    the clean evaluation, smoothed over 20 updates.
    """

    end: PrefixEnd
    n_updates: int
    onset: int | None
    finding: str | None
    last_good_step: int | None
    policy: str
    peak_reward: float
    end_reward: float
    cpu_seconds: float


class ArmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One way to continue: what was changed, and what became of the run.

    `onset` is the update at which it collapsed, of the whole run; a rolled back run is labelled without the updates
    that it took back. `end_reward` is the mean clean evaluation of the last 50 updates, `mask_rate` the share of
    sequences that left the loss.
    """

    arm: str
    actions: tuple[Action, ...]
    learning_rate_scale: float
    restored_update: int | None
    onset: int | None
    sign: CollapseSign | None
    n_updates: int
    end_reward: float
    mask_rate: float
    cpu_seconds: float


@decodable
class PairRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished pair; without arms if the trigger never fired."""

    format: int
    plan: PairPlan
    prefix: PrefixRecord
    arms: tuple[ArmRecord, ...]

    def arm(self, name: str) -> ArmRecord | None:
        """Return an arm by its name, or None."""
        return next((arm for arm in self.arms if arm.arm == name), None)

    def is_lost(self, arm: ArmRecord) -> bool:
        """Whether a run collapsed in an arm, or ends with 30% less reward than its peak before the intervention.

        The second holds for falls too late to be labelled, and for a rollback that never comes back.
        """
        return arm.onset is not None or arm.end_reward < (1 - SHARE_LOST) * self.prefix.peak_reward
