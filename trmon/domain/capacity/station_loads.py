"""What a workload takes of each station of one database and its processes, and which of them limits it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trmon.domain.capacity.demand_file import StationDemands
from trmon.domain.capacity.queueing import groups_per_second
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.model.slots import SLOTS

OF_DATABASE = frozenset({Station.DATABASE, Station.LOG, Station.TABLES, Station.NETWORK})
"""The stations that another system relieves."""
CROSSINGS = 2
"""How often a report crosses the network of the database: from the API process, and to the worker."""
MAX_PROCESSES = 1 << 20
"""With more processes, each has only the work that every one of them has."""

Rates = Mapping[Activity, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSize:
    """A machine: its cores, its disk and its network in bytes per second, and the share of each that may be busy."""

    cores: int = 16
    disk_bytes_per_second: float = 500e6
    network_bytes_per_second: float = 1.25e9
    target: float = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class StationLoads:
    """The load of one database and its processes.

    `used` is CPU seconds, or bytes, per second in all processes; `limited` is the needed share of what a station can
    have at the most, at the target utilisation: above 1 it does not carry the load, whatever is added.
    """

    n_api: int
    n_workers: int
    used: Mapping[Station, float]
    limited: Mapping[Station, float]

    @property
    def carries(self) -> bool:
        """Whether every station carries the load."""
        return max(self.limited.values()) <= 1

    @property
    def first_limit(self) -> Station:
        """The station that stops first as the load grows."""
        return max(self.limited, key=lambda station: self.limited[station])


def fleet_loads(
    rates: Rates,
    demands: StationDemands,
    *,
    group_seconds: float,
    machine: MachineSize,
    moved: Collection[Activity] = (),
) -> StationLoads:
    """Return the load of one PostgreSQL, with as many API processes and workers as the target needs.

    Args: moved: the work that another system takes from the database.
    """

    def used_by(n_api: int) -> Mapping[Station, float]:
        return station_usage(rates, demands, n_api=n_api, group_seconds=group_seconds, moved=moved)

    def api_share(n_api: int) -> float:
        return used_by(n_api)[Station.API] / n_api / machine.target

    least = api_share(MAX_PROCESSES)
    most = math.ceil(used_by(1)[Station.API] / machine.target)
    n_api = bisect_left(range(1, MAX_PROCESSES), True, key=lambda n: api_share(n) <= 1) + 1 if least < 1 else most
    used = used_by(n_api)
    return StationLoads(
        n_api=n_api,
        n_workers=max(math.ceil(used[Station.WORKER] / machine.target), 1),
        used=used,
        limited=_limited(used, machine=machine)
        | {Station.API: least, Station.WORKER: _of_a_core(used, machine) / SLOTS},
    )


def embedded_loads(
    rates: Rates, demands: StationDemands, *, group_seconds: float, machine: MachineSize
) -> StationLoads:
    """Return the load of an embedded service: it and its worker have a core each."""
    used = station_usage(rates, demands, n_api=1, group_seconds=group_seconds)
    api = used[Station.API] / machine.target
    limited = _limited(used, machine=machine) | {Station.API: api, Station.WORKER: _of_a_core(used, machine)}
    return StationLoads(n_api=1, n_workers=1, used=used, limited=limited)


def station_usage(
    rates: Rates,
    demands: StationDemands,
    *,
    n_api: int,
    group_seconds: float,
    moved: Collection[Activity] = (),
) -> Mapping[Station, float]:
    """Return what rates use of each station with a number of API processes."""
    every = with_process_rates(rates, n_api=n_api, group_seconds=group_seconds)
    return {
        station: sum(
            value * every.get(activity, 0.0)
            for activity, value in needed.items()
            if activity not in moved or station not in OF_DATABASE
        )
        for station, needed in demands.items()
    }


def with_process_rates(rates: Rates, *, n_api: int, group_seconds: float) -> Rates:
    """Return rates with the work that depends on the number of API processes."""
    messages = rates.get(Activity.REPORT, 0.0) + rates.get(Activity.HEARTBEAT, 0.0)
    return {
        **rates,
        Activity.GROUP: n_api * groups_per_second(messages / n_api, group_seconds),
        Activity.VIEW: n_api * rates.get(Activity.BATCH, 0.0),
        Activity.PROCESS: float(n_api),
    }


def _of_a_core(used: Mapping[Station, float], machine: MachineSize) -> float:
    # Python runs one thread of a process at a time.
    return used[Station.WORKER] / machine.target


def _limited(used: Mapping[Station, float], *, machine: MachineSize) -> dict[Station, float]:
    target = machine.target
    return {
        Station.DATABASE: used[Station.DATABASE] / machine.cores / target,
        Station.REDIS: used[Station.REDIS] / target,
        Station.LOG: used[Station.LOG] / machine.disk_bytes_per_second / target,
        Station.NETWORK: CROSSINGS * used[Station.NETWORK] / machine.network_bytes_per_second / target,
    }
