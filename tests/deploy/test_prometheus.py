"""deploy/prometheus and deploy/alertmanager: checked by their own tools, and run with a real service."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser as promql
import pytest
import yaml

from tests.dashboards.lint import nodes
from tests.deploy.image import ROOT
from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.prometheus import alertmanager, binary, prometheus, query
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from trmon.config.settings import Settings
from trmon.domain.access import Scope
from trmon.domain.health_check import HUNG_SECONDS
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.domain.severity import Severity
from trmon.metrics.counters import CLOSE_LAG_BUCKETS_SECONDS, COMPONENT_GAUGES, Counters
from trmon.metrics.exposition import FIXED_HELP
from trmon.notify.alertmanager import PATH
from trmon.store.maintenance.check import BEHIND_SECONDS
from trmon.store.writing.group_commit import MAX_WAITING
from trmon_client.core import wire

PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
CASES = Path(__file__).parent / "rules.test.yml"

Json = dict[str, Any]


def said_by(tool: str, *arguments: object) -> str:
    """Run a tool, which must succeed, and return what it prints."""
    done = subprocess.run([binary(tool), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[Json]:
    groups = [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.server("promtool")
def test_promtool_accepts_the_rules() -> None:
    checked = said_by("promtool", "check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert checked.count("SUCCESS") == len(RULES)


@pytest.mark.server("promtool")
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    text = (PROMETHEUS / "prometheus.yml").read_text()
    token = tmp_path / "metrics"
    token.write_text("secret")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/run/trmon/tokens/metrics", str(token)).replace("rules/", f"{PROMETHEUS}/rules/"))
    assert "SUCCESS" in said_by("promtool", "check", "config", config)


@pytest.mark.server("promtool")
def test_every_rule_case_passes() -> None:
    assert "SUCCESS" in said_by("promtool", "test", "rules", CASES)


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test.get("alert_rule_test", ())]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == {alert["alert"] for alert in alerts()}


def test_severities_are_those_of_the_service() -> None:
    expected = {severity.value for severity in Severity if severity is not Severity.INFO}
    assert {alert["labels"]["severity"] for alert in alerts()} == expected


def test_limits_are_those_of_the_service() -> None:
    texts = {alert["alert"]: f"{alert['expr']} {alert['annotations']}" for alert in alerts()}
    assert f"> {MAX_WAITING // 2} " in texts["TrmonQueueFilling"]
    assert f"At {MAX_WAITING} the service answers 429" in texts["TrmonQueueFilling"]
    assert texts["TrmonWorkerHung"].startswith(f"trmon_worker_beat_age_seconds > {HUNG_SECONDS:g} ")
    assert f"trmon_oldest_unprocessed_seconds) > {BEHIND_SECONDS:g} " in texts["TrmonJudgingBehind"]
    last_bucket = CLOSE_LAG_BUCKETS_SECONDS[-1]
    assert f'le="{last_bucket}"' in (PROMETHEUS / "rules" / "trmon.yml").read_text()
    assert last_bucket >= 2 * Settings.model_fields["grace_seconds"].default


def test_every_metric_that_a_rule_names_exists() -> None:
    own = {sample.name for family in Counters().registry.collect() for sample in family.samples}
    named = {
        word
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        for word in _names(rule["expr"])
    }
    recorded = {name for name in named if ":" in name}
    assert named - recorded <= own | COMPONENT_GAUGES.keys() | FIXED_HELP.keys() | {"up"}


def _names(expression: str) -> set[str]:
    found = (node for node, _ in nodes(promql.parse(expression)) if isinstance(node, promql.VectorSelector))
    return {node.name for node in found if node.name}


with_alertmanager = pytest.mark.server("amtool", "prometheus-alertmanager")
CONFIG = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"


@with_alertmanager
def test_amtool_accepts_the_configuration() -> None:
    assert "SUCCESS" in said_by("amtool", "check-config", str(CONFIG))


@with_alertmanager
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
    shown = said_by("amtool", "config", "routes", "test", f"--config.file={CONFIG}", *labels)
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


@with_alertmanager
def test_no_page_of_a_rule_suppresses_an_incident_or_another_rule(api: httpx.Client) -> None:
    pages = [of_run(rule.name, "page") for rule in builtin_rules().rules]
    warnings = [of_run(name, "warn") for name in ("incident", "two_trainers", "incomplete_ranks", "my_rule")]
    assert suppressed(api, *pages, *warnings) == []


@with_alertmanager
def test_an_incident_that_pages_suppresses_only_its_own_warning(api: httpx.Client) -> None:
    others = [of_run("incident", "warn", run="ppo"), of_run("two_trainers", "warn")]
    alerts = (of_run("incident", "page"), of_run("incident", "warn"), *others)
    assert suppressed(api, *alerts) == [("incident", "warn", "grpo")]


DEPLOY = ROOT / "deploy"
N_STEPS = 5
"""Steps with corrupt log-probs; the rule fires after three."""


def of_prometheus(url: str, *, alertmanager_url: str) -> str:
    """Return our configuration for one local service, with shorter intervals and the rules of runs."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(path) for path in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))]
    [scrape] = config["scrape_configs"]
    del scrape["dns_sd_configs"], scrape["authorization"]
    scrape["static_configs"] = [{"targets": [url.removeprefix("http://")]}]
    [target] = config["alerting"]["alertmanagers"]
    target["static_configs"] = [{"targets": [alertmanager_url.removeprefix("http://").rstrip("/")]}]
    return yaml.safe_dump(config)


def of_alertmanager(on_call: str) -> str:
    """Return our configuration with shorter intervals and a webhook as on-call receiver."""
    config = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    config["receivers"][0]["webhook_configs"] = [{"url": on_call}]
    return yaml.safe_dump(config)


def notifications(on_call: WebhookServer) -> list[tuple[str, str, str]]:
    """Return the name, the rule and the status of each alert received."""
    alerts = [alert for posted in on_call.posted for alert in json.loads(posted.body)["alerts"]]
    return [(alert["labels"]["alertname"], alert["labels"].get("rule", ""), alert["status"]) for alert in alerts]


@pytest.mark.server("prometheus", "prometheus-alertmanager")
@pytest.mark.timeout(240)
def test_a_page_reaches_the_on_call_receiver_and_resolves_with_the_run(
    service: ThreadedService, client: httpx.Client, tmp_path: Path
) -> None:
    with (
        WebhookServer() as on_call,
        alertmanager(tmp_path, of_alertmanager(on_call.url)) as am,
        prometheus(tmp_path, of_prometheus(service.url, alertmanager_url=str(am.base_url))),
    ):
        send(client, MATH, wire.Start(**ORIGIN, owner="me"))
        for step in range(N_STEPS):
            send_step(client, MATH, step=step, content=columns(seed=step, n_invalid=[1, 0, 0, 0]))
        page = ("TrmonRunIncidentPage", "")
        eventually(lambda: (*page, "firing") in notifications(on_call), timeout_seconds=90.0)
        finished = [wire.ChunkCount(N_STEPS - 1, None, 1)]
        send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=finished))
        eventually(lambda: (*page, "resolved") in notifications(on_call), timeout_seconds=90.0)
        assert {received[:2] for received in notifications(on_call)} == {page}


@pytest.mark.server("prometheus")
def test_a_prometheus_scrapes_trmon_with_the_documented_job(
    service: ThreadedService, client: httpx.Client, tmp_path: Path
) -> None:
    [job] = re.findall(r"```yaml\n(scrape_configs:.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    (tmp_path / "metrics.token").write_text(make_token(client, "metrics", Scope.READ))
    address = service.url.removeprefix("http://")
    assert "127.0.0.1:8642" in job
    with prometheus(tmp_path, f"global: {{scrape_interval: 1s}}\n{job.replace('127.0.0.1:8642', address)}") as api:
        [up] = eventually(lambda: query(api, 'up{job="trmon"} == 1'), timeout_seconds=60.0)
        assert up["metric"]["instance"] == address
        assert eventually(lambda: query(api, "trmon_info"))
