"""Plans: processes, databases and limits of demands that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trmon.domain.capacity.architecture import ARCHITECTURES, DeploymentKind, ServiceArchitecture
from trmon.domain.capacity.capacity_plan import ArchitecturePlan, plan_capacity
from trmon.domain.capacity.demand_file import DemandFile, MeasuredDemands, ReferenceMachine, shipped_demands
from trmon.domain.capacity.fleet_workload import FleetWorkload
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.capacity.station_loads import MachineSize
from trmon.domain.model.errors import InvalidInput

EMBEDDED, ONE, SEVERAL, QUEUE, COLUMNS = ARCHITECTURES
MACHINE = MachineSize(cores=4, disk_bytes_per_second=100e6, network_bytes_per_second=1e9, target=0.5)
# A report needs 1 ms of the API, 0.5 of the database, 10 kB; a batch 2 ms of the worker; a view 1 ms of each process.
STATIONS = {
    "api": {"report": 0.001, "view": 0.001},
    "worker": {"batch": 0.002},
    "database": {"report": 0.0005, "batch": 0.001},
    "log": {"report": 10_000.0},
    "tables": {"report": 8_000.0, "batch": 1_000.0},
}
FILE = DemandFile(
    format=1,
    measured_by="hand",
    measured_at="2026-01-01",
    machine=ReferenceMachine(cpu="one", cores=2, python="3", database="PostgreSQL", calibration_ms=1.0),
    deployments={
        kind.value: MeasuredDemands(stations=STATIONS, relative_errors={}, group_seconds=0.01, sync_seconds=0.002)
        for kind in DeploymentKind
    },
)


def planned(workload: FleetWorkload, architecture: ServiceArchitecture, **changed: float) -> ArchitecturePlan:
    machine = replace(MACHINE, **changed)
    return plan_capacity(workload, machine=machine, file=FILE, architectures=[architecture])[0]


def reports(per_second: float, *, ranks: int = 100) -> FleetWorkload:
    return FleetWorkload(runs=int(per_second / ranks), ranks=ranks, step_seconds=1.0, sequences=8)


def test_processes_are_as_many_as_keep_each_at_the_target() -> None:
    plan = planned(reports(3000), ONE)
    # 3 cores for reports, and 30 batches that each process reads: n (0.5 - 0.03) >= 3.
    assert (plan.api_processes, plan.workers, plan.n_databases) == (7, 1, 1)
    assert plan.loads.used[Station.API] == pytest.approx(3 + 7 * 0.03)
    assert plan.loads.used[Station.DATABASE] == pytest.approx(1.5 + 0.03)
    assert plan.loads.carries
    assert plan.stored_bytes_per_day == pytest.approx((3000 * 8000 + 30 * 1000) * 86_400)


def test_what_stops_first_is_named_and_more_databases_help() -> None:
    one, several = planned(reports(10_000), ONE), planned(reports(10_000), SEVERAL)
    # 10,000 reports write 100 MB a second of log; half of the disk's is allowed, and 2 of 4 cores.
    assert (one.loads.carries, one.loads.first_limit) == (False, Station.DATABASE)
    assert one.loads.limited[Station.LOG] == pytest.approx(2.0)
    assert one.loads.limited[Station.DATABASE] == pytest.approx((5 + 0.1) / 2)
    assert (several.n_databases, several.loads.carries) == (3, True)
    assert several.machines == 3 + -(-(10 + 0.2 + several.api_processes * 100 / 3 * 0.001) // 2)


def test_growth_says_how_many_times_the_runs_the_limit_carries() -> None:
    plan = planned(reports(1000), ONE)
    # 2 cores of the database for 0.51 ms a report.
    assert plan.growth == pytest.approx(2 / 0.51, rel=0.1)
    assert plan.next_limit is Station.DATABASE


def test_views_of_every_batch_in_every_process_are_a_limit_that_no_process_removes() -> None:
    plan = planned(reports(600, ranks=1), ONE)
    assert plan.loads.limited[Station.API] == pytest.approx(0.6 / 0.5)
    assert not plan.loads.carries
    assert plan.loads.first_limit is Station.API


def test_a_queue_takes_reports_from_the_database_only() -> None:
    one, queue = planned(reports(3000), ONE), planned(reports(3000), QUEUE)
    assert queue.loads.used[Station.DATABASE] == pytest.approx(30 * 0.001)
    assert queue.loads.used[Station.API] == one.loads.used[Station.API]
    assert queue.moved_bytes_per_day == pytest.approx(3000 * 8000 * 86_400)
    assert not queue.architecture.is_built


def test_an_embedded_service_has_one_core() -> None:
    # 1.01 ms of the service a report, with its view of the batch.
    assert planned(reports(400), EMBEDDED).loads.carries
    plan = planned(reports(600), EMBEDDED)
    assert (plan.loads.carries, plan.loads.first_limit, plan.machines) == (False, Station.API, 1)
    assert plan.loads.limited[Station.API] == pytest.approx(600 * 0.00101 / 0.5)


def test_an_acknowledgement_is_the_sum_of_its_stations() -> None:
    plan = planned(reports(100), ONE)
    # One process at 0.101: 1 ms of it, 0.5 ms of four nearly idle cores, 2 ms of sync.
    assert plan.acknowledgement_seconds == pytest.approx(0.001 / (1 - 0.101) + 0.0005 + 0.002, rel=1e-4)


def test_the_shipped_demands_carry_a_team_embedded_and_10_000_runs_of_256_ranks_by_several_databases() -> None:
    team, scale = FleetWorkload(runs=10, ranks=8), FleetWorkload(runs=10_000, ranks=256)
    plans = {
        name: plan_capacity(workload, machine=MachineSize(), file=shipped_demands())
        for name, workload in (("team", team), ("scale", scale))
    }
    assert plans["team"][0].loads.carries
    assert [plan.loads.carries for plan in plans["scale"]][:3] == [False, False, True]
    assert plans["scale"][2].n_databases > 1


@pytest.mark.parametrize("name", ["runs", "ranks", "step_seconds", "sequences", "chunks", "retention_days"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_workload_has_positive_numbers(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"{name}: must be a positive number"):
        FleetWorkload(**{"runs": 1, "ranks": 1, name: value})


def test_rates_count_each_kind_of_work() -> None:
    workload = FleetWorkload(runs=600, ranks=8, step_seconds=30, sequences=64, chunks=2, updates=5, scrape_seconds=10)
    assert workload.rates() == {
        Activity.REPORT: 1600.0,
        Activity.SEQUENCE: 102_400.0,
        Activity.BATCH: 100.0,
        Activity.HEARTBEAT: 160.0,
        Activity.SCRAPED_RUN: 50.0,
        Activity.RUN: 600.0,
    }
