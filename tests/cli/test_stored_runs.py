"""Commands over two recorded runs: backtests and what-ifs over a service, an archive and a lake; runbooks as pasted."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import trmon_client as trmon
from tests.fixtures.command import run_here
from tests.fixtures.running_service import ILL, WELL, RecordedRuns, Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.two_engines import two_engines_batch
from tests.fixtures.waiting import eventually
from tests.store.lake.lakes import move_to_lake
from trmon.cli.backtest import service_histories
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.backtest.rule_replay import RuleReplay
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.health.runbook import Stage, runbook_of, runbooks_file
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.store import Store
from trmon_client.api import AlertInfo, Service

NAMES = {"math/stale-8b", "math/healthy-8b"}
QUIET = "[{name: stale_rollouts, disabled: true}]"
STRICT = "trm_max(delta=0.02)"
LOCKED_AT_EXIT = """
import atexit, ctypes, sys
atexit.register(ctypes.PyDLL(None).usleep, 50_000)
from trmon.store.lake.runs import lake_runs
assert lake_runs(sys.argv[1])
"""
STATES = (AlertState.FIRING, AlertState.RESOLVED)


@pytest.fixture(scope="module")
def service(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service over a run that drifted and a healthy one; both have finished."""
    service = recorded.serve(recorded.finished, tmp_path_factory.mktemp("stored") / "data")
    yield service
    service.stop()


@pytest.fixture(scope="module")
def archive(service: ThreadedService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the service's project."""
    folder = tmp_path_factory.mktemp("archive") / "math"
    exported = run_here("export", "math", folder, "--data-dir", service.data_dir)
    assert exported.exit_code == 0, exported.stderr
    return folder


@pytest.fixture(scope="module")
def lake(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the same runs."""
    folder = tmp_path_factory.mktemp("lake")
    shutil.copy(recorded.finished, folder / "copy.sqlite")
    with closing(Store.open(f"sqlite:///{folder / 'copy.sqlite'}")) as store:
        move_to_lake(store, str(folder / "lake"), now=time.time() + 1)
    return folder / "lake"


def lines(*command: object) -> list[dict[str, Any]]:
    """Return the JSON lines that a command prints."""
    shown = run_here(*command, "--json")
    assert shown.exit_code == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def of_service(alert: AlertInfo) -> dict[str, Any]:
    """Return what an alert of the service says."""
    fields = ("rule", "severity", "state", "step", "update", "since_at", "value", "threshold", "summary", "labels")
    return {name: getattr(alert, name) for name in fields}


def of_replay(alert: Alert) -> dict[str, Any]:
    """Return what an alert of a replay says."""
    fields = ("rule", "update", "since_at", "value", "threshold", "summary", "labels")
    said = {name: getattr(alert, name) for name in fields}
    return said | {"step": alert.since_step, "severity": alert.severity.value, "state": alert.state.value}


def test_the_built_in_rules_raise_what_the_service_raised(service: ThreadedService) -> None:
    with Service(service.url) as api:
        for history in service_histories(api, project="math", runs=[]):
            replay = RuleReplay(builtin_rules(), history.run)
            raised = [each for row in history.rows() for each in replay.add(row).transitions]
            alerts = {each.alert.episode: each.alert for each in (*raised, *replay.finish()) if each.alert}
            replayed = [of_replay(alert) for alert in alerts.values() if alert.state in STATES]
            stored = [of_service(alert) for alert in api.alerts(run=history.name)]
            assert sorted(replayed, key=repr) == sorted(stored, key=repr)
            assert bool(stored) == (history.name == "math/stale-8b")


def test_an_archive_and_a_lake_give_the_same(service: ThreadedService, archive: Path, lake: Path) -> None:
    asked = ("--project", "math", "--policy", STRICT)
    over_service = lines("backtest", service.url, *asked)
    by_name = {line["run"]: line for line in over_service[:-1]}
    for source in (archive, lake):
        found = lines("backtest", source, "--policy", STRICT)
        assert found[-1] == over_service[-1]
        for line in found[:-1] if source is lake else ():
            assert [outcome.pop("unlike_live") for outcome in line["outcomes"]] == [None], "a lake has no alerts"
            line["outcomes"][0]["unlike_live"] = []
        assert {line["run"]: line for line in found[:-1]} == by_name
    assert all(outcome["unlike_live"] == [] for line in by_name.values() for outcome in line["outcomes"])
    assert by_name.keys() == NAMES
    [masked] = over_service[-1]["totals"]["policies"]
    assert masked["n_sequences"] == 60 * 96
    assert 0 < masked["mask_rate"] < 1
    [outcome] = by_name["math/stale-8b"]["outcomes"]
    assert "stale_rollouts" in outcome["first_steps"]
    assert any(alert["rule"] == "incident" and alert["is_sent"] and alert["at"] > 0 for alert in outcome["alerts"])
    assert by_name["math/healthy-8b"]["outcomes"][0]["n_sent"] == 0


def test_two_rule_sets_stand_side_by_side(archive: Path, tmp_path: Path) -> None:
    quiet = tmp_path / "quiet.yml"
    quiet.write_text(QUIET)
    [run, totals] = lines("backtest", archive, "--rules", "builtin", "--against", quiet, "--run", "math/stale-8b")
    builtin, without = (outcome["first_steps"] for outcome in run["outcomes"])
    assert "stale_rollouts" in builtin
    assert "stale_rollouts" not in without
    [as_sent, unlike] = (outcome["unlike_live"] for outcome in run["outcomes"])
    assert as_sent == []
    # Without it, the incident opens with another finding.
    assert {words.split()[0] for words in unlike if words.endswith("only live")} >= {"stale_rollouts"}
    summed = {each["rule"]: each for each in totals["totals"]["differences"]}
    assert (summed["stale_rollouts"]["n_only"], summed["stale_rollouts"]["n_only_against"]) == (1, 0)
    shown = run_here("backtest", archive, "--rules", "builtin", "--against", quiet)
    assert shown.exit_code == 0, shown.stderr
    assert "stale_rollouts" in shown.stdout
    assert f"only {quiet}" in shown.stdout


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param([], id="the whole of one run"),
        pytest.param(["--from", 10, "--to", 20, "--max-steps", 6], id="the newest of some steps"),
    ],
)
def test_a_what_if_over_a_lake_is_that_over_an_archive(lake: Path, archive: Path, chosen: list[object]) -> None:
    asked = ("whatif", "math/stale-8b", "--policy", STRICT, "--policy", "geo_mask", *chosen)
    of_lake, of_archive = (lines(*asked, "--source", source) for source in (lake, archive))
    assert of_lake == of_archive
    covered = of_lake[0]["range"]
    assert (covered["first_step"], covered["last_step"]) == ((15, 20) if chosen else (0, 39))
    assert of_lake[0]["total"]["n_sequences"] == 96 * covered["n_steps"]
    assert 0 < of_lake[0]["total"]["mask_rate"] < 1


def test_no_thread_that_read_a_lake_aborts_the_process_at_its_end(lake: Path) -> None:
    """A thread of pyarrow that releases a Python object must not wait for the interpreter's lock while that ends.

    Of processes with a file system written in Python, 28 of 40 died; so 97 of 100 times one of three does.
    """
    ended = [subprocess.Popen([sys.executable, "-c", LOCKED_AT_EXIT, str(lake)]) for _ in range(3)]
    assert [process.wait(timeout=100) for process in ended] == [0] * 3


def test_all_runs_add_up(lake: Path) -> None:
    [one, other] = (
        lines("whatif", f"math/{run}-8b", "--source", lake, "--policy", STRICT)[0] for run in ("stale", "healthy")
    )
    [both] = lines("whatif", "--source", lake, "--policy", STRICT)
    assert both["total"]["n_sequences"] == one["total"]["n_sequences"] + other["total"]["n_sequences"]
    assert both["reasons"]["max_binary_kl"] == sum(each["reasons"].get("max_binary_kl", 0) for each in (one, other))


def test_a_run_that_a_lake_lacks_and_two_kinds_of_ray_are_refused(lake: Path) -> None:
    for command, said in (
        (("whatif", "math/none", "--source", lake, "--policy", STRICT), "which has 2 runs"),
        (("backtest", lake, "--workers", 1, "--address", "127.0.0.1:1"), "both given"),
    ):
        refused = run_here(*command)
        assert (refused.exit_code, said in refused.stderr) == (1, True), refused.stderr


def test_a_risk_is_calibrated_on_enough_ended_runs(service: ThreadedService, archive: Path, tmp_path: Path) -> None:
    said = {}
    for source in (service.url, archive, tmp_path):
        done = run_here("risk", "calibrate", source, "-o", tmp_path / "model.json")
        assert (done.exit_code, (tmp_path / "model.json").exists()) == (1, False)
        said[source] = done.stderr
    assert "needs 40, of which 5 collapsed and 5 did not" in said[archive]
    assert said[service.url] == said[archive]
    assert "is neither a URL nor a lake nor a folder of `trmon export`" in said[tmp_path]


RUNBOOKS = (*(spec.id for spec in builtin_catalogue().findings), *(rule.name for rule in builtin_rules().others))
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
    assert set(runbooks_file().entries) == set(RUNBOOKS)
    rules = builtin_rules().by_name
    for name in RUNBOOKS:
        stages = runbook_of(name, catalogue=builtin_catalogue(), rule=rules.get(name))
        assert [one.stage for one in stages] == list(get_args(Stage))
        assert all(one.lines for one in stages), name
        assert all("{" not in line for one in stages for line in (*one.lines, *one.commands)), name


def test_every_command_of_every_runbook_runs_against_a_stored_run(replayed: ThreadedService) -> None:
    rules, commands = builtin_rules().by_name, set()
    for name in RUNBOOKS:
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


def test_an_incident_names_the_recorded_steps_and_shows_the_worst(serve: Serve, tmp_path: Path) -> None:
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
