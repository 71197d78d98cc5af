"""Remedies: every finding has one, for both frameworks."""

from __future__ import annotations

import ast

import pytest

from trmon.domain.diagnosis import REMEDIES, Finding


def test_every_finding_that_can_be_found_has_a_remedy() -> None:
    assert REMEDIES.keys() == set(Finding) - {Finding.HEALTHY, Finding.UNKNOWN}


@pytest.mark.parametrize("finding", REMEDIES, ids=lambda finding: finding.value)
def test_a_remedy_says_what_to_change_and_what_if_that_does_not_help(finding: Finding) -> None:
    remedy = REMEDIES[finding]
    assert remedy.fix.endswith(".")
    assert remedy.persists.endswith(".")
    assert remedy.verl
    assert remedy.trl


@pytest.mark.parametrize("finding", REMEDIES, ids=lambda finding: finding.value)
def test_options_can_be_pasted_into_a_shell_and_into_python(finding: Finding) -> None:
    config = {"learning_rate": 1e-6, "steps_per_generation": 8, "num_generations": 8, "temperature": 0.9}
    config |= {"output_dir": "out", "save_steps": 10}
    rendered = REMEDIES[finding].render(config, last_good_step=100)
    for option, value in (rendered.trl | rendered.trl_next).items():
        assert option.isidentifier()
        ast.literal_eval(value)
    for option, value in (rendered.verl | rendered.verl_next).items():
        assert all(part.isidentifier() for part in option.split("."))
        assert value.strip()


def test_the_remedies_of_drift_follow_its_survey() -> None:
    correction = "algorithm.rollout_correction"
    engine = REMEDIES[Finding.ENGINE_MISMATCH].render()
    assert "FP16 on both engines" in engine.fix
    assert engine.verl["actor_rollout_ref.rollout.dtype"] == engine.verl["actor_rollout_ref.actor.fsdp_config.dtype"]
    assert engine.trl["fp16"] == "True"
    stale = REMEDIES[Finding.STALENESS].render().verl
    assert (stale[f"{correction}.rollout_is"], stale[f"{correction}.rollout_is_threshold"]) == ("sequence", "2.0")
    assert stale[f"{correction}.rollout_rs_threshold"] == '"0.99_1.01"'
    assert REMEDIES[Finding.VARIANCE_BLOWUP].render().verl[f"{correction}.rollout_is_threshold"] == '"0.5_5.0"'
    clipping = REMEDIES[Finding.CLIP_SATURATION].render({"learning_rate": 1e-6})
    assert clipping.trl == {"num_iterations": "1", "learning_rate": "5e-7"}
    assert clipping.verl_next["actor_rollout_ref.actor.policy_loss.loss_mode"] == "gspo"
    assert clipping.trl_next["importance_sampling_level"] == '"sequence"'
