"""The risk of a collapse over HTTP: in the diagnosis, the fleet, the signals and on /metrics."""

from __future__ import annotations

import io
from typing import Any

import httpx
import pytest
from rich.console import Console

from tests.fixtures.messages import ORIGIN
from tests.fixtures.trainer import MATH, finish, send, train
from tests.fixtures.waiting import eventually
from trmon.domain.collapse_risk.risk_inputs import BASELINE_STEPS, INPUT_NAMES
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import risk_sentence
from trmon.terminal.diagnosis_text import print_diagnosis
from trmon_client.api import Service
from trmon_client.core import wire
from trmon_client.core.signals.catalogue import signal_words

RUN = "/api/v1/runs/math/grpo"
STEPS = BASELINE_STEPS + 4
MODEL = shipped_model()


def diagnosis(client: httpx.Client, *, at_step: int = STEPS - 1) -> dict[str, Any]:
    """Return the diagnosis once it is of a step."""
    answer: dict[str, Any] = eventually(
        lambda: client.get(f"{RUN}/diagnosis").json(), lambda found: found.get("step") == at_step
    )
    return answer


def newest(client: httpx.Client, *names: str) -> dict[str, float | None]:
    """Return the newest values of signals."""
    series = client.get(f"{RUN}/signals", params={"names": ",".join(names)}).json()
    return {name: bands["last"][-1] for name, bands in series["signals"].items()}


@pytest.fixture
def going(client: httpx.Client) -> httpx.Client:
    """A service with a run that has its baselines and goes on; its newest step closes with a finish only."""
    train(client, steps=range(STEPS + 1), end=False)
    return client


def test_the_diagnosis_states_the_risk_of_the_newest_step_and_what_drives_it(going: httpx.Client) -> None:
    risk = diagnosis(going)["collapse_risk"]
    drivers = risk["drivers"]
    signals = newest(going, "collapse_risk", *(f"collapse_risk:{driver['input']}" for driver in drivers))
    assert risk["probability"] == signals["collapse_risk"]
    assert [driver["log_odds"] for driver in drivers] == list(signals.values())[1:]
    assert [driver["log_odds"] for driver in drivers] == sorted((d["log_odds"] for d in drivers), reverse=True)
    assert [driver["words"] for driver in drivers] == [signal_words(driver["input"]) for driver in drivers]
    assert risk["horizon_steps"] == 200
    assert (risk["warn_at"], risk["page_at"]) == (MODEL.file.warn_at, MODEL.file.page_at)
    assert risk["model"] == {"name": MODEL.file.name, "fitted_on": MODEL.file.fitted_on}
    is_read = {name for name, is_read in zip(INPUT_NAMES, MODEL.is_read, strict=True) if is_read}
    assert set(risk["missing"]) == is_read - {driver["input"] for driver in drivers}
    assert set(risk["outside"]) <= {driver["input"] for driver in drivers}
    assert risk["level"] == expected_level(risk["probability"])


def expected_level(probability: float) -> str:
    """Return the level of a probability by the shipped model's thresholds."""
    reached = [name for name, at in (("warn", MODEL.file.warn_at), ("page", MODEL.file.page_at)) if probability >= at]
    return reached[-1] if reached else "low"


def test_the_fleet_states_it_in_brief(going: httpx.Client) -> None:
    full = diagnosis(going)["collapse_risk"]
    brief = eventually(lambda: going.get(RUN).json()["status"], lambda run: run["judged_step"] == STEPS - 1)[
        "collapse_risk"
    ]
    assert brief == {name: full[name] for name in ("probability", "level", "driven_by")}
    assert full["driven_by"] == [driver["words"] for driver in full["drivers"][:2] if driver["log_odds"] > 0]


def test_the_client_reads_it(going: httpx.Client) -> None:
    found = diagnosis(going)["collapse_risk"]
    eventually(lambda: going.get(RUN).json()["status"], lambda run: run["judged_step"] == STEPS - 1)
    with Service(str(going.base_url)) as service:
        risk, brief = service.diagnosis("math/grpo").collapse_risk, service.status("math/grpo").collapse_risk
    assert risk is not None
    assert brief is not None
    assert (risk.probability, brief.probability) == (found["probability"], found["probability"])
    assert [(one.input, one.log_odds) for one in risk.drivers] == [
        (d["input"], d["log_odds"]) for d in found["drivers"]
    ]


def test_the_terminal_and_the_shared_report_say_it_in_a_line(going: httpx.Client) -> None:
    risk = diagnosis(going)["collapse_risk"]
    sentence = risk_sentence(risk["probability"], risk["driven_by"])
    text = io.StringIO()
    with Service(str(going.base_url)) as service:
        print_diagnosis(service.diagnosis("math/grpo"), Console(file=text, width=200))
    assert f"{sentence} (warns at {MODEL.file.warn_at:.0%}, pages at {MODEL.file.page_at:.0%})" in text.getvalue()
    assert all(signal_words(name) in text.getvalue() for name in risk["missing"])
    report = going.get(f"{RUN}/report.html").text
    assert f"{sentence} (a prediction)." in report
    assert "Risk of collapse" in report


def test_metrics_have_the_risk_of_the_newest_step(going: httpx.Client) -> None:
    probability = diagnosis(going)["collapse_risk"]["probability"]
    line = f'trmon_collapse_risk{{project="math",run="grpo"}} {probability!r}'
    eventually(lambda: going.get("/metrics").text, lambda text: line in text)


def test_a_run_has_no_risk_before_its_inputs_have_a_baseline(client: httpx.Client) -> None:
    train(client, steps=range(6), end=False)
    assert diagnosis(client, at_step=4)["collapse_risk"] is None
    assert client.get(RUN).json()["status"]["collapse_risk"] is None
    assert newest(client, "collapse_risk") == {"collapse_risk": None}
    assert "trmon_collapse_risk{" not in client.get("/metrics").text


def test_a_run_that_has_finished_has_nothing_left_to_predict(going: httpx.Client) -> None:
    finish(going, steps=range(STEPS + 1))
    assert diagnosis(going, at_step=STEPS)["collapse_risk"]["level"] == "past"
    assert going.get(RUN).json()["status"]["collapse_risk"]["level"] == "past"


def test_a_run_by_its_scalars_has_a_risk_and_the_missing_inputs_are_named(client: httpx.Client) -> None:
    send(client, MATH, wire.Start(**ORIGIN))
    for step in range(STEPS + 1):
        scalars = {"reward": 0.5 + 0.01 * step, "grad_norm": 1.0, "lr": 1e-3}
        send(client, MATH, wire.Scalars(**ORIGIN, sequence=step + 1, step=step, values=scalars))
    risk = diagnosis(client)["collapse_risk"]
    assert 0.0 < risk["probability"] < 1.0
    assert {driver["input"] for driver in risk["drivers"]} <= {"reward_mean", "grad_norm", "lr"}
    assert {"kl_k3", "ess_token", "sampled_entropy"} <= set(risk["missing"])
