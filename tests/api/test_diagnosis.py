"""The diagnosis over HTTP, and in the command's output."""

from __future__ import annotations

import io
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from rich.console import Console

from tests.domain.trainer import made
from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from trmon.api.diagnosis_schemas import diagnosis_info
from trmon.cli.diagnose import diagnose_metrics, fetch_diagnosis
from trmon.domain.diagnosis.diagnosis import diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.errors import InvalidInput
from trmon.domain.finding import Finding
from trmon.fleet.summaries import STEPS
from trmon.terminal.diagnosis_text import print_diagnosis
from trmon_client.api import NotFoundError, Service, ServiceUnreachable
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns

PATH = "/api/v1/runs/math/grpo/diagnosis"


def ran(client: httpx.Client, *contents: Columns) -> None:
    send(client, MATH, wire.Start(**ORIGIN))
    for step, content in enumerate(contents):
        send_step(client, MATH, step=step, content=content)
    counts = [wire.ChunkCount(step, None, 1) for step in range(len(contents))]
    send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=counts))
    eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run["state"] == "finished")


def shifted() -> Columns:
    """Return a batch whose engine sampled and scored a nucleus with 0.8 of each distribution."""
    rng = np.random.default_rng(0)
    old = -rng.gamma(0.5, 0.8, (8, 32))
    return columns(rollout_logprobs=np.minimum(old - np.log(0.8), -1e-3), old_logprobs=old, mask=np.ones((8, 32), bool))


def test_a_diagnosis_names_the_step_at_which_the_run_went_wrong(client: httpx.Client) -> None:
    ran(client, *[made("healthy")] * 6, *[made("corrupt")] * 6)
    found = client.get(PATH).json()
    assert (found["primary"], found["step"], found["steps"]) == ("A'", 11, 12)
    assert found["observed"][0]["since_step"] == 6
    evidence = {item["signal"]: item for item in found["observed"][0]["evidence"]}
    assert evidence["saturated_fraction"]["value"] > evidence["saturated_fraction"]["threshold"] == 0.001
    assert "log-prob stream" in found["remedy"]["fix"]
    assert found["remedy"]["verl"]["algorithm.rollout_correction.bypass_mode"] == "false"
    assert found["escalation"]["stage"] == "system_fix"


def test_a_shift_of_the_support_is_found_in_what_the_service_measured(client: httpx.Client) -> None:
    ran(client, *[shifted()] * 5)
    found = client.get(PATH).json()
    assert found["primary"] == "A''"
    assert found["remedy"]["trl"]["top_p"] == "1.0"


def test_a_young_run_is_unknown_and_lists_the_missing_signals(client: httpx.Client) -> None:
    ran(client, *[made("healthy")] * 3)
    found = client.get(PATH).json()
    assert (found["primary"], found["observed"], found["remedy"]) == ("unknown", [], None)
    needs = {gap["provide"] for lost in found["unknown"] for gap in lost["missing"]}
    assert any("105 steps" in need for need in needs)


def test_a_run_without_a_batch_has_no_diagnosis(client: httpx.Client) -> None:
    send(client, MATH, wire.Start(**ORIGIN))
    answer = client.get(PATH)
    assert answer.status_code == 404
    assert "math/grpo" in answer.json()["detail"]


def test_only_the_newest_steps_are_read(client: httpx.Client) -> None:
    ran(client, *[made("healthy")] * (STEPS + 3))
    assert client.get(PATH).json()["steps"] == STEPS


def test_the_command_shows_the_diagnosis_of_the_service(client: httpx.Client, service: ThreadedService) -> None:
    ran(client, *[made("corrupt")] * 4)
    with Service(service.url) as reader:
        found = fetch_diagnosis("math/grpo", service=reader)
    text = io.StringIO()
    print_diagnosis(found, Console(file=text, width=100))
    for said in (
        "A': corrupt log-probs since step 0",
        "saturated_fraction",
        "for the next run: Check",
        "verl  ",
        "TRL  ",
    ):
        assert said in text.getvalue()
    [unknown] = [line for line in text.getvalue().splitlines() if line.startswith("not known: ")]
    assert " (pass " in unknown
    assert "; with more steps: " in unknown


@pytest.mark.parametrize("name", ["grpo", "", "math/../x"])
def test_the_command_requires_a_run_with_its_project(name: str, service: ThreadedService) -> None:
    with Service(service.url) as reader, pytest.raises(InvalidInput):
        fetch_diagnosis(name, service=reader)


def test_an_unreachable_or_refusing_service_is_reported(service: ThreadedService) -> None:
    with Service("http://127.0.0.1:9") as reader, pytest.raises(ServiceUnreachable, match="no service answers"):
        fetch_diagnosis("math/grpo", service=reader)
    with Service(service.url) as reader, pytest.raises(NotFoundError, match="404"):
        fetch_diagnosis("math/none", service=reader)


def test_a_log_line_is_diagnosed_without_a_service(tmp_path: Path) -> None:
    line = tmp_path / "line.json"
    line.write_text(json.dumps({"step": 9, "rollout_corr/ppl_ratio": 2.6e7, "perf/mfu": 0.4}))
    found = diagnose_metrics(line)
    assert (found.primary, found.step) == ("A", 9)
    assert [(ignored.name, ignored.why) for ignored in found.ignored] == [("perf/mfu", "unknown name")]
    text = io.StringIO()
    print_diagnosis(found, Console(file=text, width=100))
    assert "ignored: perf/mfu" in text.getvalue()


def test_a_log_line_between_the_limits_names_its_shortfall(tmp_path: Path) -> None:
    line = tmp_path / "line.json"
    line.write_text(json.dumps({"prob_pearson": 0.97}))
    text = io.StringIO()
    print_diagnosis(diagnose_metrics(line), Console(file=text, width=100))
    assert "not healthy: mismatch_prob_pearson is 0.97 (< 0.99)" in text.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no known format"),
        ("[]", "no metric with a known name"),
        ("{", "not valid JSON"),
        ("3", "no metric with a known name"),
        ('{"kl": }', "not valid JSON"),
        ('{"perf/mfu": 0.4}', r"it has: perf/mfu\. Known are .*verl: rollout_corr/kl"),
    ],
)
def test_a_file_without_a_valid_log_line_is_refused(content: str, reason: str, tmp_path: Path) -> None:
    line = tmp_path / "line.json"
    line.write_text(content)
    with pytest.raises(InvalidInput, match=reason):
        diagnose_metrics(line)
    with pytest.raises(InvalidInput, match="cannot be read"):
        diagnose_metrics(tmp_path / "none.json")


def test_the_remedy_has_the_values_of_the_runs_configuration() -> None:
    found = diagnose(History.of_signals({"mismatch_kl_k3": 1e-4, "staleness_kl_k3": 0.2}, step=9))
    assert found.primary is Finding.STEP_TOO_LARGE
    config = {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}}}
    remedy = diagnosis_info(found, config=config).remedy
    assert remedy is not None
    assert remedy.verl == {"actor_rollout_ref.actor.optim.lr": "5e-7"}
    assert (remedy.trl, remedy.trl_in_words) == ({}, {"learning_rate": "half of what it is"})
