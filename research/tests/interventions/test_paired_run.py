"""A pair: every arm starts from one state, untouched is the run that was never interrupted, and masks are enforced."""

from __future__ import annotations

import msgspec
import pytest

from research.tests.interventions.pairs import AT_ONCE, NEVER, plan
from tests.lab.grpo.experiments import small
from tests.lab.recording import RecordingMonitor
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.lab.grpo.experiment_config import EngineMismatch, WeightFormat, constant
from trmon.lab.grpo.grpo_trainer import UpdateOutcome, train_experiment
from trmon_research.interventions.arm_run import end_reward, run_arm
from trmon_research.interventions.arm_start import arm_start
from trmon_research.interventions.arms import ARMS, FIXED_ARMS, UNTOUCHED
from trmon_research.interventions.intervention import Action, Intervention
from trmon_research.interventions.pair_record import PairRecord
from trmon_research.interventions.paired_run import run_pair
from trmon_research.interventions.watched_prefix import PrefixEnd, WatchedPrefix, train_prefix
from trmon_research.trainer_state import continue_experiment

ILL = small(
    n_updates=6,
    learning_rate=constant(5e-3),
    engine=EngineMismatch(weight_format=WeightFormat.INT3, lag=constant(2.0), router_noise=constant(2.0)),
)


@pytest.fixture(scope="module")
def prefix() -> WatchedPrefix:
    """Three updates of a run whose engine is ill."""
    return train_prefix(ILL, trigger=AT_ONCE, scheduled_at=None)


def test_untouched_is_the_run_that_was_never_interrupted(prefix: WatchedPrefix) -> None:
    whole = list(train_experiment(ILL, RecordingMonitor()))
    assert list(prefix.outcomes) == whole[:3]
    assert arm_start(prefix, FIXED_ARMS[UNTOUCHED]).config == ILL
    assert _outcomes(prefix, FIXED_ARMS[UNTOUCHED]) == whole[3:]
    untouched = run_arm(prefix, UNTOUCHED)
    assert (untouched.end_reward, untouched.n_updates) == (end_reward(whole), 6)
    assert (untouched.mask_rate, untouched.actions, untouched.restored_update) == (0.0, (), None)


def test_every_other_arm_parts_from_it(prefix: WatchedPrefix) -> None:
    untouched = _outcomes(prefix, FIXED_ARMS[UNTOUCHED])
    slower = _outcomes(prefix, FIXED_ARMS["lower_rate"])
    assert slower[0].reward == untouched[0].reward
    assert slower[1:] != untouched[1:]
    for name in ("placebo", "resynchronise", "roll_back"):
        assert _outcomes(prefix, FIXED_ARMS[name])[0].grad_norm != untouched[0].grad_norm


def _outcomes(prefix: WatchedPrefix, chosen: Intervention) -> list[UpdateOutcome]:
    start = arm_start(prefix, chosen)
    return list(continue_experiment(start.config, RecordingMonitor(), start=start.state))


def test_masks_of_the_runs_own_policy_are_enforced(prefix: WatchedPrefix) -> None:
    assert prefix.policy.name == "trm_auto"
    assert run_arm(prefix, "mask").mask_rate > 0.5


def test_a_pair_records_the_moment_and_each_arm() -> None:
    record = run_pair(plan(ILL))
    assert (record.prefix.end, record.prefix.n_updates, record.prefix.onset) == (PrefixEnd.TRIGGERED, 3, None)
    assert [arm.arm for arm in record.arms] == list(ARMS)
    assert record.prefix.finding in (None, *builtin_catalogue().by_id)
    assert {arm.n_updates for arm in record.arms} == {6}
    rolled_back = record.arm("roll_back")
    assert rolled_back is not None
    assert (rolled_back.restored_update, rolled_back.actions) == (0, (Action.ROLL_BACK,))
    assert msgspec.json.decode(msgspec.json.encode(record), type=PairRecord) == record


def test_a_run_whose_trigger_never_fires_has_no_arms() -> None:
    record = run_pair(plan(small(n_updates=4), trigger=NEVER))
    assert (record.prefix.end, record.prefix.n_updates, record.arms) == (PrefixEnd.OVER, 4, ())


def test_a_healthy_run_is_interrupted_at_its_update() -> None:
    record = run_pair(plan(small(n_updates=4), trigger=NEVER, collapses=False, arms=(UNTOUCHED,)))
    assert (record.prefix.end, record.prefix.n_updates) == (PrefixEnd.SCHEDULED, 2)
    assert [arm.arm for arm in record.arms] == [UNTOUCHED]
