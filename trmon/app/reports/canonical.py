"""The canonical form of a message: the same data is the same bytes, however a client wrote it down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from trmon.domain.identity import RunKey
from trmon_client.core import wire
from trmon_client.core.columns import Columns


def canonical(message: wire.Message, key: RunKey) -> wire.Message:
    """Return a message that names its run, and whose numbers are floats in the order of their names."""
    changed: dict[str, Any] = {"project": key.project, "run": key.run}
    if isinstance(message, wire.Report):
        changed["scalars"] = _numbers(message.scalars)
    elif isinstance(message, wire.Scalars):
        changed["values"] = _numbers(message.values)
    return msgspec.structs.replace(message, **changed)


def canonical_columns(columns: Columns) -> Columns:
    """Return columns in the order of their names, with one NaN and one zero."""
    values = {name: _one_nan(columns[name]) for name in sorted(columns)}
    histograms = {pair: columns.histograms[pair] for pair in sorted(columns.histograms)}
    return replace(columns, by_name=values, histograms=histograms)


def _numbers(scalars: dict[str, wire.JsonNumber]) -> dict[str, wire.JsonNumber]:
    return {name: wire.number(scalars[name]) + 0.0 for name in sorted(scalars)}


def _one_nan(column: Any) -> Any:
    if column.dtype.kind != "f":
        return column
    column = column + 0.0
    column[np.isnan(column)] = np.nan
    return column
