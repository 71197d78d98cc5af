"""The diagnosis over HTTP: before a judged step, the options of its remedy, and one risk everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.findings.judgements import found, judged
from tests.domain.memory_log import MemoryLog
from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.running_service import OwnRun, Serve, own_run
from tests.fixtures.trainer import finish, send_step, train_until_risk
from tests.fixtures.waiting import eventually
from trmon.api.diagnosis_answer import diagnosis_info
from trmon.assistants.run_tools import collapse_risk
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import FIRST_ROWS, RiskReading
from trmon.domain.findings.verdict import Word
from trmon.domain.runs.run import RunState
from trmon_client.api import Service
from trmon_client.core import wire

RUN = replace(MemoryLog().stored_run, last_step=40, state=RunState.RUNNING)
VERL = {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}, "rollout": {"n": 8}}, "trainer": {"save_freq": 20}}


def test_a_run_without_a_batch_has_no_diagnosis_and_no_budget(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN))
    for path in ("/diagnosis", "/budget"):
        answer = run.ask("GET", path)
        assert answer.status_code == 404
        assert str(run.key) in answer.json()["detail"]


def test_a_step_that_no_other_follows_is_not_judged_yet(run: OwnRun) -> None:
    run.train(steps=range(1), end=False)
    known = eventually(lambda: run.ask("GET", "/diagnosis"), lambda answer: answer.status_code == 200).json()
    assert (known["word"], known["sentence"], known["rows"]) == (
        "too few rows to judge",
        "too few rows to judge (0 of 20)",
        0,
    )
    assert (known["step"], known["findings"], known["remedy"]) == (0, [], None)
    assert run.get()["status"]["verdict"]["kind"] == "too_few_rows_to_judge"


def test_the_remedy_is_in_the_options_of_the_runs_own_framework_and_at_its_end_for_the_next_one() -> None:
    ill = judged(found("step_too_large"))
    remedy = diagnosis_info(replace(RUN, config=VERL), ill).remedy
    assert remedy is not None
    assert remedy.options["actor_rollout_ref.actor.optim.lr"] == "5e-7"
    unknown = diagnosis_info(RUN, ill).remedy
    assert unknown is not None
    assert (unknown.options, unknown.options_in_words) == ({}, {})
    assert diagnosis_info(RUN, judged()).remedy is None
    ended = diagnosis_info(replace(RUN, state=RunState.FINISHED), ill)
    assert ended.has_ended
    assert ended.remedy is not None
    assert ended.remedy.first.startswith("In the next run, ")


@pytest.mark.parametrize(
    ("lacking", "what"),
    [
        ({"reward": None}, ["reward"]),
        ({"measures_agreement": False, "measures_training": False}, ["agreement", "training"]),
    ],
)
def test_what_is_not_measured_is_said_with_how_to_measure_it(lacking: dict[str, object], what: list[str]) -> None:
    info = diagnosis_info(RUN, judged(word=Word.NOT_JUDGED, **lacking))
    assert [one.what for one in info.unmeasured] == what
    assert all("log_" in one.how for one in info.unmeasured)


def test_what_an_empty_mask_hides_is_not_called_unmeasured(run: OwnRun) -> None:
    empty = columns(n_tokens=np.zeros(4, np.int64))
    run.send(wire.Start(**ORIGIN))
    for step in range(22):
        send_step(run.client, run.key, step=step, content=empty)
    found = eventually(lambda: run.ask("GET", "/diagnosis").json(), lambda said: bool(said.get("findings")))
    assert (found["findings"][0]["title"], found["unmeasured"]) == ("no token in the loss", [])
    assert found["remedy"]["first"].startswith("Look at the mask")
    assert "scalars alone" not in found["answers"]["words"]


def test_the_risk_of_a_collapse_is_past_once_the_reward_has_collapsed_or_the_run_has_finished() -> None:
    risk = RiskReading(probability=0.9, drivers=())
    before, collapsed = judged(), judged(found("reward_collapse"))
    assert [
        diagnosis_info(run, judgement, risk=risk).collapse_risk.level  # type: ignore[union-attr]
        for run, judgement in ((RUN, before), (RUN, collapsed), (replace(RUN, state=RunState.FINISHED), before))
    ] == ["page", "past", "past"]


STEPS = FIRST_ROWS + 4


def diagnosed_risk(run: OwnRun, *, at_step: int) -> Any:
    """Return the risk in the diagnosis once it is of a step."""
    return eventually(lambda: run.get("/diagnosis"), lambda found: found.get("step") == at_step)["collapse_risk"]


@pytest.fixture
def run_judged_early(serve: Serve) -> Iterator[OwnRun]:
    """A run whose newest step is judged after two seconds."""
    with serve(grace_seconds=2.0).client() as client:
        yield own_run(client)


def test_the_risk_of_the_newest_step_is_the_same_everywhere(run_judged_early: OwnRun) -> None:
    run = run_judged_early
    newest_step = train_until_risk(run.client, run.key)
    risk = diagnosed_risk(run, at_step=newest_step)
    drivers = risk["drivers"]
    names = ("collapse_risk", *(f"collapse_risk:{driver['input']}" for driver in drivers))
    signals = run.get(f"/signals?names={','.join(names)}")["signals"]
    newest = [signals[name]["last"][-1] for name in names]
    assert [risk["probability"], *(driver["log_odds"] for driver in drivers)] == newest
    assert newest[1:] == sorted(newest[1:], reverse=True)
    file = shipped_model().file
    assert (risk["horizon_steps"], risk["warn_at"], risk["page_at"]) == (200, file.warn_at, file.page_at)
    assert risk["model"] == {"name": file.name, "fitted_on": file.fitted_on}
    brief = eventually(lambda: run.get()["status"], lambda status: status["judged_step"] == newest_step)[
        "collapse_risk"
    ]
    assert brief == {name: risk[name] for name in ("probability", "level", "driven_by", "calibration")}
    with Service(str(run.client.base_url)) as service:
        told = collapse_risk(service, str(run.key))
    assert [one["words"] for one in told["drivers"]] == [one["words"] for one in drivers]
    assert [told["probability"], *(one["log_odds"] for one in told["drivers"])] == pytest.approx(newest, rel=1e-3)
    assert (told["level"], told["calibration"]) == (risk["level"], risk["calibration"])
    line = f'trmon_collapse_risk{{project="{run.key.project}",run="grpo"}} {risk["probability"]!r}'
    eventually(lambda: run.client.get("/metrics").text, lambda text: line in text)
    finish(run.client, run.key, steps=range(newest_step + 2))
    assert diagnosed_risk(run, at_step=newest_step + 1)["level"] == "past"
    assert run.get()["status"]["collapse_risk"]["level"] == "past"


def test_small_batches_have_no_risk(run: OwnRun) -> None:
    run.train(steps=range(STEPS + 2), end=False)
    assert diagnosed_risk(run, at_step=STEPS - 1) is None


def test_a_run_has_no_risk_in_its_first_rows(run: OwnRun) -> None:
    run.train(steps=range(7), end=False)
    assert diagnosed_risk(run, at_step=4) is None
    assert run.get()["status"]["collapse_risk"] is None
    assert run.get("/signals?names=collapse_risk")["signals"]["collapse_risk"]["last"][-1] is None
    assert f'trmon_collapse_risk{{project="{run.key.project}"' not in run.client.get("/metrics").text
