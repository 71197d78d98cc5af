"""The risk of a collapse over HTTP: the same in the diagnosis, the fleet, the signals and on /metrics."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.running_service import OwnRun
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import finish, train_until_risk
from tests.fixtures.waiting import eventually
from trmon.assistants.diagnosis_tools import collapse_risk_tool
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import FIRST_ROWS
from trmon_client.api import Service

STEPS = FIRST_ROWS + 4


def diagnosed_risk(run: OwnRun, *, at_step: int) -> Any:
    """Return the risk in the diagnosis once it is of a step."""
    return eventually(lambda: run.get("/diagnosis"), lambda found: found.get("step") == at_step)["collapse_risk"]


def test_the_risk_of_the_newest_step_is_the_same_everywhere(run: OwnRun, shared_service: ThreadedService) -> None:
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
    with Service(shared_service.url) as service:
        told = collapse_risk_tool(service, str(run.key))
    assert [one["words"] for one in told["drivers"]] == [one["words"] for one in drivers]
    assert [told["probability"], *(one["log_odds"] for one in told["drivers"])] == pytest.approx(newest, rel=1e-3)
    assert (told["level"], told["calibration"]) == (risk["level"], risk["calibration"])
    line = f'trmon_collapse_risk{{project="{run.key.project}",run="grpo"}} {risk["probability"]!r}'
    eventually(lambda: run.client.get("/metrics").text, lambda text: line in text)
    finish(run.client, run.key, steps=range(newest_step + 2))
    assert diagnosed_risk(run, at_step=newest_step + 1)["level"] == "past"
    assert run.get()["status"]["collapse_risk"]["level"] == "past"


def test_small_batches_have_no_risk(run: OwnRun) -> None:
    run.train(steps=range(STEPS + 1), end=False)
    assert diagnosed_risk(run, at_step=STEPS - 1) is None


def test_a_run_has_no_risk_in_its_first_rows(run: OwnRun) -> None:
    run.train(steps=range(6), end=False)
    assert diagnosed_risk(run, at_step=4) is None
    assert run.get()["status"]["collapse_risk"] is None
    assert run.get("/signals?names=collapse_risk")["signals"]["collapse_risk"]["last"][-1] is None
    assert f'trmon_collapse_risk{{project="{run.key.project}"' not in run.client.get("/metrics").text
