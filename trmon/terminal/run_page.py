"""Print one run: verdict, alerts, diagnosis with evidence and remedy, signals, policies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trmon.domain.finding import Severity
from trmon.domain.health.verdict import Urgency
from trmon.domain.runs.run import RunState
from trmon.terminal.cut_text import cut_middle
from trmon.terminal.diagnosis_text import print_diagnosis as show_diagnosis
from trmon.terminal.diagnosis_text import when_to_act
from trmon.terminal.run_detail import POINTS, RunDetail
from trmon.terminal.sparkline import text_sparkline
from trmon.terminal.styles import OF_SEVERITY, last_seen_text, percent_text, verdict_line
from trmon_client.api import DiagnosisInfo, RunStatus, SignalBand, SignalHistory
from trmon_client.api.runs import OpenAlertInfo
from trmon_client.core.signals.catalogue import SIGNALS

NO_BAND = SignalBand(last=np.empty(0), mean=np.empty(0), min=np.empty(0), max=np.empty(0))
UNCALIBRATED = ("uncalibrated", "starts_ill")
"""Calibrations after which the bounds are still ceilings."""
WIDE = 110
"""Terminal columns from which the healthy ranges fit."""
NAME_WIDTH, NUMBER_WIDTH, PADDING = 26, 9, 3
LEAST_BARS = 8


def print_run(detail: RunDetail, console: Console, *, now: float) -> None:
    """Print the details of a run."""
    run = detail.run
    console.print(Text(f"{run.project}/{run.run}", style="bold"), Text(_about(run, now=now), style="dim"))
    if run.end_phrase:
        console.print(Text(run.end_phrase), soft_wrap=True)
    for warning in run.warnings:
        console.print(Text(f"warning: {warning}"), style=OF_SEVERITY[Severity.WARN.value], soft_wrap=True)
    console.print(verdict_line(run.verdict), soft_wrap=True)
    if run.verdict.todo and run.incident is not None and run.verdict.need != Urgency.NONE.value:
        when = when_to_act(run.state == RunState.FINISHED.value)
        console.print(Text(f"{when}: {run.verdict.todo}"), soft_wrap=True)
    if run.incident is not None and run.incident.acked_by:
        console.print(Text(f"acknowledged by {run.incident.acked_by}", style="dim"), soft_wrap=True)
    for alert in run.alerts:
        console.print(_alert(alert), soft_wrap=True)
    if detail.diagnosis is not None:
        console.print()
        show_diagnosis(detail.diagnosis, console)
    if detail.history is not None:
        told = _evidence(detail.diagnosis)
        console.print(signal_course_table(detail.history, detail.drawn, told=told, console=console))
        console.print(_policies(detail, detail.history, console))


def _about(run: RunStatus, *, now: float) -> str:
    step = "no step" if run.step is None else f"step {run.step:,}"
    every = "" if run.expected_step_seconds is None else f", {run.expected_step_seconds:.3g} s each"
    owner = f" · owner {run.owner}" if run.owner else ""
    tags = f" · {', '.join(run.tags)}" if run.tags else ""
    return f"{run.state} · {step}{every} · seen {last_seen_text(run.last_report_at, now=now)}{owner}{tags}"


def _alert(alert: OpenAlertInfo) -> Text:
    taken = f", acknowledged by {alert.acked_by}" if alert.acked_by else ""
    style = OF_SEVERITY.get(alert.severity, "")
    return Text(f"{alert.severity}: {alert.rule} since step {alert.step}{taken}", style=style)


def signal_course_table(
    history: SignalHistory, names: Sequence[str], *, told: Collection[str], console: Console
) -> Table:
    """Return the table of signals: their newest, least and largest values and their course.

    Args: told: the stems of signals that are evidence, which are bold in any pair.
    """
    first, last = history.step[0], history.step[-1]
    is_wide = console.width >= WIDE
    table = Table(box=box.SIMPLE_HEAD, title=f"steps {first:,} to {last:,}", title_justify="left")
    table.add_column("signal", no_wrap=True)
    for column in ("now", "least", "largest"):
        table.add_column(column, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("healthy", no_wrap=True)
    table.add_column("course", no_wrap=True)
    n_bars = POINTS if is_wide else _bars_beside_numbers(console)
    for name in names:
        band = history.bands[name]
        healthy = SIGNALS[name].healthy if name in SIGNALS else ""
        numbers = (_newest(band), min(_known(band.min), default=None), max(_known(band.max), default=None))
        known = [_number(number, digits=4 if is_wide else 3) for number in numbers]
        cells: list[str | Text] = [*known, *([Text(healthy)] if is_wide else []), _course(band, console, n_bars=n_bars)]
        table.add_row(cut_middle(name, NAME_WIDTH), *cells, style="bold" if _stem(name) in told else "")
    return table


def _bars_beside_numbers(console: Console) -> int:
    """Return how many bars of a course fit beside a name and three whole numbers."""
    taken = NAME_WIDTH + 3 * NUMBER_WIDTH + 5 * PADDING
    return min(max(console.width - taken, LEAST_BARS), POINTS)


def _evidence(diagnosis: DiagnosisInfo | None) -> frozenset[str]:
    """Return the stems of the signals that a diagnosis rests on."""
    observed = diagnosis.observed if diagnosis else ()
    return frozenset(_stem(item.signal) for observation in observed for item in observation.evidence)


def _stem(name: str) -> str:
    return SIGNALS[name].stem if name in SIGNALS else name


def _policies(detail: RunDetail, history: SignalHistory, console: Console) -> Table:
    table = Table("policy", "", box=box.SIMPLE_HEAD, title="what each policy rejects", title_justify="left")
    table.add_column("now", justify="right")
    table.add_column("largest", justify="right")
    table.add_column("course", no_wrap=True)
    for policy, name in detail.mask_rates.items():
        band = history.bands.get(name, NO_BAND)
        role = _role(detail) if policy == detail.policy.name else "shadow"
        shares = (percent_text(_newest(band)), percent_text(max(_known(band.max), default=None)))
        row = (*shares, _course(band, console, n_bars=min(POINTS, console.width // 3)))
        table.add_row(Text(policy), role, *row)
    return table


def _role(detail: RunDetail) -> str:
    """Return the role of the active policy; bounds that are still ceilings are named as uncalibrated."""
    return "active, uncalibrated" if detail.policy.calibration in UNCALIBRATED else "active"


def _course(band: SignalBand, console: Console, *, n_bars: int) -> str:
    return text_sparkline(band.mean.tolist(), width=n_bars, ascii_only=console.options.ascii_only)


def _newest(band: SignalBand) -> float | None:
    return next(reversed(_known(band.last)), None)


def _known(values: Any) -> list[float]:
    """Return the finite values of an array."""
    found: list[float] = values[np.isfinite(values)].tolist()
    return found


def _number(value: float | None, *, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"
