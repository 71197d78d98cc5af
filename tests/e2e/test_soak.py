"""`make soak`, each process once: kills it under load; nothing is lost or repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.load.deployments import DeploymentFactory, embedded, fleet
from benchmarks.load.soak import soak, variables_for
from benchmarks.load.verification import Verdict
from tests.fixtures.receiver import WebhookServer


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "deploy", [embedded, pytest.param(fleet, marks=pytest.mark.server("postgres", "redis-server"))]
)
def test_a_kill_under_load_loses_no_acknowledged_report_and_repeats_no_alert(
    tmp_path: Path, deploy: DeploymentFactory
) -> None:
    with WebhookServer() as pager, deploy(tmp_path, **variables_for(pager)) as deployment:
        result = soak(deployment, pager, n_rounds=1, seed=7)
        assert {kill.victim for kill in result.kills} == set(deployment.victims)
    assert result.verdict == Verdict(lost=0, duplicated=0)
    assert (result.repeated_events, result.repeated_pages) == (0, 0)
    assert result.sent.broken, "nothing was killed while something was sent"
    assert result.n_events, "no alert fired, so none could be repeated"
