"""Signals: the catalogue, and a run's series as JSON, CSV, parquet or Arrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from trmon.api.http.answers import AnswerRoute, content_of
from trmon.api.http.auth import Reader, require_reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import MAX_NAMES, FromStep, Named, Names, OfAttempt, ToStep, check_known, split_names
from trmon.domain.access import Access
from trmon.domain.analysis.course_marks import MARK_SIGNALS, Course, course_marks
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.measures import sources_of
from trmon.domain.framework_names.named_scalars import named_scalars
from trmon.domain.rules.condition import series_names
from trmon.domain.severity import json_number
from trmon.domain.signals.derived_signals import DERIVED, SHADOW_PREFIX
from trmon.metrics.exposition import FIXED_HELP
from trmon_client.api.runs import CourseMarkInfo
from trmon_client.api.signals import ScalarInfo, SeriesAnswer, SignalInfo, SignalSeries
from trmon_client.core.signals.catalogue import SIGNALS, TRAINER_SCALARS

STATISTICS = ("min", "max", "mean", "last")
MEDIA_TYPES = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}
"""The media type of each format besides JSON."""
POSITIONS = ("attempt_id", "step", "update", "closed_at", "count")
INTEGERS = frozenset(POSITIONS) - {"closed_at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesDetail:
    """The statistics of each point to return, and their significant digits; None for all."""

    statistics: tuple[str, ...] = STATISTICS
    digits: int | None = None

    def json_values(self, values: Any) -> list[Any]:
        """Return values for JSON: NaN is None, infinities are strings."""
        return [json_number(value) for value in self.rounded(values)]

    def rounded(self, values: Any) -> list[float]:
        """Return values rounded to the requested digits."""
        if self.digits is None:
            return list(values.tolist())
        return [float(f"{value:.{self.digits}g}") for value in values.tolist()]


def as_json(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as a JSON document; see SeriesAnswer."""
    document = {
        "exact": series.exact,
        **_position_columns(series),
        "signals": {
            name: {statistic: detail.json_values(getattr(band, statistic)) for statistic in detail.statistics}
            for name, band in series.bands.items()
        },
    }
    return Response(msgspec.json.encode(document), media_type="application/json")


def as_csv(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as CSV; NaN is an empty cell."""
    columns = _columns(series, detail, detail.json_values)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return Response(text.getvalue(), media_type=MEDIA_TYPES["csv"])


def as_parquet(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as a Parquet file; NaN stays NaN. Errors: InvalidInput without pyarrow."""
    table, file = _table(series, detail, form="parquet")
    import_module("pyarrow.parquet").write_table(table, file, compression="zstd")
    return Response(bytes(file.getvalue()), media_type=MEDIA_TYPES["parquet"])


def as_arrow(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as an Arrow stream; NaN stays NaN. Errors: InvalidInput without pyarrow."""
    table, file = _table(series, detail, form="arrow")
    with import_module("pyarrow").ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return Response(bytes(file.getvalue()), media_type=MEDIA_TYPES["arrow"])


FORMATS: dict[str, Callable[[SignalSeries, SeriesDetail], Response]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
}


def _position_columns(series: SignalSeries) -> dict[str, list[Any]]:
    updates = [None if update < 0 else update for update in series.update.tolist()]
    return {name: getattr(series, name).tolist() for name in POSITIONS} | {"update": updates}


def _columns(series: SignalSeries, detail: SeriesDetail, converted: Callable[[Any], list[Any]]) -> dict[str, list[Any]]:
    """Return the positions and, converted, one column per signal if exact, else one per statistic."""
    numbers = {
        f"{name}.{statistic}": getattr(band, statistic)
        for name, band in series.bands.items()
        for statistic in detail.statistics
    }
    if series.exact:
        # A trainer may name a scalar "step".
        numbers = {f"{name}.last" if name in POSITIONS else name: band.last for name, band in series.bands.items()}
    return _position_columns(series) | {label: converted(values) for label, values in numbers.items()}


def _table(series: SignalSeries, detail: SeriesDetail, *, form: str) -> tuple[Any, Any]:
    """Return the columns as Arrow's table, and an empty file of its memory."""
    try:
        pa = import_module("pyarrow")
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "format", f"{form} needs {error.name} in the service: pip install 'trmon[export]'; json and csv do not"
        ) from error
    columns = _columns(series, detail, detail.rounded)
    kinds = {name: pa.int64() if name in INTEGERS else pa.float64() for name in columns}
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    return table, pa.BufferOutputStream()


router = APIRouter(prefix="/api/v1", tags=["signals"], route_class=AnswerRoute)

MAX_POINTS = 10_000


@router.get("/signals", dependencies=[Depends(require_reader)])
async def list_signals(service: Service) -> list[SignalInfo]:
    """List all signals, and scalars with a common name, with their unit, words, meaning, formula and healthy range."""
    ranges = service.rules().catalogue.ranges
    healthy = {source: str(usual) for name, usual in ranges.items() for source in sources_of(name)}
    return [
        SignalInfo.from_fields(
            spec, healthy=healthy.get(spec.name, ""), prometheus=spec.core or f"trmon_{spec.name}" in FIXED_HELP
        )
        for specs in (SIGNALS, TRAINER_SCALARS, DERIVED)
        for spec in specs.values()
    ]


@router.get("/runs/{project}/{run}/signals/names")
def list_names(key: Named, access: Reader, service: Service) -> list[str]:
    """List the signals and scalars of a run."""
    return service.store.signals.names(service.store.runs.get(key, access=access).id, access=access)


@router.get("/runs/{project}/{run}/signals/scalars")
def list_scalars(key: Named, access: Reader, service: Service) -> list[ScalarInfo]:
    """List the trainer's scalars in all of a run's history that have a meaning by their names, with it."""
    signals, run = service.store.signals, service.store.runs.get(key, access=access)
    names = {*signals.names(run.id, access=access), *signals.recorded_names(run.id, access=access)}
    # A series is asked for by names between commas.
    return [scalar for scalar in named_scalars(names) if "," not in scalar.name]


@router.get(
    "/runs/{project}/{run}/signals",
    responses={200: {"content": content_of(SeriesAnswer) | {media_type: {} for media_type in MEDIA_TYPES.values()}}},
)
def get_series(
    key: Named,
    access: Reader,
    service: Service,
    names: Names = None,
    from_step: FromStep = None,
    to_step: ToStep = None,
    attempt_id: OfAttempt = None,
    points: Annotated[
        int, Query(ge=1, le=MAX_POINTS, description="Maximum number of points; each may aggregate many steps.")
    ] = 1000,
    updates: Annotated[Literal["gauge", "all"], Query(description="One row per step, or every update.")] = "gauge",
    statistics: Annotated[
        list[str] | None, Query(max_length=MAX_NAMES, description="Any of min, max, mean and last; all by default.")
    ] = None,
    digits: Annotated[int | None, Query(ge=1, le=17, description="Significant digits; all by default.")] = None,
    form: Annotated[Literal["json", "csv", "parquet", "arrow"], Query(alias="format")] = "json",
) -> Response:
    """Return signals of a run by step; points that aggregate steps have their minimum, maximum, mean and last value."""
    wanted = split_names(names)
    if not wanted:
        raise InvalidInput("names", "is required: comma-separated signals of /signals/names")
    run = service.store.runs.get(key, access=access)
    _check_signals(wanted, service=service, run_id=run.id, access=access)
    series = service.store.signals.series(
        run.id,
        names=wanted,
        access=access,
        attempt_id=attempt_id,
        from_step=from_step,
        to_step=to_step,
        points=points,
        updates=updates,
    )
    return FORMATS[form](series, SeriesDetail(statistics=_statistics(statistics), digits=digits))


MOST_ROWS = 1_000_000


@router.get("/runs/{project}/{run}/marks")
def list_marks(key: Named, access: Reader, service: Service, attempt_id: OfAttempt = None) -> list[CourseMarkInfo]:
    """List restarts, other configurations, jumps of the learning rate and checkpoints by step, the newest 200."""
    run, signals = service.store.runs.get(key, access=access), service.store.signals
    series = signals.series(run.id, names=MARK_SIGNALS, access=access, attempt_id=attempt_id, points=MOST_ROWS)
    course = Course(
        attempt_id=series.attempt_id,
        step=series.step,
        closed_at=series.closed_at,
        signals={name: series.bands[name].last for name in MARK_SIGNALS},
    )
    launches = signals.launches(run.id, access=access, attempt_id=attempt_id)
    return course_marks(course, started_at=launches, checkpoints=run.checkpoints)


def _check_signals(names: Sequence[str], *, service: Components, run_id: int, access: Access) -> None:
    """Raise InvalidInput for a name that is neither in the catalogue nor anywhere in the run's history."""
    if unusual := set(names) - series_names():
        shadows = {f"{SHADOW_PREFIX}{shadow.name}" for shadow in service.store.policies.current(run_id).shadows}
        known = series_names() | shadows | set(service.store.signals.names(run_id, access=access))
        known |= service.store.signals.recorded_names(run_id, unusual - known, access=access)
        check_known(names, known, kind="signal", listed_by="GET /api/v1/signals and /signals/names of the run")


def _statistics(wanted: Sequence[str] | None) -> tuple[str, ...]:
    chosen = tuple(split_names(wanted)) or STATISTICS
    if not set(chosen) <= set(STATISTICS):
        raise InvalidInput("statistics", f"must be any of {', '.join(STATISTICS)}, not {', '.join(chosen)!r:.64}")
    return chosen
