"""Columns as a table of pandas, Polars or Arrow, each imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class ColumnTable:
    """What has columns of equal length: converts them into tables of other libraries."""

    def columns(self) -> dict[str, Any]:
        """Return the columns by name, numpy arrays [rows]."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame. Errors: ImportError that says what to install."""
        table: pandas.DataFrame = _library("pandas").DataFrame(self.columns())
        return table

    def to_polars(self) -> polars.DataFrame:
        """Return a Polars DataFrame. Errors: ImportError that says what to install."""
        table: polars.DataFrame = _library("polars").DataFrame(self.columns())
        return table

    def to_arrow(self) -> pyarrow.Table:
        """Return an Arrow table. Errors: ImportError that says what to install."""
        table: pyarrow.Table = _library("pyarrow").table(self.columns())
        return table


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f"{name} is not installed: pip install {name}", name=name) from None
