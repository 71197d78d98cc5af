"""Options that a run's signals tell: the learning rate."""

from __future__ import annotations

import numpy as np

from tests.domain.diagnosis.runs import run
from trmon.domain.diagnosis.framework_options import with_sent_options
from trmon.domain.diagnosis.remedies import REMEDIES
from trmon.domain.finding import Finding

LR = "actor_rollout_ref.actor.optim.lr"


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
