"""Columns: the sufficient statistics of a batch, their schema and their histograms."""

from trmon_client.core.columns.columns import Columns

__all__ = ["Columns"]
