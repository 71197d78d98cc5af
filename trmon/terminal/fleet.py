"""The fleet as `trmon top` draws it: its runs in the order of urgency, the visible part, and what each shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from trmon.domain.health.judgement import NEEDS_YOU, Urgency, VerdictKind, counted_as
from trmon.terminal.names import fold_run_names
from trmon.terminal.text import (
    OF_SEVERITY,
    PIPE_WIDTH,
    kind_words,
    last_seen_text,
    percent_text,
    status_line,
    text_sparkline,
)
from trmon_client.api import RunStatus, Service
from trmon_client.api.runs import SparklineInfo

MAX_FILTER = 60


@dataclass(frozen=True, slots=True)
class FleetView:
    """The place of the first row, the words that rows must hold, and whether they are being typed."""

    first: int = 0
    words: str = ""
    is_typing: bool = False

    @property
    def is_filter(self) -> bool:
        """Whether a filter is shown, also one without words yet."""
        return bool(self.words) or self.is_typing

    def of(self, runs: Sequence[RunStatus]) -> list[RunStatus]:
        """Return the runs that hold every word in their name, owner, tags, state or verdict."""
        words = self.words.casefold().split()
        return [run for run in runs if all(word in _text(run) for word in words)]

    def after(self, key: str, *, n_rows: int, n_runs: int) -> FleetView | None:
        """Return what is looked at after a key, None to quit. Args: n_rows: that fit; n_runs: that match."""
        if self.is_typing and (len(key) == 1 or key in ("enter", "backspace", "escape")):
            if key == "enter":
                return replace(self, is_typing=False)
            if key == "escape":
                return FleetView()
            words = self.words[:-1] if key == "backspace" else (self.words + key)[:MAX_FILTER]
            return FleetView(words=words, is_typing=True)
        if key in ("q", "Q"):
            return None
        if key == "/":
            return replace(self, is_typing=True)
        if key == "escape":
            return FleetView()
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -n_rows, "page down": n_rows, " ": n_rows}
        to = {"home": 0, "end": n_runs}.get(key, self.first + moves.get(key, 0))
        return replace(self, first=max(min(to, n_runs - n_rows), 0))


def _text(run: RunStatus) -> str:
    told = (run.name, run.owner or "", *run.tags, run.state, kind_words(run.verdict.kind), run.verdict.why)
    return " ".join(told).casefold()


MOST_RUNS = 2000
SPARKS_WIDTH = 16
FRAME_LINES = 7
"""Lines of a frame besides runs and a filter, at most: summary, trouble, head, rules, and the count of hidden runs."""
OPTIONAL: tuple[tuple[str, JustifyMethod, int], ...] = (
    *(("masked", "right", 6), ("alerts", "right", 6)),
    *(("reward", "left", SPARKS_WIDTH), ("KL", "left", SPARKS_WIDTH)),
)
"""What a wider terminal shows besides, one after the other, and the columns that each takes."""
ENOUGH = 64
"""Columns that verdicts have before there is room for more; until all of it is shown they have no more, so that a wider
terminal shows no less of them."""
NAME_SHARE, NAME_WIDTH, SEEN_WIDTH = 4, 48, 10
"""Names have this part of a terminal's columns, and at most so many; last, how long ago a run was seen."""
EDGES, GAP = 2, 3
"""Columns at both ends of a table, and between two of its columns."""
WHOLE_FLEET = FleetView()
NEEDS, KINDS = [need.value for need in Urgency], [kind.value for kind in VerdictKind]


def fetch_fleet(service: Service, *, project: str | None) -> list[RunStatus]:
    """Return the newest runs of a service, the most urgent first. Errors: ServiceError."""
    return sorted(islice(service.statuses(project), MOST_RUNS), key=urgency_order)


def urgency_order(run: RunStatus) -> tuple[int, int, float]:
    """Return the key that sorts runs by urgency, the most urgent first."""
    verdict = run.verdict
    return (_rank(verdict.need, NEEDS), _rank(verdict.kind, KINDS), -(run.last_report_at or 0.0))


def _rank(value: str, order: Sequence[str]) -> int:
    """Return the place of a value; that of a newer service comes last."""
    return order.index(value) if value in order else len(order)


def fleet_frame(
    runs: Sequence[RunStatus],
    *,
    console: Console,
    now: float,
    height: int | None = None,
    trouble: str = "",
    view: FleetView = WHOLE_FLEET,
) -> RenderableType:
    """Return a frame of a terminal's height, None: no limit; `trouble` says why the data may be outdated."""
    found = view.of(runs)
    shown = found if height is None else found[view.first : view.first + rows_within(height, view)]
    more = len(found) - view.first - len(shown)
    parts: list[RenderableType] = [Text(fleet_summary_line(runs), style="bold")]
    if trouble:
        parts.append(Text(trouble, style="bold", no_wrap=True, overflow="ellipsis"))
    if view.is_filter:
        matching = f"{len(found):,} of {len(runs):,} runs" if found else f"none of {len(runs):,} runs"
        keys = "Enter keeps it, Esc shows all" if view.is_typing else "/ changes it, Esc shows all"
        line = f"/{view.words}{'_' if view.is_typing else ''}  {matching} ({keys})"
        parts.append(Text(line, no_wrap=True, overflow="ellipsis"))
    if shown:
        parts.append(_table(shown, runs, console=console, now=now))
    if more:
        parts.append(Text(f"and {more:,} more, less urgent", style="dim"))
    return Group(*parts)


def rows_within(height: int, view: FleetView) -> int:
    """Return how many runs fit into a frame of so many lines."""
    return max(height - FRAME_LINES - view.is_filter, 1)


def fleet_summary_line(runs: Sequence[RunStatus]) -> str:
    """Return the summary line that the page shows too, e.g. `1 run needs you, 2 to watch, 14 healthy`."""
    if not runs:
        return "no runs yet: a trainer's first report creates one"
    counts = run_counts(runs)
    now = counts.pop(NEEDS_YOU, 0)
    first = f"{now:,} {'run needs' if now == 1 else 'runs need'} you" if now else "no run needs you"
    return ", ".join([first, *(f"{n:,} {words}" for words, n in counts.items())])


def run_counts(runs: Iterable[RunStatus]) -> dict[str, int]:
    """Return how many runs count under which words, in the order of urgency; an older service names no words."""
    ordered = (run.verdict for run in sorted(runs, key=urgency_order))
    return dict(Counter(verdict.counts_as or counted_as(verdict.kind, verdict.need) for verdict in ordered))


def _table(shown: Sequence[RunStatus], runs: Sequence[RunStatus], *, console: Console, now: float) -> Table:
    """Return the table of the shown runs; their names are told apart from those of all runs."""
    name_width = min(console.width // NAME_SHARE, NAME_WIDTH) if console.width < PIPE_WIDTH else PIPE_WIDTH
    names = fold_run_names(tuple(sorted((run.project, run.run) for run in runs)), name_width)
    name_width = max(len("run"), min(name_width, max(len(run.name) for run in runs)), *map(len, names.values()))
    steps = ["-" if run.step is None else f"{run.step:,}" for run in shown]
    step_width = max(len("step"), *map(len, steps))
    seen = [last_seen_text(run.last_report_at, now=now) for run in shown]
    seen_width = max(SEEN_WIDTH, *map(len, seen))
    left = console.width - EDGES - sum(width + GAP for width in (name_width, step_width, seen_width))
    columns = []
    for column in OPTIONAL:
        if left - column[2] - GAP < ENOUGH:
            break
        columns.append(column)
        left -= column[2] + GAP
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    verdicts = [status_line(run) for run in shown]
    left = min(left, max(map(len, verdicts))) if console.width >= PIPE_WIDTH else max(left, len("verdict"))
    left = left if len(columns) == len(OPTIONAL) else min(left, ENOUGH)
    table.add_column("verdict", width=left, no_wrap=True, overflow="ellipsis")
    table.add_column("run", width=name_width, no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    for name, justify, width in columns:
        table.add_column(name, justify=justify, width=width, no_wrap=True)
    table.add_column("seen", justify="right", width=seen_width, no_wrap=True)
    for run, verdict, step, ago in zip(shown, verdicts, steps, seen, strict=True):
        unacked = {alert.severity for alert in run.alerts if alert.acked_by is None}
        worst = next((severity for severity in OF_SEVERITY if severity in unacked), None)
        drawn: dict[str, RenderableType] = {
            "reward": _drawn(run.reward, console),
            "KL": _drawn(run.kl, console),
            "masked": percent_text(run.mask_rate),
            "alerts": Text(str(len(run.alerts)), style=OF_SEVERITY[worst] if worst else ""),
        }
        cells = (verdict, Text(names[run.project, run.run]), step)
        table.add_row(*cells, *(drawn[column] for column, _, _ in columns), ago)
    return table


def _drawn(line: SparklineInfo | None, console: Console) -> str:
    if line is None:
        return ""
    return text_sparkline(line.values, width=SPARKS_WIDTH, ascii_only=console.options.ascii_only)
