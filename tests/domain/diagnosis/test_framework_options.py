"""Options of remedies, with the values of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.domain.diagnosis.runs import run
from trmon.domain.diagnosis.framework_options import (
    TRL_RESUME,
    VERL_RESUME,
    Multiple,
    Present,
    RunFacts,
    rendered_options,
    with_sent_options,
)
from trmon.domain.diagnosis.history import config_number
from trmon.domain.diagnosis.remedies import REMEDIES
from trmon.domain.finding import Finding
from trmon.domain.findings.configuration import config_value

LR = "actor_rollout_ref.actor.optim.lr"


@pytest.mark.parametrize(
    "config",
    [
        {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}}},
        {LR: 1e-6},
        {"actor_rollout_ref.actor": {"optim.lr": "1e-6"}},
    ],
)
def test_half_a_learning_rate_is_a_number_where_the_configuration_has_it(config: dict[str, Any]) -> None:
    remedy = REMEDIES[Finding.STEP_TOO_LARGE].render(config)
    assert remedy.verl == {LR: "5e-7"}
    assert (remedy.trl, remedy.trl_in_words) == ({}, {"learning_rate": "half of what it is"})


def test_trls_arguments_are_names_of_the_configuration() -> None:
    config = {"learning_rate": 2e-5, "steps_per_generation": 7, "num_generations": 8}
    staleness = REMEDIES[Finding.STALENESS].render(config)
    assert staleness.trl["steps_per_generation"] == "3"
    assert staleness.trl_next["learning_rate"] == "1e-5"
    assert REMEDIES[Finding.NO_LEARNING_SIGNAL].render(config).trl == {"num_generations": "16"}


def test_half_of_one_step_stays_one() -> None:
    assert rendered_options({"n": Multiple(0.5, "half", least=1)}, RunFacts(config={"n": 1})).values == {"n": "1"}


@pytest.mark.parametrize("value", [None, True, "fast", [1], float("nan")])
def test_what_is_no_number_is_not_multiplied(value: object) -> None:
    rendered = rendered_options({"lr": Multiple(0.5, "half")}, RunFacts(config={"lr": value}))
    assert (rendered.values, rendered.in_words) == ({}, {"lr": "half"})


def test_the_present_value_of_another_option_is_taken() -> None:
    options = {"rollout.temperature": Present("actor.temperature", "1.0")}
    known = rendered_options(options, RunFacts(config={"actor": {"temperature": 0.8}}))
    assert known.values == {"rollout.temperature": "0.8"}
    assert rendered_options(options, RunFacts(config={})).values == {"rollout.temperature": "1.0"}


def test_the_checkpoint_is_the_last_one_that_was_saved_by_the_last_good_step() -> None:
    verl = {"trainer": {"default_local_dir": "/ckpt/math", "save_freq": 20}}
    rendered = rendered_options(VERL_RESUME, RunFacts(config=verl, last_good_step=117))
    assert rendered.values == {
        "trainer.resume_mode": "resume_path",
        "trainer.resume_from_path": "/ckpt/math/global_step_100",
    }
    trl = {"output_dir": "out", "save_steps": 50}
    found = rendered_options(TRL_RESUME, RunFacts(config=trl, last_good_step=117))
    assert found.values == {"resume_from_checkpoint": '"out/checkpoint-100"'}


def test_a_checkpoint_that_is_not_known_is_said_in_words() -> None:
    def resume(config: dict[str, Any], step: int | None) -> str:
        rendered = rendered_options(TRL_RESUME, RunFacts(config=config, last_good_step=step))
        assert not rendered.values
        return rendered.in_words["resume_from_checkpoint"]

    assert resume({"save_steps": 50}, None) == "the last good checkpoint"
    assert resume({}, 117) == "the last checkpoint at or before step 117"
    assert resume({"save_steps": 500}, 117) == "none: no checkpoint was saved by step 117"
    assert resume({"save_steps": 50}, 117) == "checkpoint-100, the last at or before step 117"


def test_what_makes_sense_only_beside_a_checkpoint_is_not_to_be_pasted_without_it() -> None:
    rendered = rendered_options(VERL_RESUME, RunFacts(config={}, last_good_step=117))
    assert not rendered.values
    assert rendered.in_words["trainer.resume_mode"] == "resume_path"


def test_an_option_is_found_nested_dotted_or_not_at_all() -> None:
    config = {"a": {"b": {"c": 1}}, "x.y": 2, "text": "3e-1"}
    assert config_value(config, "a.b.c") == 1
    assert config_value(config, "x.y") == 2
    assert config_value(config, "a.b.d") is None
    assert config_value(config, "a.b.c.d") is None
    assert config_number(config, "text") == 0.3


def test_the_largest_rate_that_was_sent_gives_the_value_to_paste() -> None:
    config = with_sent_options({"task": "add"}, run(lr=np.linspace(2e-6, 1e-6, 80)))
    remedy = REMEDIES[Finding.STEP_TOO_LARGE].render(config)
    assert (remedy.verl, remedy.trl) == ({LR: "1e-6"}, {"learning_rate": "1e-6"})
    assert config["task"] == "add"


def test_the_rate_of_the_configuration_comes_before_the_one_that_was_sent() -> None:
    nested = {"actor_rollout_ref": {"actor": {"optim": {"lr": 8e-6}}}}
    assert with_sent_options(nested, run(lr=1e-6)) == {**nested, "learning_rate": 1e-6}


def test_a_run_that_sent_no_rate_keeps_its_configuration() -> None:
    assert with_sent_options({"seed": 1}, run()) == {"seed": 1}
    assert with_sent_options({"seed": 1}, run(lr=np.nan)) == {"seed": 1}
