"""Quotas over HTTP, and a real trainer that meets them: it goes on, warns once and counts what was refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import httpx
import pytest

import trmon_client as trmon
from tests.client.trainer import batch
from tests.fixtures.messages import ORIGIN
from tests.fixtures.running_service import make_token
from tests.fixtures.trainer import MATH, send, statuses, step_report
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey
from trmon_client.core import wire

QUOTAS = "/api/v1/quotas"
REFUSED = 'trmon_quota_refused_total{project="math",resource="bytes"}'
REPORTS = "/api/v1/runs/math/grpo/reports"


def put(client: httpx.Client, **limits: float) -> httpx.Response:
    """Set the quota of the project math."""
    answer = client.put(f"{QUOTAS}/math", json=limits)
    assert answer.status_code == 200, answer.text
    return answer


def send_report(client: httpx.Client, step: int) -> httpx.Response:
    """Send one report of a run by its own route."""
    body = wire.encode(step_report(step), media_type=wire.JSON)
    return client.post(REPORTS, content=body, headers={"Content-Type": wire.JSON})


def metric(client: httpx.Client, name: str) -> float:
    """Return a sample of /metrics."""
    [value] = [line.split()[-1] for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(value)


def test_a_projects_admin_sees_its_quota_but_cannot_raise_it(admin: httpx.Client) -> None:
    put(admin, max_runs=2)
    admin.put(f"{QUOTAS}/code", json={"max_runs": 3})
    own = make_token(admin, "boss", Scope.ADMIN, project="math")
    admin.headers["Authorization"] = f"Bearer {own}"
    assert [quota["project"] for quota in admin.get(QUOTAS).json()] == ["math"]
    assert admin.put(f"{QUOTAS}/math", json={}).status_code == 403


def test_a_new_run_above_the_limit_is_refused_until_it_is_raised(client: httpx.Client) -> None:
    put(client, max_runs=1)
    send(client, MATH, wire.Start(**ORIGIN))
    other = RunKey("math", "other")
    assert statuses(client, other, wire.Start(**ORIGIN), step_report(0)) == ["invalid", "invalid"]
    assert [run["run"] for run in client.get("/api/v1/runs").json()["items"]] == ["grpo"]
    metrics = client.get("/metrics").text
    assert 'trmon_quota_refused_total{project="math",resource="runs"} 2.0' in metrics
    put(client, max_runs=2)
    send(client, other, wire.Start(**ORIGIN))


def test_a_report_above_the_bytes_answers_403_with_what_to_do(client: httpx.Client) -> None:
    put(client, max_bytes=10)
    refused = send_report(client, 0)
    assert refused.status_code == 403
    assert refused.json()["type"] == "urn:trmon:problem:quota-exceeded"
    assert "trmon quota set math --bytes N" in refused.json()["detail"]


def test_reports_above_the_rate_answer_429_and_are_accepted_later(client: httpx.Client) -> None:
    put(client, reports_per_second=0.1)
    assert send_report(client, 0).status_code == 200
    refused = send_report(client, 1)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert "trmon quota set math --rate N" in refused.json()["detail"]
    put(client, reports_per_second=1000)
    eventually(lambda: send_report(client, 1).status_code, lambda status: status == 200)


def test_a_trainer_above_the_quota_goes_on_and_its_losses_are_counted(
    client: httpx.Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    put(client, max_bytes=10)
    with trmon.init(project="math", run="grpo", url=str(client.base_url), spool_dir=tmp_path / "spool") as monitor:
        for step in range(5):
            assert monitor.log_batch(step=step, **batch()).mask.all()
            eventually(partial(metric, client, REFUSED), lambda refused, step=step: refused == step + 1)
    assert capfd.readouterr().err.count("trmon quota set math --bytes N") == 1
    assert metric(client, 'trmon_dropped_total{reason="refused"}') >= 4, "the last one may be refused after the finish"
