"""Runbooks: every command runs as pasted, against a stored run; the recorder's steps and worst answers are named."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import trmon_client as trmon
from tests.fixtures.command import run_here
from tests.fixtures.running_service import ILL, WELL, RecordedRuns, Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.two_engines import two_engines_batch
from tests.fixtures.waiting import eventually
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.health.runbook import Stage, runbook_of, runbooks_file
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon_client.api import Service

NAMES = (*(spec.id for spec in builtin_catalogue().findings), *(rule.name for rule in builtin_rules().others))
PLACES = {"PROJECT/RUN": str(ILL.key), "FIRST": "10", "LAST": "30", "STEP": "20"}
NOT_LOGGED = {"loss"}
"""Scalars that findings read and the stored run does not log."""
ILL_FROM = 24


@pytest.fixture(scope="module")
def replayed(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    service = recorded.serve(recorded.running, tmp_path_factory.mktemp("runbook") / "data", grace_seconds=0.1)
    with service.client() as client:
        path = f"/api/v1/runs/{ILL.key}"
        eventually(lambda: client.get(path).json()["status"], lambda status: status["judged_step"] == status["step"])
    yield service
    service.stop()


def test_every_finding_and_rule_has_a_runbook_of_four_stages_and_no_other_has() -> None:
    assert set(runbooks_file().entries) == set(NAMES)
    rules = builtin_rules().by_name
    for name in NAMES:
        stages = runbook_of(name, catalogue=builtin_catalogue(), rule=rules.get(name))
        assert [one.stage for one in stages] == list(get_args(Stage))
        assert all(one.lines for one in stages), name
        assert all("{" not in line for one in stages for line in (*one.lines, *one.commands)), name


def test_every_command_of_every_runbook_runs_against_a_stored_run(replayed: ThreadedService) -> None:
    rules, commands = builtin_rules().by_name, set()
    for name in NAMES:
        for one in runbook_of(name, catalogue=builtin_catalogue(), rule=rules.get(name)):
            commands |= set(one.commands)
    assert len(commands) > 20
    unknown = set()
    for command in sorted(commands):
        written = re.sub("PROJECT/RUN|FIRST|LAST|STEP", lambda found: PLACES[found[0]], command)
        program, *arguments = shlex.split(written)
        done = run_here(*arguments, "--url", replayed.url)
        assert program == "trmon"
        missing = re.search(r"names: '(\w+)' is not a known signal", done.output)
        assert done.exit_code == 0 or missing, (command, done.output)
        unknown |= {missing[1]} if missing else set()
    assert unknown == NOT_LOGGED


def test_the_runbook_of_a_run_has_its_values_and_its_commands_run_as_pasted(replayed: ThreadedService) -> None:
    printed = run_here("runbook", ILL.key, "--url", replayed.url)
    with Service(replayed.url) as service:
        found, diagnosis = service.runbook(str(ILL.key)), service.diagnosis(str(ILL.key))
    assert (printed.exit_code, found.cause) == (0, "stale_rollouts")
    confirm, rule_out, mitigate, verify = found.stages
    assert diagnosis.findings[0].evidence[0].words in confirm.lines[1]
    assert diagnosis.remedy is not None
    assert mitigate.lines[0] == diagnosis.remedy.first
    assert any("Not measured, so not ruled out" in line or "Not found" in line for line in rule_out.lines)
    assert verify.lines[0].startswith("It ends when ")
    for stage in found.stages:
        for command in stage.commands:
            assert command in printed.output
            program, *arguments = shlex.split(command)
            assert (program, run_here(*arguments).exit_code) == ("trmon", 0), command
    assert found.answers == diagnosis.answers
    assert found.answers.command == "export TRMON_RECORD_DIR=recordings"
    assert "not recorded" in found.answers.words


def test_a_name_has_the_runbook_without_values_and_a_healthy_run_has_none(replayed: ThreadedService) -> None:
    assert "trmon diagnose PROJECT/RUN" in run_here("runbook", "entropy_collapse", "--url", replayed.url).output
    refused = run_here("runbook", WELL.key, "--url", replayed.url)
    assert (refused.exit_code, "no problem to act on" in refused.output) == (1, True)
    assert "is no run, finding or rule" in run_here("runbook", "entropie", "--url", replayed.url).output


def test_an_incident_names_the_steps_that_the_recorder_kept_and_the_command_shows_the_worst(
    serve: Serve, tmp_path: Path
) -> None:
    service, folder = serve(), tmp_path / "recordings of ana"
    options = {"spool_dir": tmp_path / "spool", "record_dir": folder, "record_texts": True}
    with service.client() as client, trmon.init(project="math", run="r", url=service.url, **options) as monitor:
        steps = iter(range(1000))

        def train() -> bool:
            step = next(steps)
            texts = [f"answer {step}.{i}" for i in range(16)]
            batch = two_engines_batch(step, ill_from=ILL_FROM)
            monitor.log_batch(**batch, chunks=1, rewards=np.arange(16.0), texts=texts)
            eventually(lambda: client.get(f"/api/v1/runs/math/r/batches/{step}").status_code == 200)
            answers = (client.get("/api/v1/runs/math/r/diagnosis").json() or {}).get("answers")
            return bool(answers and "kept steps" in answers["words"])

        eventually(train)
        run = client.get("/api/v1/runs/math/r").json()
        answers = client.get("/api/v1/runs/math/r/runbook").json()["answers"]
    kept = re.search(r"kept steps (\d+) to (\d+) on \S+\.", answers["words"])
    assert kept is not None
    first, last = map(int, kept.groups())
    assert first < last
    assert run["warnings"] == []
    assert run["config"]["launch"]["record_dir"] == str(folder)
    program, *arguments = shlex.split(answers["command"])
    assert program == "trmon"
    done = run_here(*arguments)
    assert done.exit_code == 0
    worst = re.findall(r"^step (\d+), rank 0, chunk 0, sequence \d+: ", done.stdout, re.MULTILINE)
    assert len(worst) == 5
    assert all(first <= int(step) <= last for step in worst)
    least = run_here("replay", folder, "--sequences", 1, "--by", "reward").output
    assert re.match(r"step (\d+), rank 0, chunk 0, sequence 0: .*reward 0, .*\n    answer \1\.0\n", least)
