"""`trmon backtest` and `trmon whatif` give the same over a service, an archive and a lake of its runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command import run_here
from tests.fixtures.running_service import RecordedRuns
from tests.fixtures.service import ThreadedService
from tests.store.lake.lakes import move_to_lake
from trmon.cli.backtest import service_histories
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.backtest.rule_replay import RuleReplay
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


def test_an_archive_and_a_lake_give_what_their_service_gives(
    service: ThreadedService, archive: Path, lake: Path
) -> None:
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


def test_a_risk_is_calibrated_on_enough_ended_runs_of_a_source_that_exists(
    service: ThreadedService, archive: Path, tmp_path: Path
) -> None:
    said = {}
    for source in (service.url, archive, tmp_path):
        done = run_here("risk", "calibrate", source, "-o", tmp_path / "model.json")
        assert (done.exit_code, (tmp_path / "model.json").exists()) == (1, False)
        said[source] = done.stderr
    assert "needs 40, of which 5 collapsed and 5 did not" in said[archive]
    assert said[service.url] == said[archive]
    assert "is neither a URL nor a lake nor a folder of `trmon export`" in said[tmp_path]
