"""`make soak`, some of its faults once: nothing is lost, doubled, missing or repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bench_alerts_under_kills import alerts_under_kills
from benchmarks.load.soak import SoakPlan, SoakResult, soak, variables_for
from benchmarks.load.soak_targets import embedded_target, fleet_target
from benchmarks.load.workload import Workload
from tests.fixtures.receiver import WebhookServer

WORKLOAD = Workload(n_ranks=2, n_sequences=16, drift_from=25, drift_steps=60)
PER_SECOND = 7.0


@pytest.mark.timeout(600)
def test_a_fault_under_load_loses_no_acknowledged_report_and_repeats_no_alert(tmp_path: Path) -> None:
    with WebhookServer() as pager, embedded_target(tmp_path, **variables_for(pager)) as target:
        # A runner that is frozen for good is killed too.
        kills_and_stops = tuple(name for name in target.faults if name.startswith("SIG") and name != "SIGKILL, runner")
        result = soak(target, pager, planned(kills_and_stops))
        assert {trial.fault for trial in result.trials} == set(kills_and_stops)
    assert_clean(result)
    assert result.sent.broken, "nothing was killed while something was sent"


@pytest.mark.server("postgres", "redis-server")
@pytest.mark.timeout(900)
def test_a_fleet_recovers_from_one_fault_after_the_other(tmp_path: Path) -> None:
    faults = ("SIGKILL, replica", "SIGKILL, worker", "SIGKILL, PostgreSQL")
    with WebhookServer() as pager, fleet_target(tmp_path, **variables_for(pager)) as target:
        result = soak(target, pager, planned(faults))
        assert {trial.fault for trial in result.trials} == set(faults)
    assert_clean(result)


def planned(faults: tuple[str, ...]) -> SoakPlan:
    """Return the plan of a soak of one small run in which each fault happens once."""
    return SoakPlan(faults=faults, n_rounds=1, workload=WORKLOAD, per_second=PER_SECOND, seed=7)


def assert_clean(result: SoakResult) -> None:
    """Assert that nothing was lost, doubled, missing or repeated, and that there was something to repeat."""
    assert not result.wrong
    assert result.alerts.is_clean, result.alerts
    assert result.is_clean, result.trials
    assert result.alerts.n_events, "no alert fired, so none could be repeated"


@pytest.mark.timeout(600)
def test_no_alert_is_missing_or_gets_another_key(tmp_path: Path) -> None:
    found = alerts_under_kills(tmp_path, n_kills=2, n_runs=3, seed=1, seconds=400.0)
    assert (found.n_missing, found.n_other_key) == (0, 0), found
