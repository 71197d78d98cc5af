"""The diagnosis over HTTP: of which steps it is, and with which values its remedy."""

from __future__ import annotations

from tests.fixtures.messages import ORIGIN
from tests.fixtures.running_service import OwnRun
from trmon.api.diagnosis_answer import diagnosis_info
from trmon.domain.diagnosis.diagnosis import diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.finding import Finding
from trmon.fleet.summaries import STEPS
from trmon_client.core import wire


def test_only_the_newest_steps_are_read(run: OwnRun) -> None:
    run.train(steps=range(STEPS + 3))
    found = run.get("/diagnosis")
    assert (found["step"], found["steps"]) == (STEPS + 2, STEPS)


def test_a_run_without_a_batch_has_no_diagnosis_and_no_budget(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN))
    for path in ("/diagnosis", "/budget"):
        answer = run.ask("GET", path)
        assert answer.status_code == 404
        assert str(run.key) in answer.json()["detail"]


def test_the_remedy_has_the_values_of_the_runs_configuration() -> None:
    found = diagnose(History.of_signals({"mismatch_kl_k3": 1e-4, "staleness_kl_k3": 0.2}, step=9))
    assert found.primary is Finding.STEP_TOO_LARGE
    config = {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}}}
    remedy = diagnosis_info(found, config=config).remedy
    assert remedy is not None
    assert remedy.verl == {"actor_rollout_ref.actor.optim.lr": "5e-7"}
    assert (remedy.trl, remedy.trl_in_words) == ({}, {"learning_rate": "half of what it is"})
