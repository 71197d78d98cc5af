"""deploy/alertmanager: amtool accepts the configuration, every alert has a receiver, and no cause is suppressed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.alertmanager import alertmanager
from tests.fixtures.prometheus import binary
from tests.fixtures.waiting import eventually
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.notify.alertmanager import PATH

pytestmark = pytest.mark.server("amtool", "prometheus-alertmanager")

CONFIG = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"


def amtool(*arguments: str) -> str:
    done = subprocess.run([binary("amtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_amtool_accepts_the_configuration() -> None:
    assert "SUCCESS" in amtool("check-config", str(CONFIG))


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("severity=page", "alertname=TrmonDown"), "on-call"),
        (("severity=page", "alertname=corrupt_logprobs", "run=grpo", "owner=ana"), "on-call"),
        (("severity=warn", "alertname=TrmonCloseLag"), "team"),
        (("severity=page", "alertname=incident", "run=grpo"), "on-call"),
        (("severity=warn", "alertname=incident", "run=grpo"), "team"),
        (("severity=info", "alertname=vacuous_bound", "run=grpo"), "discard"),
        (("alertname=SomebodyElses",), "team"),
    ],
    ids=[
        "trmon is down",
        "a run's page",
        "trmon lags",
        "an incident that pages",
        "an incident",
        "an info",
        "no severity",
    ],
)
def test_an_alert_finds_its_receiver(labels: tuple[str, ...], receiver: str) -> None:
    shown = amtool("config", "routes", "test", f"--config.file={CONFIG}", *labels)
    assert shown.split() == [receiver]


def of_run(rule: str, severity: str, *, run: str = "grpo") -> dict[str, str]:
    return {"alertname": rule, "service": "trmon", "project": "math", "run": run, "severity": severity}


def suppressed(api: httpx.Client, *alerts: dict[str, str]) -> list[tuple[str, str, str]]:
    """Post alerts; return the name, the severity and the run of those that others inhibit.

    Alertmanager inhibits a moment after it has accepted alerts, in their order: a known pair comes last.
    """
    known = [of_run("incident", severity, run="known") for severity in ("warn", "page")]
    api.post(PATH, json=[{"labels": labels} for labels in (*alerts, *known)]).raise_for_status()
    found = eventually(
        lambda: api.get(PATH).json(),
        lambda found: (
            len(found) == len(alerts) + len(known)
            and all(one["status"]["state"] != "unprocessed" for one in found)
            and known[0] in [one["labels"] for one in inhibited(found)]
        ),
        timeout_seconds=60.0,
    )
    labels = [one["labels"] for one in inhibited(found)]
    return [(one["alertname"], one["severity"], one["run"]) for one in labels if one["run"] != "known"]


def inhibited(found: list[Any]) -> list[Any]:
    return [one for one in found if one["status"]["inhibitedBy"]]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[httpx.Client]:
    with alertmanager(tmp_path, CONFIG.read_text()) as client:
        yield client


def test_no_page_of_a_rule_suppresses_an_incident_or_another_rule(api: httpx.Client) -> None:
    pages = [of_run(rule.name, "page") for rule in builtin_rules().rules]
    warnings = [of_run(name, "warn") for name in ("incident", "two_trainers", "incomplete_ranks", "my_rule")]
    assert suppressed(api, *pages, *warnings) == []


def test_an_incident_that_pages_suppresses_only_its_own_warning(api: httpx.Client) -> None:
    others = [of_run("incident", "warn", run="ppo"), of_run("two_trainers", "warn")]
    alerts = (of_run("incident", "page"), of_run("incident", "warn"), *others)
    assert suppressed(api, *alerts) == [("incident", "warn", "grpo")]
