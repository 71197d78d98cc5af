"""Print a diagnosis as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon.api.diagnosis.schemas import DiagnosisOut, EvidenceOut, FindingOut
from trmon.domain.diagnosis import Finding
from trmon.domain.rules.condition import ThresholdSide


def print_diagnosis(found: DiagnosisOut, console: Console) -> None:
    """Print a diagnosis: alerts on the run's state, the cause, its evidence and fix, and what was not measured."""
    for fires in found.circumstances:
        console.print(f"[bold]{escape(fires.summary)}[/bold]", highlight=False, soft_wrap=True)
        console.print(escape(f"do: {fires.fix}"), highlight=False, soft_wrap=True)
    console.print(f"[bold]{_headline(found)}[/bold]", highlight=False, soft_wrap=True)
    for observation in found.observed:
        console.print(_evidence(observation))
    for line in _lines(found):
        console.print(escape(line), highlight=False, soft_wrap=True)


def _headline(found: DiagnosisOut) -> str:
    where = f"step {found.step}, {found.steps} steps read"
    if found.primary is Finding.UNKNOWN:
        return f"unknown: nothing was found, but not everything is known ({where})"
    if found.primary is Finding.HEALTHY:
        return f"healthy ({where})"
    return f"{found.primary.value}: {found.title} since step {found.observed[0].since_step} ({where})"


def _evidence(observation: FindingOut) -> Table:
    title = f"{observation.finding.value} {observation.title}"
    table = Table("signal", "value", "limit", "since step", title=escape(title), title_justify="left")
    for item in observation.evidence:
        table.add_row(item.signal, f"{item.value:.4g}", _limit(item), str(item.since_step))
    return table


def _limit(item: EvidenceOut) -> str:
    if item.away_from is not None:
        return f"{item.away_from:g} ± {item.threshold:g}"
    return f"{'>' if item.bound is ThresholdSide.ABOVE else '<'} {item.threshold:g}"


def _lines(found: DiagnosisOut) -> Iterator[str]:
    for item in found.shortfall:
        yield f"not healthy: {item.signal} is {item.value:.4g} ({_limit(item)})"
    if found.remedy:
        yield f"do: {found.remedy.fix}"
        yield from _options("verl", found.remedy.verl)
        yield from _options("TRL", found.remedy.trl)
        yield f"if it persists: {found.remedy.persists}"
    yield f"correction: {found.quadrant.advice} ({found.quadrant.quadrant.value})"
    yield f"stage: {found.escalation.advice}"
    for lost in found.unknown:
        yield f"not known: {lost.finding.value} {lost.title}"
        yield from (f"    {gap.signal}: {gap.provide}" for gap in lost.missing)
    yield from (f"ignored: {item.name} ({item.why})" for item in found.ignored)


def _options(framework: str, options: Mapping[str, str]) -> Iterator[str]:
    yield from (f"    {framework}  {option}={value}" for option, value in options.items())
