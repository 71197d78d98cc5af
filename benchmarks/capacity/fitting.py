"""Fits the demands of each deployment to the samples that are not held out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from msgspec import structs

from benchmarks.capacity.load_sample import LoadSample, SampleFile
from benchmarks.capacity.one_machine import acknowledgement_on_one_machine
from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.demand_file import FORMAT, DemandFile, MeasuredDemands
from trmon.domain.capacity.demand_fit import DemandFit, fit_demands
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.capacity.station_loads import with_process_rates

SMALLEST_SECONDS, SMALLEST_BYTES = 0.004, 1e4
"""Usage per second below this is noise."""
GROUP_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
COMMAND = "python -m benchmarks.capacity"
DIGITS = 4


def fitted_file(file: SampleFile) -> DemandFile:
    """Return the demands of all deployments."""
    samples = {
        kind: [one for one in file.samples if one.deployment == kind.value and not one.is_held_out]
        for kind in DeploymentKind
    }
    demands = DemandFile(
        format=FORMAT,
        measured_by=COMMAND,
        measured_at=file.measured_at,
        machine=file.machine,
        deployments={kind.value: _fitted(samples[kind]) for kind in DeploymentKind},
    )
    synced = {
        kind.value: structs.replace(
            demands.deployments[kind.value],
            sync_seconds=_sync_seconds(samples[kind], demands, cores=file.machine.cores),
        )
        for kind in DeploymentKind
    }
    return structs.replace(demands, deployments=synced)


def _fitted(samples: Sequence[LoadSample]) -> MeasuredDemands:
    """Return the demands under the length of a group that explains the usage best."""
    is_fleet = len({sample.n_api for sample in samples}) > 1
    # An embedded service is one process: what its views cost is part of a batch's demand.
    activities = [activity for activity in Activity if is_fleet or activity is not Activity.VIEW]
    tried = [_fitted_with(samples, activities, group_seconds=seconds) for seconds in GROUP_SECONDS]
    return min(tried, key=lambda one: one.relative_errors[Station.API.value])


def _fitted_with(
    samples: Sequence[LoadSample], activities: Sequence[Activity], *, group_seconds: float
) -> MeasuredDemands:
    tried = {station: _fit_station(samples, station, activities, group_seconds=group_seconds) for station in Station}
    fits = {station.value: fit for station, fit in tried.items() if fit is not None}
    return MeasuredDemands(
        stations={
            name: {
                activity.value: float(f"{value:.{DIGITS}g}")
                for activity, value in zip(activities, fit.demands.tolist(), strict=True)
                if value
            }
            for name, fit in fits.items()
        },
        relative_errors={name: round(fit.relative_error, 3) for name, fit in fits.items()},
        group_seconds=group_seconds,
        sync_seconds=0.0,
    )


def _fit_station(
    samples: Sequence[LoadSample], station: Station, activities: Sequence[Activity], *, group_seconds: float
) -> DemandFit | None:
    smallest = SMALLEST_BYTES if station.counts_bytes else SMALLEST_SECONDS
    seen = [sample for sample in samples if sample.used.get(station.value, 0.0) >= smallest]
    if not seen:
        return None
    rates = np.array([_rates(sample, activities, group_seconds=group_seconds) for sample in seen])
    return fit_demands(rates, np.array([sample.used[station.value] for sample in seen]))


def _rates(sample: LoadSample, activities: Sequence[Activity], *, group_seconds: float) -> list[float]:
    given = {Activity(name): rate for name, rate in sample.rates.items()}
    rates = with_process_rates(given, n_api=sample.n_api, group_seconds=group_seconds)
    return [rates[activity] for activity in activities]


def _sync_seconds(samples: Sequence[LoadSample], file: DemandFile, *, cores: int) -> float:
    """Return the median time of an acknowledgement that neither CPU time nor the wait for a core explains."""
    left = [
        sample.mean_ms / 1000 - acknowledgement_on_one_machine(sample, file, cores=cores)
        for sample in samples
        if sample.mean_ms is not None and sample.share < 1
    ]
    return round(max(median(filter(math.isfinite, left)), 0.0), 5)
