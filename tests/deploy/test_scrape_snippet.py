"""The job that the documentation gives for Prometheus: a real one scrapes a real service with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.image import ROOT
from tests.fixtures.prometheus import prometheus, query
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope

pytestmark = pytest.mark.server("prometheus")


def test_a_prometheus_scrapes_trmon_with_the_documented_job(tmp_path: Path) -> None:
    [job] = re.findall(r"```yaml\n(scrape_configs:.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    service = ServiceProcess(tmp_path / "data")
    try:
        with service.client() as client:
            (tmp_path / "metrics.token").write_text(make_token(client, "metrics", Scope.READ))
        assert "127.0.0.1:8642" in job
        given = job.replace("127.0.0.1:8642", service.url.removeprefix("http://"))
        with prometheus(tmp_path, f"global: {{scrape_interval: 1s}}\n{given}") as api:
            [up] = eventually(lambda: query(api, 'up{job="trmon"} == 1'), timeout_seconds=60.0)
            assert up["metric"]["instance"] == service.url.removeprefix("http://")
            assert eventually(lambda: query(api, "trmon_info"))
    finally:
        service.kill()
