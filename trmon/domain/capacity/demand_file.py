"""The file of measured demands, as JSON that a person can read and a diff can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

import msgspec

from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.model.errors import InvalidInput
from trmon_client.core.wire.decodable_types import decodable

FORMAT = 1

StationDemands = Mapping[Station, Mapping[Activity, float]]
"""Seconds of CPU time, or bytes, that each unit of work needs at each station."""


class ReferenceMachine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the demands were measured; `calibration_ms` is the CPU time of `trmon doctor --plan`'s own sample there."""

    cpu: str
    cores: int
    python: str
    database: str
    calibration_ms: float


class MeasuredDemands(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The demands of a deployment; `group_seconds` is how long a group of messages takes to commit.

    `sync_seconds` is the part of an acknowledgement during which no CPU works for it; `relative_errors` are the root
    mean squares of the fit's relative errors at each station.
    """

    stations: dict[str, dict[str, float]]
    relative_errors: dict[str, float]
    group_seconds: float
    sync_seconds: float


@decodable
class DemandFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds; `measured_by` is the command, `measured_at` the day."""

    format: int
    measured_by: str
    measured_at: str
    machine: ReferenceMachine
    deployments: dict[str, MeasuredDemands]

    def demands(self, kind: DeploymentKind, *, cpu_factor: float = 1.0) -> StationDemands:
        """Return the demands of a deployment; CPU time is multiplied by a factor, 2 for a machine half as fast."""
        measured = self.deployments[kind.value].stations
        return {
            station: {
                Activity(name): value * (1.0 if station.counts_bytes else cpu_factor)
                for name, value in measured.get(station.value, {}).items()
            }
            for station in Station
        }


def decode_demand_file(encoded: bytes) -> DemandFile:
    """Return a file that the model can use. Errors: InvalidInput naming what is wrong with it."""
    try:
        file = msgspec.json.decode(encoded, type=DemandFile)
    except msgspec.MsgspecError as error:
        raise InvalidInput("demands", f"is not a file of measured demands: {error}") from error
    for problem in _problems(file):
        raise InvalidInput("demands", problem)
    return file


@lru_cache(maxsize=1)
def shipped_demands() -> DemandFile:
    """Return the demands that come with this version."""
    return decode_demand_file((files("trmon.domain.capacity") / "demands.json").read_bytes())


def _problems(file: DemandFile) -> Iterator[str]:
    if file.format != FORMAT:
        yield f"has format {file.format}; this version reads {FORMAT}"
    for kind in DeploymentKind:
        if kind.value not in file.deployments:
            yield f"has no deployment {kind.value!r}"
    stations, activities = {station.value for station in Station}, {activity.value for activity in Activity}
    for name, measured in file.deployments.items():
        for station, demands in measured.stations.items():
            if station not in stations or not demands.keys() <= activities:
                yield f"names a station or an activity of {name} that this version does not know: {station}"
            if any(value < 0 for value in demands.values()):
                yield f"has a negative demand of {name} at {station}"
