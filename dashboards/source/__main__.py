"""`make dashboards`: generates the dashboards as Classic JSON, and the alert rules for Grafana and Kubernetes."""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.source.acceptance import acceptance
from dashboards.source.alerting import alerting, prometheus_rule
from dashboards.source.by_step import by_step
from dashboards.source.fleet import fleet
from dashboards.source.run_health import run_health
from dashboards.source.service import service

FOLDER = Path(__file__).parents[1]
COMPONENTS = "../deploy/kubernetes/components"


def generated() -> dict[str, str]:
    """Return the text of every generated file by its path below dashboards/."""
    return {
        "fleet.json": _json(fleet()),
        "run-health.json": _json(run_health()),
        "acceptance.json": _json(acceptance()),
        "service.json": _json(service()),
        "postgresql/run-by-step.json": _json(by_step()),
        "provisioning/alerting/trmon.yml": alerting(),
        f"{COMPONENTS}/monitoring/rules.yaml": prometheus_rule("trmon.yml", name="trmon"),
        f"{COMPONENTS}/run-alerts/rules.yaml": prometheus_rule("runs.yml", name="trmon-runs"),
    }


def _json(dashboard: Dashboard) -> str:
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard.build()) + "\n"


if __name__ == "__main__":
    for path, text in generated().items():
        (FOLDER / path).write_text(text)
