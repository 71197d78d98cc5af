"""Formats a series as JSON, CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Response

from trmon.domain.model.errors import InvalidInput
from trmon.domain.model.json_number import json_number
from trmon.store.repositories.signal_series import SeriesBand, SignalSeries

STATISTICS = ("min", "max", "mean", "last")
MEDIA_TYPES = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}
"""The media type of each format besides JSON."""
POSITIONS = ("attempt_id", "step", "update", "closed_at", "count")


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
    """Return the series as a JSON document; see SeriesOut."""
    document = {
        "exact": series.exact,
        **{name: getattr(series, name).tolist() for name in POSITIONS},
        "update": _updates(series),
        "signals": {name: _band(band, detail) for name, band in series.bands.items()},
    }
    return Response(msgspec.json.encode(document), media_type="application/json")


def as_csv(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as CSV; NaN is an empty cell."""
    columns = _position_columns(series) | {
        label: detail.json_values(values) for label, values in _numbers(series, detail).items()
    }
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return Response(text.getvalue(), media_type=MEDIA_TYPES["csv"])


def as_parquet(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as a Parquet file; NaN stays NaN. Errors: InvalidInput without pyarrow."""
    return Response(_arrow("parquet").to_parquet(_columns(series, detail)), media_type=MEDIA_TYPES["parquet"])


def as_arrow(series: SignalSeries, detail: SeriesDetail) -> Response:
    """Return the series as an Arrow stream; NaN stays NaN. Errors: InvalidInput without pyarrow."""
    return Response(_arrow("arrow").to_arrow_stream(_columns(series, detail)), media_type=MEDIA_TYPES["arrow"])


FORMATS: dict[str, Callable[[SignalSeries, SeriesDetail], Response]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
}


def _columns(series: SignalSeries, detail: SeriesDetail) -> dict[str, list[Any]]:
    return _position_columns(series) | {
        label: detail.rounded(values) for label, values in _numbers(series, detail).items()
    }


def _position_columns(series: SignalSeries) -> dict[str, list[Any]]:
    return {name: getattr(series, name).tolist() for name in POSITIONS} | {"update": _updates(series)}


def _numbers(series: SignalSeries, detail: SeriesDetail) -> dict[str, Any]:
    """Return one column per signal if exact, else one per statistic."""
    if series.exact:
        # A trainer may name a scalar "step".
        return {f"{name}.last" if name in POSITIONS else name: band.last for name, band in series.bands.items()}
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
    return {name: detail.json_values(getattr(band, name)) for name in detail.statistics}


def _updates(series: SignalSeries) -> list[int | None]:
    return [None if update < 0 else update for update in series.update.tolist()]
