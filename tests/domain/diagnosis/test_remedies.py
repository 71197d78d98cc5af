"""Remedies: every finding has one, for both frameworks."""

from __future__ import annotations

import ast

import pytest

from trmon.domain.diagnosis.remedies import FORM_REMEDIES, REMEDIES, Remedy, for_next_run, remedy_of
from trmon.domain.finding import Finding, FindingForm, form_of_rule
from trmon.domain.rules.rule_yaml import builtin_rules

ALL = {finding.value: remedy for finding, remedy in REMEDIES.items()} | {
    form.value: remedy for form, remedy in FORM_REMEDIES.items()
}


def test_every_finding_that_can_be_found_has_a_remedy() -> None:
    assert REMEDIES.keys() == set(Finding) - {Finding.HEALTHY, Finding.UNKNOWN}


@pytest.mark.parametrize("remedy", ALL.values(), ids=ALL)
def test_a_remedy_says_what_to_change_and_what_if_that_does_not_help(remedy: Remedy) -> None:
    assert remedy.fix.endswith(".")
    assert remedy.persists.endswith(".")
    assert remedy.verl
    assert remedy.trl


@pytest.mark.parametrize("remedy", ALL.values(), ids=ALL)
def test_options_can_be_pasted_into_a_shell_and_into_python(remedy: Remedy) -> None:
    config = {"learning_rate": 1e-6, "steps_per_generation": 8, "num_generations": 8, "temperature": 0.9}
    config |= {"output_dir": "out", "save_steps": 10}
    rendered = remedy.render(config, last_good_step=100)
    for option, value in (rendered.trl | rendered.trl_next).items():
        assert option.isidentifier()
        ast.literal_eval(value)
    for option, value in (rendered.verl | rendered.verl_next).items():
        assert all(part.isidentifier() for part in option.split("."))
        assert value.strip()


@pytest.mark.parametrize("remedy", ALL.values(), ids=ALL)
def test_without_a_configuration_no_words_are_among_the_values_to_paste(remedy: Remedy) -> None:
    rendered = remedy.render()
    values = (rendered.verl | rendered.trl | rendered.verl_next | rendered.trl_next).values()
    assert not [value for value in values if " " in value]
    assert (rendered.verl | rendered.verl_in_words).keys() == remedy.verl.keys()
    assert (rendered.trl_next | rendered.trl_next_in_words).keys() == remedy.trl_next.keys()


def test_the_two_sides_of_entropy_have_opposite_remedies() -> None:
    collapse, explosion = (remedy_of(Finding.ENTROPY, form) for form in FindingForm)
    bonus = "actor_rollout_ref.actor.entropy_coeff"
    assert (collapse.verl_next[bonus], explosion.verl[bonus]) == ("0.001", "0")
    assert (collapse.trl["epsilon_high"], explosion.trl["entropy_coef"]) == ("0.28", "0.0")
    assert "epsilon_high" not in explosion.trl


def test_each_form_is_that_of_a_builtin_rule_with_its_finding() -> None:
    of_rules = {form_of_rule(rule.finding, rule.name) for rule in builtin_rules()}
    assert of_rules == {None, *FindingForm}
    assert form_of_rule(Finding.LENGTH, "entropy_collapse") is None


def test_after_the_end_of_a_run_its_remedy_does_not_say_to_stop_it() -> None:
    rendered = REMEDIES[Finding.REWARD_COLLAPSE].render(has_ended=True)
    assert rendered.fix.startswith("Go back to the last good checkpoint")
    assert REMEDIES[Finding.REWARD_COLLAPSE].render().fix.startswith("Stop, go back")
    assert for_next_run("Halve the learning rate.") == "Halve the learning rate."


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
