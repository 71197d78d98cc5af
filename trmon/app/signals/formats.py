"""A series in the formats it is asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import Response

from trmon.domain.deliveries import jsonable
from trmon.store.series import Band, Series

STATISTICS = ("min", "max", "mean", "last")
PLACES = ("attempt_id", "step", "update", "closed_at", "count")


def as_json(series: Series) -> Response:
    """Return the series as SeriesOut describes it."""
    document = {
        "exact": series.exact,
        **{place: getattr(series, place).tolist() for place in PLACES},
        "update": _updates(series),
        "signals": {name: _band(band) for name, band in series.bands.items()},
    }
    return Response(msgspec.json.encode(document), media_type="application/json")


def as_csv(series: Series) -> Response:
    """Return the series as a table: a column a signal if exact, else one for each of its statistics; NaN is empty."""
    statistics = ("last",) if series.exact else STATISTICS
    columns: dict[str, list[Any]] = {place: getattr(series, place).tolist() for place in PLACES}
    columns["update"] = _updates(series)
    for name, band in series.bands.items():
        for statistic in statistics:
            label = name if series.exact else f"{name}.{statistic}"
            columns[label] = [jsonable(value) for value in getattr(band, statistic).tolist()]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8")


FORMATS: dict[str, Callable[[Series], Response]] = {"json": as_json, "csv": as_csv}


def _band(band: Band) -> dict[str, Any]:
    return {name: [jsonable(value) for value in getattr(band, name).tolist()] for name in STATISTICS}


def _updates(series: Series) -> list[int | None]:
    return [None if update < 0 else update for update in series.update.tolist()]
