"""What the model predicted of the loads that it was not fitted to, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from benchmarks.capacity.load_sample import LoadSample
from benchmarks.capacity.one_machine import OneMachinePrediction, predict_on_one_machine
from trmon.domain.capacity.demand_file import DemandFile
from trmon.domain.capacity.station import Station

COMPARED = (Station.API, Station.WORKER, Station.DATABASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLoad:
    """A load that was held out: medians of what was measured and predicted, each a pair."""

    name: str
    share: float
    reports_per_second: tuple[float, float]
    mean_ms: tuple[float, float]
    used: dict[Station, tuple[float, float]]


def compared_loads(samples: Sequence[LoadSample], file: DemandFile) -> Iterator[ComparedLoad]:
    """Yield each load that was held out."""
    sender_seconds = median(
        sample.sender_cores / sample.rates["report"] for sample in samples if sample.share and not sample.is_held_out
    )

    def place(sample: LoadSample) -> tuple[str, int, float]:
        return sample.deployment, sample.n_api, sample.share

    held_out = sorted((sample for sample in samples if sample.is_held_out), key=place)
    for (deployment, n_api, share), found in groupby(held_out, key=place):
        measured = list(found)
        predicted = [predict_on_one_machine(one, file, sender_seconds=sender_seconds) for one in measured]
        yield _compared(f"{deployment}, {n_api} API", share, measured, predicted)


def _compared(
    name: str, share: float, measured: Sequence[LoadSample], predicted: Sequence[OneMachinePrediction]
) -> ComparedLoad:
    stations = [station for station in COMPARED if station.value in measured[0].used]
    return ComparedLoad(
        name=name,
        share=share,
        reports_per_second=(
            median(one.per_second for one in measured),
            median(one.per_second for one in predicted),
        ),
        mean_ms=(
            median(one.mean_ms for one in measured if one.mean_ms is not None),
            median(one.mean_ms for one in predicted),
        ),
        used={
            station: (
                median(one.used[station.value] for one in measured),
                median(one.used[station] for one in predicted),
            )
            for station in stations
        },
    )
