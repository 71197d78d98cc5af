"""The rules in deploy/prometheus: valid for the real promtool, tested on series, consistent with the service."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from tests.dashboards.lint import nodes
from tests.fixtures.prometheus import binary
from trmon.config.settings import Settings
from trmon.domain.health_check import HUNG_SECONDS
from trmon.domain.severity import Severity
from trmon.metrics.counters import CLOSE_LAG_BUCKETS_SECONDS, COMPONENT_GAUGES, Counters
from trmon.metrics.exposition import FIXED_HELP
from trmon.store.maintenance.check import BEHIND_SECONDS
from trmon.store.writing.group_commit import MAX_WAITING

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
CASES = Path(__file__).parent / "rules.test.yml"

Json = dict[str, Any]


def promtool(*arguments: object) -> str:
    done = subprocess.run([binary("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[Json]:
    groups = [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.server("promtool")
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
def test_promtool_accepts_the_rules(file: Path) -> None:
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", file)


@pytest.mark.server("promtool")
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    text = (PROMETHEUS / "prometheus.yml").read_text()
    token = tmp_path / "metrics"
    token.write_text("secret")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/run/trmon/tokens/metrics", str(token)).replace("rules/", f"{PROMETHEUS}/rules/"))
    assert "SUCCESS" in promtool("check", "config", config)


@pytest.mark.server("promtool")
def test_every_rule_case_passes() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES)


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
