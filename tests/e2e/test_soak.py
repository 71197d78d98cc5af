"""`make soak`, some of its faults once: nothing is lost, doubled, missing or repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.load.endurance import ServiceSample, write_plot
from benchmarks.load.soak import SoakPlan, SoakResult, soak, variables_for
from benchmarks.load.soak_targets import embedded_target, fleet_target
from tests.fixtures.receiver import WebhookServer


@pytest.mark.timeout(600)
def test_a_fault_under_load_loses_no_acknowledged_report_and_repeats_no_alert(tmp_path: Path) -> None:
    with WebhookServer() as pager, embedded_target(tmp_path, **variables_for(pager)) as target:
        kills_and_stops = tuple(name for name in target.faults if name.startswith("SIG"))
        result = soak(target, pager, SoakPlan(faults=kills_and_stops, n_rounds=1, seed=7))
        assert {trial.fault for trial in result.trials} == set(kills_and_stops)
    assert_clean(result)
    assert result.sent.broken, "nothing was killed while something was sent"


@pytest.mark.server("postgres", "redis-server")
@pytest.mark.timeout(900)
def test_a_fleet_recovers_from_one_fault_after_the_other(tmp_path: Path) -> None:
    faults = ("SIGKILL, replica", "SIGKILL, worker", "SIGKILL, PostgreSQL")
    with WebhookServer() as pager, fleet_target(tmp_path, **variables_for(pager)) as target:
        result = soak(target, pager, SoakPlan(faults=faults, n_rounds=1, seed=7))
        assert {trial.fault for trial in result.trials} == set(faults)
    assert_clean(result)


def assert_clean(result: SoakResult) -> None:
    """Assert that nothing was lost, doubled, missing or repeated, and that there was something to repeat."""
    assert not result.wrong
    assert result.alerts.is_clean, result.alerts
    assert result.is_clean, result.trials
    assert result.alerts.n_events, "no alert fired, so none could be repeated"


def test_the_plot_of_a_long_run_has_its_four_measures(tmp_path: Path) -> None:
    samples = [
        ServiceSample(
            at=n, n_reports=1000 * n, memory_mib=300.0, n_handles=40, n_threads=20, p50_ms=1.0, p99_ms=9.0, per_second=9
        )
        for n in range(5)
    ]
    write_plot(samples, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert drawn.count('<g id="axes_') == 4
