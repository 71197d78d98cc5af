"""`trmon show`: print one run."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.domain.health.judgement import Urgency
from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon.terminal.diagnosis_text import print_diagnosis as show_diagnosis
from trmon.terminal.text import (
    OF_SEVERITY,
    PIPE_WIDTH,
    cut_middle,
    last_seen_text,
    percent_text,
    status_line,
    text_sparkline,
)
from trmon_client.api import DiagnosisInfo, PolicyInfo, RunStatus, Service, SignalBand, SignalHistory
from trmon_client.api.runs import OpenAlertInfo
from trmon_client.core.column_schema import PRIMARY_ORDER
from trmon_client.core.signals.catalogue import SIGNALS

POINTS = 40
MAIN = (
    *("reward_mean", "response_length_mean"),
    *("kl_k3", "kl_k1", "chi2_token", "ess_token", "ess_seq", "prob_pearson", "ratio_mean", "abs_log_ratio_max"),
    *("version_lag_mean", "clip_fraction", "zero_variance_groups", "invalid_fraction", "grad_norm", "entropy"),
)
"""The signals in the table; those of a pair by their stem."""
MASK_RATE = "mask_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run: `diagnosis` and `history` are None before its first step closes; `drawn` names what is in `history`."""

    run: RunStatus
    policy: PolicyInfo
    diagnosis: DiagnosisInfo | None
    history: SignalHistory | None
    drawn: tuple[str, ...]

    @property
    def mask_rates(self) -> Mapping[str, str]:
        """The signal of each policy's mask rate by the policy's name, the active policy first."""
        shadows = {shadow["name"]: f"{SHADOW_PREFIX}{shadow['name']}" for shadow in self.policy.shadows}
        return {self.policy.name: MASK_RATE, **shadows}


def fetch_run_detail(service: Service, key: RunKey) -> RunDetail:
    """Return the details of a run. Errors: ServiceError, also if there is no such run."""
    name = str(key)
    run, policy = service.status(name), service.policy(name)
    if run.step is None:
        return RunDetail(run=run, policy=policy, diagnosis=None, history=None, drawn=())
    diagnosis = service.diagnosis(name)
    names = service.signal_names(name)
    evidence = [name for name in _evidence_signals(diagnosis) if name in names]
    # Of a pair's signals those that a finding rests on are of the pair that it names.
    drawn = tuple(dict.fromkeys({_stem(name): name for name in (*_drawn(names), *evidence)}.values()))
    rates = [name for name in names if name == MASK_RATE or name.startswith(SHADOW_PREFIX)]
    history = service.signals(name, (*drawn, *rates), points=POINTS)
    return RunDetail(run=run, policy=policy, diagnosis=diagnosis, history=history, drawn=drawn)


def _drawn(names: Sequence[str]) -> tuple[str, ...]:
    """Return the full names of the main signals that a run has; of a pair's signals, those of the primary pair."""
    spellings = ((stem, *(f"{pair}_{stem}" for pair in PRIMARY_ORDER)) for stem in MAIN)
    found = (next((name for name in of_stem if name in names), None) for of_stem in spellings)
    return tuple(name for name in found if name is not None)


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
    console.print(status_line(run), soft_wrap=True)
    has_remedy = detail.diagnosis is not None and detail.diagnosis.remedy is not None
    if run.verdict.todo and not has_remedy and run.verdict.need != Urgency.NONE.value:
        console.print(Text(f"do: {run.verdict.todo}"), soft_wrap=True)
    if run.incident is not None and run.incident.acked_by:
        console.print(Text(f"acknowledged by {run.incident.acked_by}", style="dim"), soft_wrap=True)
    for alert in run.alerts:
        console.print(_alert(alert), soft_wrap=True)
    if detail.diagnosis is not None:
        console.print()
        show_diagnosis(detail.diagnosis, console, says_word=False)
    if detail.history is not None:
        bands = detail.history.bands
        told = frozenset(map(_stem, _evidence_signals(detail.diagnosis)))
        measured = [name for name in detail.drawn if _known(bands[name].last)]
        if measured:
            console.print(signal_course_table(detail.history, measured, told=told, console=console))
        if any(_known(bands.get(name, NO_BAND).last) for name in detail.mask_rates.values()):
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
    return Text(f"{alert.severity}: {alert.title or alert.rule} since step {alert.step}{taken}", style=style)


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
        shown = name if console.width >= PIPE_WIDTH else cut_middle(name, NAME_WIDTH)
        table.add_row(shown, *cells, style="bold" if _stem(name) in told else "")
    return table


def _bars_beside_numbers(console: Console) -> int:
    """Return how many bars of a course fit beside a name and three whole numbers."""
    taken = NAME_WIDTH + 3 * NUMBER_WIDTH + 5 * PADDING
    return min(max(console.width - taken, LEAST_BARS), POINTS)


def _evidence_signals(diagnosis: DiagnosisInfo | None) -> list[str]:
    """Return the signals that a diagnosis rests on."""
    findings = diagnosis.findings if diagnosis else ()
    return [item.signal for found in findings for item in found.evidence]


def _stem(name: str) -> str:
    return SIGNALS[name].stem if name in SIGNALS else name


def _policies(detail: RunDetail, history: SignalHistory, console: Console) -> Table:
    table = Table("policy", "", box=box.SIMPLE_HEAD, title="what each policy rejects", title_justify="left")
    table.add_column("now", justify="right")
    table.add_column("largest", justify="right")
    table.add_column("course", no_wrap=True)
    active = "active, uncalibrated" if detail.policy.calibration in UNCALIBRATED else "active"
    for policy, name in detail.mask_rates.items():
        band = history.bands.get(name, NO_BAND)
        role = active if policy == detail.policy.name else "shadow"
        shares = (percent_text(_newest(band)), percent_text(max(_known(band.max), default=None)))
        row = (*shares, _course(band, console, n_bars=min(POINTS, console.width // 3)))
        table.add_row(Text(policy), role, *row)
    return table


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


def show(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Print a run: verdict, alerts, cause, evidence, remedy, signals and what policies reject."""
    with plain_errors(), service_of(url) as service:
        print_run(fetch_run_detail(service, RunKey.parse(run)), console(), now=time.time())


def report_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Write a run as one HTML file that needs no service: verdict, course, alerts, policies and notes."""
    with plain_errors(), service_of(url) as service:
        if output.exists() and not force:
            raise InvalidInput("--output", f"{output} exists; choose another file, or give --force")
        page = service.report(str(RunKey.parse(run)))
        output.write_bytes(page)
        typer.echo(f"{output}: {len(page) / 1000:.0f} kB")
