"""What each architecture needs for a workload: processes, machines, bytes, latency, and what stops first."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trmon.domain.capacity.architecture import ARCHITECTURES, DeploymentKind, ServiceArchitecture
from trmon.domain.capacity.demand_file import DemandFile, StationDemands
from trmon.domain.capacity.fleet_workload import FleetWorkload
from trmon.domain.capacity.queueing import multiserver_response, processor_sharing_response
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.capacity.station_loads import MachineSize, StationLoads, embedded_loads, fleet_loads

DAY_SECONDS = 86_400.0
MAX_DATABASES = 4096
"""More are not tried."""
GROWTH_STEPS = 400
MAX_GROWTH = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitecturePlan:
    """What an architecture needs, with `n_databases` that each carry an equal share of `workload`.

    `growth` is the multiple of the runs, at the same number of databases, at which the station `next_limit` stops;
    `acknowledgement_seconds` the mean until a trainer's report is acknowledged; `moved_bytes_per_day` goes to the
    system that relieves the database, whose machines are not counted.
    """

    architecture: ServiceArchitecture
    workload: FleetWorkload
    machine: MachineSize
    n_databases: int
    loads: StationLoads
    stored_bytes_per_day: float
    moved_bytes_per_day: float
    acknowledgement_seconds: float
    growth: float
    next_limit: Station

    @property
    def api_processes(self) -> int:
        """API processes of all databases."""
        return self.n_databases * self.loads.n_api

    @property
    def workers(self) -> int:
        """Workers of all databases."""
        return self.n_databases * self.loads.n_workers

    @property
    def cores(self) -> float:
        """Busy cores of API processes, workers, databases and Redis; the event loop is part of the API process."""
        stations = (Station.API, Station.WORKER, Station.DATABASE, Station.REDIS)
        return self.n_databases * sum(self.loads.used[station] for station in stations)

    @property
    def machines(self) -> int:
        """Machines at the target utilisation: those of the processes, and one for each database of a fleet."""
        if self.architecture.kind is DeploymentKind.EMBEDDED:
            return 1
        of_processes = self.loads.used[Station.API] + self.loads.used[Station.WORKER]
        per_machine = self.machine.cores * self.machine.target
        return math.ceil(self.n_databases * of_processes / per_machine) + self.n_databases


def plan_capacity(
    workload: FleetWorkload,
    *,
    machine: MachineSize,
    file: DemandFile,
    cpu_factor: float = 1.0,
    architectures: Sequence[ServiceArchitecture] = ARCHITECTURES,
) -> list[ArchitecturePlan]:
    """Return the plan of each architecture; one whose `loads.carries` is false does not suffice.

    Args: cpu_factor: CPU time of these machines in multiples of the reference machine's.
    """
    return [_plan(one, workload, machine=machine, file=file, cpu_factor=cpu_factor) for one in architectures]


def _plan(
    architecture: ServiceArchitecture,
    workload: FleetWorkload,
    *,
    machine: MachineSize,
    file: DemandFile,
    cpu_factor: float,
) -> ArchitecturePlan:
    demands = file.demands(architecture.kind, cpu_factor=cpu_factor)
    measured = file.deployments[architecture.kind.value]

    def loads_of(carried: FleetWorkload, n_databases: int) -> StationLoads:
        rates = {activity: rate / n_databases for activity, rate in carried.rates().items()}
        if architecture.kind is DeploymentKind.EMBEDDED:
            return embedded_loads(rates, demands, group_seconds=measured.group_seconds, machine=machine)
        return fleet_loads(
            rates, demands, group_seconds=measured.group_seconds, machine=machine, moved=architecture.moved
        )

    def loads_at(step: int) -> StationLoads:
        return loads_of(replace(workload, runs=max(int(workload.runs * _growth_of(step)), 1)), n_databases)

    n_databases = 1
    if architecture.many_databases:
        n_databases += bisect_left(range(1, MAX_DATABASES), True, key=lambda n: loads_of(workload, n).carries)
    loads = loads_of(workload, n_databases)
    stops_at = bisect_left(range(2 * GROWTH_STEPS), True, key=lambda step: not loads_at(step).carries)
    return ArchitecturePlan(
        architecture=architecture,
        workload=workload,
        machine=machine,
        n_databases=n_databases,
        loads=loads,
        stored_bytes_per_day=n_databases * loads.used[Station.TABLES] * DAY_SECONDS,
        moved_bytes_per_day=_moved_bytes(architecture, workload, demands) * DAY_SECONDS,
        acknowledgement_seconds=acknowledgement_seconds(
            demands,
            sequences=workload.sequences,
            api_utilisation=loads.used[Station.API] / loads.n_api,
            database_cores=machine.cores,
            database_used=loads.used[Station.DATABASE],
            sync_seconds=measured.sync_seconds,
        ),
        growth=_growth_of(stops_at),
        next_limit=loads_at(stops_at).first_limit,
    )


def acknowledgement_seconds(
    demands: StationDemands,
    *,
    sequences: int,
    api_utilisation: float,
    database_cores: int,
    database_used: float,
    sync_seconds: float,
) -> float:
    """Return the mean time until a report is acknowledged: its API process, the database, and the disk's sync.

    The database's demand counts as a whole, although a part of it is the worker's, after the acknowledgement.
    Source: the response time of an open network is the sum of its stations' (Lazowska et al. 1984, Quantitative
    System Performance, chapter 6).
    """
    api, database = (
        demands[station].get(Activity.REPORT, 0.0) + sequences * demands[station].get(Activity.SEQUENCE, 0.0)
        for station in (Station.API, Station.DATABASE)
    )
    at_database = multiserver_response(database, servers=database_cores, offered=database_used)
    return processor_sharing_response(api, api_utilisation) + at_database + sync_seconds


def _growth_of(step: int) -> float:
    """Return the multiples that are tried, from a millionth to a million in equal ratios."""
    return float(MAX_GROWTH ** (step / GROWTH_STEPS - 1))


def _moved_bytes(architecture: ServiceArchitecture, workload: FleetWorkload, demands: StationDemands) -> float:
    rates = workload.rates()
    return sum(demands[Station.TABLES].get(activity, 0.0) * rates[activity] for activity in architecture.moved)
