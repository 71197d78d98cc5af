"""Results of a backtest as tables, or as JSON Lines, written run by run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon.domain.backtest.evaluation import CollapseOnset, OnsetSource, RunBacktest
from trmon.domain.backtest.rule_replay import RuleSetOutcome
from trmon.domain.backtest.totals import BacktestTotals, RuleSetTotals
from trmon.terminal.text import print_lines


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


MAX_RUNS = 100
"""Runs in the table; further ones are counted, and written by --json."""


class BacktestTables:
    """Collects the rows of the first runs, and prints all tables after the last one."""

    def __init__(self, console: Console, *, rule_sets: Sequence[str]) -> None:
        self._console = console
        is_compared = len(rule_sets) > 1
        self._runs = _table("run", "steps", "collapse")
        for name in rule_sets:
            prefix = f"{escape(name)}: " if is_compared else ""
            for column in ("first alarm", "first page", "sent", "as live"):
                self._runs.add_column(f"{prefix}{column}", justify="right")

    def add(self, run: RunBacktest) -> None:
        """Add a run."""
        if self._runs.row_count < MAX_RUNS:
            cells = [cell for outcome in run.outcomes for cell in _outcome_cells(outcome, run.onset)]
            known = "-" if run.onset.step is None else f"{run.onset.step:,}"
            onset = "unknown" if run.onset.source is OnsetSource.UNKNOWN else known
            self._runs.add_row(escape(run.run), f"{run.n_steps:,}", onset, *cells)

    def finish(self, totals: BacktestTotals) -> None:
        """Print everything."""
        self._console.print(self._runs)
        if totals.n_runs > MAX_RUNS:
            print_lines(self._console, [f"and {totals.n_runs - MAX_RUNS:,} more runs: --json has them"])
        self._console.print(_totals_table(totals))
        if totals.differences:
            first, against = (escape(rule_set.rules) for rule_set in totals.rule_sets[:2])
            table = _table("rule", f"runs: only {first}", f"only {against}", "both", f"median steps earlier in {first}")
            for each in totals.differences:
                table.add_row(
                    each.rule,
                    f"{each.n_only:,}",
                    f"{each.n_only_against:,}",
                    f"{each.n_both:,}",
                    _number(each.median_steps_earlier),
                )
            self._console.print(table)
        print_lines(self._console, _policy_lines(totals))


def _outcome_cells(outcome: RuleSetOutcome, onset: CollapseOnset) -> tuple[str, ...]:
    unlike = outcome.unlike_live
    live = "-" if unlike is None else "same" if not unlike else f"{len(unlike):,} differ: {unlike[0]}"
    return _first(outcome.first_alarm, onset), _first(outcome.first_page, onset), f"{outcome.n_sent:,}", live


def _first(step: int | None, onset: CollapseOnset) -> str:
    if step is None:
        return "-"
    return f"{step:,}" if onset.step is None else f"{step:,} ({onset.step - step:+,})"


def _totals_table(totals: BacktestTotals) -> Table:
    table = _table(f"{totals.n_runs:,} runs, {totals.n_steps:,} steps")
    for rule_set in totals.rule_sets:
        table.add_column(escape(rule_set.rules), justify="right")
    columns = [_total_cells(rule_set, totals) for rule_set in totals.rule_sets]
    for label in columns[0]:
        table.add_row(label, *(cells[label] for cells in columns))
    return table


def _total_cells(rule_set: RuleSetTotals, totals: BacktestTotals) -> dict[str, str]:
    cells = {}
    for name, found in (("alarms", rule_set.alarms), ("pages", rule_set.pages)):
        cells[f"{name}: collapses found"] = f"{found.n_found:,} of {totals.n_collapsed:,}"
        cells[f"{name}: before the onset"] = f"{found.n_before:,}"
        cells[f"{name}: median lead, steps"] = _number(found.median_lead_steps)
        cells[f"{name}: other runs alarmed"] = f"{found.n_others:,} of {totals.n_others:,}"
    per_day = rule_set.false_pages_per_day
    cells["false pages"] = f"{rule_set.n_false_pages:,}"
    cells["false pages a run-day"] = "no clock" if per_day is None else _number(per_day)
    if totals.n_unknown:
        cells["runs left out: collapse unknown"] = f"{totals.n_unknown:,}"
    return cells


def _policy_lines(totals: BacktestTotals) -> Iterator[str]:
    for policy in totals.policies:
        skipped = f"; {policy.n_skipped:,} runs store no sequences" if policy.n_skipped else ""
        if policy.mask_rate is None:
            yield f"{policy.policy}: not applied{skipped}"
        else:
            of = f"{policy.n_sequences:,} sequences of {policy.n_runs:,} runs"
            yield f"{policy.policy} would have masked {policy.mask_rate:.2%} of {of}{skipped}"


def _table(*columns: str) -> Table:
    table = Table(*columns[:1], box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"
