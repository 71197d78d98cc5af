"""Interventions: what each action changes in a configuration, and that every cause has a cure like its remedy."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.lab.grpo.experiments import small
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.remedies import remedy
from trmon.domain.severity import Severity
from trmon.lab.grpo.experiment_config import EngineMismatch, PpoReference, Ramp, WeightFormat, constant
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
    changed = intervention(Action.REPLAY_ROUTING, reason="a test").changed(small(architecture="gru"))
    assert not changed.router_replay


WARNING = tuple(spec.id for spec in builtin_catalogue().findings if spec.severity is not Severity.INFO)
VERL = {"actor_rollout_ref.actor.optim.lr": 1e-6, "actor_rollout_ref.actor.ppo_epochs": 4}


def test_every_finding_that_warns_has_a_cure_and_none_too() -> None:
    assert CURES.keys() == set(WARNING)
    assert cure_of(None) is SMALL_STEPS


@pytest.mark.parametrize("finding", WARNING)
def test_a_cure_does_what_the_remedy_of_its_finding_says(finding: str) -> None:
    options = dict(remedy(finding, framework="verl", config=VERL, last_good_step=40, has_ended=True).options)
    cure = CURES[finding]
    said = " ".join(options)
    for words, action in (
        ("resume", Action.ROLL_BACK),
        ("router_replay", Action.REPLAY_ROUTING),
        ("rollout.top_p", Action.SAMPLE_AS_SCORED),
        ("rollout.temperature", Action.SAMPLE_AS_SCORED),
        ("rollout.dtype", Action.RESYNCHRONISE),
        ("ppo_epochs", Action.ONE_EPOCH),
    ):
        assert words not in said or action in cure.actions, words
    assert "optim.lr" not in said or cure.learning_rate_scale <= 0.5


def test_the_remedies_do_name_what_the_cures_are_compared_with() -> None:
    said = {
        finding: " ".join(
            dict(remedy(finding, framework="verl", config=VERL, last_good_step=40, has_ended=True).options)
        )
        for finding in WARNING
    }
    assert "optim.lr" in said["step_too_large"]
    assert "ppo_epochs" in said["clip_saturation"]
