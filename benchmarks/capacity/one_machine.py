"""Predictions for the measured machine, on whose cores senders, all processes and the database wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.capacity.load_sample import LoadSample
from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.demand_file import DemandFile, StationDemands
from trmon.domain.capacity.queueing import multiserver_response
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.capacity.station_loads import station_usage

PROCESSORS = (Station.API, Station.WORKER, Station.DATABASE, Station.REDIS)
"""The stations whose CPU times add up; the event loop is part of the API process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneMachinePrediction:
    """Usage by station, reports per second and the mean acknowledgement in ms."""

    used: Mapping[Station, float]
    per_second: float
    mean_ms: float


def predict_on_one_machine(sample: LoadSample, file: DemandFile, *, sender_seconds: float) -> OneMachinePrediction:
    """Return what the model says of a sample's load, whose own usage and times it does not read.

    With connections that wait for their acknowledgements, the rate is the asymptotic bound of the closed network and
    the time follows from Little's law. Source: Denning and Buzen (1978), The Operational Analysis of Queueing Network
    Models, ACM Computing Surveys 10(3).
    Args: sender_seconds: CPU time of the senders per report.
    """
    kind, cores = DeploymentKind(sample.deployment), file.machine.cores
    demands, measured = file.demands(kind), file.deployments[kind.value]
    used, sync = _used(sample, file), measured.sync_seconds
    if sample.share < 1:
        busy = _busy(used) + sender_seconds * sample.rates[Activity.REPORT.value]
        service = _of_report(sample, demands)
        seconds = multiserver_response(service, servers=cores, offered=busy) + sync
        return OneMachinePrediction(used=used, per_second=sample.per_second, mean_ms=1000 * seconds)
    reports = sample.rates[Activity.REPORT.value]
    of_report = _busy(used) / reports + sender_seconds
    alone = _of_report(sample, demands) + sender_seconds + sync
    in_api = used[Station.API] / sample.n_api / reports
    per_second = min(cores / of_report, sample.n_connections / alone, 1 / in_api)
    return OneMachinePrediction(used=used, per_second=per_second, mean_ms=1000 * sample.n_connections / per_second)


def acknowledgement_on_one_machine(sample: LoadSample, file: DemandFile, *, cores: int) -> float:
    """Return the seconds of CPU time, and of waiting for a core, of a sample's acknowledgements."""
    demands = file.demands(DeploymentKind(sample.deployment))
    busy = _busy(_used(sample, file)) + sample.sender_cores
    return multiserver_response(_of_report(sample, demands), servers=cores, offered=busy)


def _used(sample: LoadSample, file: DemandFile) -> Mapping[Station, float]:
    kind = DeploymentKind(sample.deployment)
    rates = {Activity(name): rate for name, rate in sample.rates.items()}
    group_seconds = file.deployments[kind.value].group_seconds
    return station_usage(rates, file.demands(kind), n_api=sample.n_api, group_seconds=group_seconds)


def _busy(used: Mapping[Station, float]) -> float:
    return sum(used[station] for station in PROCESSORS)


def _of_report(sample: LoadSample, demands: StationDemands) -> float:
    return sum(
        demands[station].get(Activity.REPORT, 0.0) + sample.sequences * demands[station].get(Activity.SEQUENCE, 0.0)
        for station in (Station.API, Station.DATABASE)
    )
