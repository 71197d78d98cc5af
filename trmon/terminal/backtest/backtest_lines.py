"""Results of a backtest as JSON Lines or CSV, written run by run."""

from __future__ import annotations

import csv
from typing import Protocol, TextIO

import msgspec

from trmon.domain.backtest.backtest_run import RunBacktest
from trmon.domain.backtest.backtest_totals import BacktestTotals
from trmon.domain.backtest.rule_replay import BacktestAlert

COLUMNS = BacktestAlert.__struct_fields__


class BacktestWriter(Protocol):
    """Takes the runs of a backtest as they are done, and the totals after the last one."""

    def add(self, run: RunBacktest) -> None:
        """Add a run."""

    def finish(self, totals: BacktestTotals) -> None:
        """Add the totals."""


class JsonLinesWriter:
    """Writes an object a run, and the totals as the last one; NaN is null."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def add(self, run: RunBacktest) -> None:
        """Write a run."""
        self._write(run)

    def finish(self, totals: BacktestTotals) -> None:
        """Write the totals."""
        self._write({"totals": totals})

    def _write(self, document: object) -> None:
        self._out.write(msgspec.json.encode(document).decode() + "\n")


class CsvWriter:
    """Writes a header and a row for each listed alert; an unknown value is an empty cell, and there are no totals."""

    def __init__(self, out: TextIO) -> None:
        self._writer = csv.writer(out, lineterminator="\n")
        self._writer.writerow(["run", "rules", *COLUMNS])

    def add(self, run: RunBacktest) -> None:
        """Write the alerts of a run."""
        for outcome in run.outcomes:
            for alert in outcome.alerts:
                cells = msgspec.to_builtins(alert)
                self._writer.writerow([run.run, outcome.rules, *(cells[name] for name in COLUMNS)])

    def finish(self, totals: BacktestTotals) -> None:
        """Write nothing: rows are alerts."""
