"""Interventions: what each action changes in a configuration, and that every cause has a cure like its remedy."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.lab.grpo.experiments import small
from trmon.domain.diagnosis.framework_options import ACTOR, CORRECTION, ROLLOUT
from trmon.domain.diagnosis.remedies import REMEDIES
from trmon.domain.finding import CAUSES, Finding
from trmon.lab.grpo.experiment_config import EngineMismatch, PpoReference, Ramp, WeightFormat, constant
from trmon.lab.grpo.token_policy import Architecture
from trmon_research.interventions.arms import CURES, SMALL_STEPS, cure_of
from trmon_research.interventions.intervention import Action, intervention

ENGINE = EngineMismatch(
    weight_format=WeightFormat.INT3, lag=constant(4.0), top_p=constant(0.8), router_noise=constant(1.0)
)
ILL = small(engine=ENGINE, ppo_reference=PpoReference.ROLLOUT, n_epochs=3, length_bonus=constant(1.0))


@pytest.mark.parametrize(
    ("action", "changed"),
    [
        (
            Action.RESYNCHRONISE,
            {"engine": structs.replace(ENGINE, lag=constant(0.0), weight_format=WeightFormat.FLOAT32)},
        ),
        (Action.SAMPLE_AS_SCORED, {"engine": structs.replace(ENGINE, top_p=constant(1.0))}),
        (Action.OWN_REFERENCE, {"ppo_reference": PpoReference.OLD}),
        (Action.ONE_EPOCH, {"n_epochs": 1}),
        (Action.PLAIN_OBJECTIVE, {"length_bonus": constant(0.0)}),
        (Action.REPLAY_ROUTING, {"router_replay": True}),
        (Action.MASK, {}),
        (Action.ROLL_BACK, {}),
        (Action.RESEED, {}),
    ],
)
def test_an_action_changes_what_an_owner_can_change_and_leaves_the_rest(
    action: Action, changed: dict[str, Any]
) -> None:
    assert intervention(action, reason="a test").changed(ILL) == structs.replace(ILL, **changed)


def test_a_ramp_of_the_rate_goes_on_scaled() -> None:
    ramp = Ramp(1e-3, 5e-3, first_update=10, n_updates=20)
    changed = intervention(rate=0.5, reason="a test").changed(small(learning_rate=ramp))
    assert changed.learning_rate == Ramp(5e-4, 2.5e-3, first_update=10, n_updates=20)


def test_only_a_policy_with_a_router_replays_its_routing() -> None:
    changed = intervention(Action.REPLAY_ROUTING, reason="a test").changed(small(architecture=Architecture.GRU))
    assert not changed.router_replay


def test_every_cause_has_a_cure_and_no_cause_too() -> None:
    assert CURES.keys() == set(CAUSES)
    assert cure_of(None) is SMALL_STEPS


@pytest.mark.parametrize("finding", CAUSES)
def test_a_cure_does_what_the_remedy_of_its_finding_says(finding: Finding) -> None:
    first, cure = REMEDIES[finding].verl, CURES[finding]
    has = cure.actions.__contains__
    if f"{ACTOR}.optim.lr" in first:
        assert cure.learning_rate_scale <= 0.5
    if "trainer.resume_mode" in first:
        assert has(Action.ROLL_BACK)
    if f"{ACTOR}.megatron.router_replay.mode" in first:
        assert has(Action.REPLAY_ROUTING)
    if f"{ROLLOUT}.top_p" in first or f"{ROLLOUT}.temperature" in first:
        assert has(Action.SAMPLE_AS_SCORED)
    if f"{ROLLOUT}.dtype" in first or any("parameter_sync_step" in option for option in first):
        assert has(Action.RESYNCHRONISE)
    if first.get(f"{CORRECTION}.bypass_mode") == "false":
        assert has(Action.OWN_REFERENCE)
    if finding is Finding.CLIP_SATURATION:
        assert f"{ACTOR}.ppo_epochs" in first
        assert has(Action.ONE_EPOCH)
    if finding in (Finding.VARIANCE_BLOWUP, Finding.MODERATE_DRIFT, Finding.MOE_ROUTING):
        assert any(option.startswith(CORRECTION) for option in first)
        assert has(Action.MASK)
