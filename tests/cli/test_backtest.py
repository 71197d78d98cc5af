"""`trmon backtest` over a service and an archive of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.command import trmon
from tests.fixtures.replay import ReplayedRun, replaying
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.cli.backtest import service_histories
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.backtest.rule_replay import RuleReplay
from trmon.domain.backtest.stored_history import RUN_STATES
from trmon.domain.rules.rule import RuleSet
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon_client.api import AlertInfo, Service

NAMES = {"math/stale", "math/healthy"}
QUIET = "[{name: stale_rollouts, disabled: true}]"
STATES = (AlertState.FIRING, AlertState.RESOLVED)


@pytest.fixture(scope="module")
def service(shared_service: ThreadedService, shared: httpx.Client) -> ThreadedService:
    """A service over a run that drifted and a healthy one; both have finished."""
    with replaying(shared, ReplayedRun("stale", "stale"), ReplayedRun("healthy", "healthy")):
        pass
    for name in NAMES:
        eventually(lambda name=name: shared.get(f"/api/v1/runs/{name}").json()["state"], "finished".__eq__)
    return shared_service


@pytest.fixture(scope="module")
def archive(service: ThreadedService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the service's project."""
    folder = tmp_path_factory.mktemp("archive") / "math"
    exported = trmon("export", "math", folder, "--data-dir", service.data_dir)
    assert exported.returncode == 0, exported.stderr
    return folder


def found(*given: object) -> list[dict[str, Any]]:
    """Return the JSON lines of a backtest."""
    shown = trmon("backtest", *given, "--json")
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def of_service(alert: AlertInfo) -> dict[str, Any]:
    """Return what an alert of the service says."""
    fields = ("rule", "severity", "state", "step", "update", "since_at", "value", "threshold", "summary", "labels")
    return {name: getattr(alert, name) for name in fields}


def of_replay(alert: Alert) -> dict[str, Any]:
    """Return what an alert of a replay says."""
    fields = ("rule", "step", "update", "since_at", "value", "threshold", "summary", "labels")
    said = {name: getattr(alert, name) for name in fields}
    return said | {"severity": alert.severity.value, "state": alert.state.value}


def test_the_built_in_rules_raise_what_the_service_raised(service: ThreadedService) -> None:
    with Service(service.url) as api:
        for history in service_histories(api, project="math", runs=[]):
            replay = RuleReplay(RuleSet(builtin_rules()), history.run)
            raised = [each for row in history.rows() for each in replay.raised(replay.add(row).transitions)]
            raised += replay.finish(now=0.0)
            alerts = {each.transition.alert.episode: each.transition.alert for each in raised if each.transition.alert}
            replayed = [of_replay(alert) for alert in alerts.values() if alert.state in STATES]
            stored = [of_service(alert) for alert in api.alerts(run=history.name)]
            assert sorted(replayed, key=repr) == sorted(stored, key=repr)
            assert bool(stored) == (history.name == "math/stale")


def test_an_archive_gives_what_its_service_gives(service: ThreadedService, archive: Path) -> None:
    over_service, over_archive = found(service.url, "--project", "math"), found(archive)
    assert over_service[-1] == over_archive[-1]
    by_name = {line["run"]: line for line in over_service[:-1]}
    assert by_name == {line["run"]: line for line in over_archive[:-1]}
    assert by_name.keys() == NAMES
    [outcome] = by_name["math/stale"]["outcomes"]
    assert "stale_rollouts" in outcome["first_steps"]
    assert any(alert["rule"] == "incident" and alert["is_sent"] and alert["at"] > 0 for alert in outcome["alerts"])
    assert by_name["math/healthy"]["outcomes"][0]["n_sent"] == 0
    needs = {gap["rule"]: gap["needs"] for gap in outcome["gaps"]}
    assert needs["stalled"] == [RUN_STATES]
    assert needs["gradient_variance"] == ["grad_variance"]


def test_two_rule_sets_stand_side_by_side(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = tmp_path / "quiet.yml"
    quiet.write_text(QUIET)
    [run, totals] = found(archive, "--rules", "builtin", "--against", quiet, "--run", "math/stale")
    [only] = [each for each in run["differences"] if each["rule"] == "stale_rollouts"]
    assert only["step"] is not None
    assert only["against_step"] is None
    summed = {each["rule"]: each for each in totals["totals"]["differences"]}
    assert (summed["stale_rollouts"]["n_only"], summed["stale_rollouts"]["n_only_against"]) == (1, 0)
    monkeypatch.setenv("COLUMNS", "250")
    shown = trmon("backtest", archive, "--rules", "builtin", "--against", quiet)
    assert shown.returncode == 0, shown.stderr
    assert "stale_rollouts" in shown.stdout
    assert f"only {quiet}" in shown.stdout


def test_a_policy_masks_the_same_share_of_a_service_and_of_its_archive(service: ThreadedService, archive: Path) -> None:
    asked = ("--policy", "trm_max(delta=0.02)", "--run", "math/stale")
    [of_service], [of_archive] = (found(source, *asked)[0]["policies"] for source in (service.url, archive))
    assert of_service == of_archive
    assert of_service["n_sequences"] > 0
    assert 0 < of_service["mask_rate"] < 1


WRONG = [
    pytest.param(("nowhere",), "nowhere is neither a URL nor a lake", id="no source"),
    pytest.param(("--against", "builtin"), "builtin is the same as --rules", id="one rule set twice"),
    pytest.param(("--json", "--csv"), "give one of them", id="two formats"),
    pytest.param(("-o", "x"), "needs --json or --csv", id="no format"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_a_wrong_request_is_explained(given: tuple[str, ...], said: str) -> None:
    refused = trmon("backtest", *given)
    assert refused.returncode == 1
    assert said in refused.stderr
