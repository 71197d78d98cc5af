"""A series in the formats it is asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Response

from trmon.domain.model.json_number import json_number
from trmon.domain.model.errors import InvalidInput
from trmon.store.repositories.signal_series import SeriesBand, SignalSeries

STATISTICS = ("min", "max", "mean", "last")
PLACES = ("attempt_id", "step", "update", "closed_at", "count")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesDetail:
    """How much of a series is told: which statistics of each point, to how many significant digits; None: all."""

    statistics: tuple[str, ...] = STATISTICS
    digits: int | None = None

    def told(self, values: Any) -> list[Any]:
        """Return values as JSON writes them: NaN is null, infinities are named."""
        return [json_number(value) for value in self.rounded(values)]

    def rounded(self, values: Any) -> list[float]:
        """Return values to the digits that are wanted."""
        if self.digits is None:
            return list(values.tolist())
        return [float(f"{value:.{self.digits}g}") for value in values.tolist()]


def as_json(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as SeriesOut describes it."""
    document = {
        "exact": series.exact,
        **{place: getattr(series, place).tolist() for place in PLACES},
        "update": _updates(series),
        "signals": {name: _band(band, detail) for name, band in series.bands.items()},
    }
    return Response(msgspec.json.encode(document), media_type="application/json")


def as_csv(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as a table; NaN is empty."""
    columns = _places(series) | {label: detail.told(values) for label, values in _numbers(series, detail).items()}
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8")


def as_parquet(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as a parquet file; NaN stays NaN. Errors: InvalidInput where pyarrow is not installed."""
    return Response(_arrow("parquet").to_parquet(_columns(series, detail)), media_type="application/vnd.apache.parquet")


def as_arrow(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as an Arrow stream; NaN stays NaN. Errors: InvalidInput where pyarrow is not installed."""
    return Response(
        _arrow("arrow").to_arrow_stream(_columns(series, detail)), media_type="application/vnd.apache.arrow.stream"
    )


FORMATS: dict[str, Callable[[SignalSeries, SeriesDetail], Response]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
}


def _columns(series: SignalSeries, detail: SeriesDetail) -> dict[str, list[Any]]:
    return _places(series) | {label: detail.rounded(values) for label, values in _numbers(series, detail).items()}


def _places(series: SignalSeries) -> dict[str, list[Any]]:
    return {place: getattr(series, place).tolist() for place in PLACES} | {"update": _updates(series)}


def _numbers(series: SignalSeries, detail: SeriesDetail) -> dict[str, Any]:
    """Return a column a signal if exact, else one for each of its statistics."""
    if series.exact:
        # A trainer may call a scalar "step".
        return {f"{name}.last" if name in PLACES else name: band.last for name, band in series.bands.items()}
    return {
        f"{name}.{statistic}": getattr(band, statistic)
        for name, band in series.bands.items()
        for statistic in detail.statistics
    }


def _arrow(form: str) -> Any:
    try:
        from trmon.api.signals import arrow
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "format", f"{form} needs {error.name} in the service: pip install 'trmon[export]'; json and csv do not"
        ) from error
    return arrow


def _band(band: SeriesBand, detail: SeriesDetail) -> dict[str, Any]:
    return {name: detail.told(getattr(band, name)) for name in detail.statistics}


def _updates(series: SignalSeries) -> list[int | None]:
    return [None if update < 0 else update for update in series.update.tolist()]
