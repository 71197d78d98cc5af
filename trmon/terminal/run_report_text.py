"""Print the report on a run in a log file as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon.terminal.diagnosis_text import assurance_phrase, evidence_table, remedy_lines
from trmon.terminal.run_report import RunReportInfo, SpanInfo, known

LIMITS_OF_VERL = " (verl: below 0.005 is normal, above 0.01 a precision fault)"
MAX_SPANS = 12
MAX_MISSING = 6


def print_report(report: RunReportInfo, console: Console) -> None:
    """Print what was read, the verdict, the findings over the course, the cause with its remedy, the cost."""
    console.print(escape(_source(report)), highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(_headline(report))}[/bold]", highlight=False, soft_wrap=True)
    if report.spans:
        console.print(_span_table(report))
    for observation in report.diagnosis.observed:
        console.print(evidence_table(observation))
    for line in _lines(report):
        console.print(escape(line), highlight=False, soft_wrap=True)


def _source(report: RunReportInfo) -> str:
    names = f"{report.framework}'s names" if report.framework else "trmon's names"
    steps = "steps" if report.names_steps else "lines (no line names its step)"
    return f"{report.file}: {report.format}, {names}, {steps} {report.first_step} to {report.last_step}"


def _headline(report: RunReportInfo) -> str:
    primary = report.diagnosis.primary
    if report.broke_at is not None:
        after = "from its first step" if report.last_good_step is None else f"last good step {report.last_good_step}"
        return f"{primary}: {report.diagnosis.title}; the run broke at step {report.broke_at} ({after})"
    if report.spans:
        return f"the last step shows no finding; {len(report.spans)} before it, the last until {_last(report.spans)}"
    return assurance_phrase(report.diagnosis)


def _last(spans: Sequence[SpanInfo]) -> str:
    newest = max(spans, key=lambda span: span.last_step)
    return f"step {newest.last_step} ({newest.finding.value} {newest.title})"


def _span_table(report: RunReportInfo) -> Table:
    table = Table("finding", "from step", "to step", title="over the course of the run", title_justify="left")
    for span in report.spans[:MAX_SPANS]:
        end = f"{span.last_step}, the end" if span.stands else str(span.last_step)
        table.add_row(escape(f"{span.finding.value} {span.title}"), str(span.first_step), end)
    if len(report.spans) > MAX_SPANS:
        table.add_row(f"... {len(report.spans) - MAX_SPANS} more", "", "")
    return table


def _lines(report: RunReportInfo) -> Iterator[str]:
    if report.nonfinite:
        names = ", ".join(f"{name} (step {step})" for name, step in list(report.nonfinite.items())[:MAX_MISSING])
        yield f"NaN or infinity in {names}"
    yield from remedy_lines(report.diagnosis, framework=report.framework)
    yield from _agreement(report)
    yield from _cost(report)
    yield _unknown(report)


def _agreement(report: RunReportInfo) -> Iterator[str]:
    """Yield what the log has of the engines' agreement beside the findings, with the limits of verl's FAQ."""
    shown = [
        f"{name} {value:.3g}{LIMITS_OF_VERL if name == 'prob_diff_mean' else ''}"
        for name, value in report.agreement_signals.items()
    ]
    if shown:
        yield f"agreement of the engines: {', '.join(shown)}"


def _cost(report: RunReportInfo) -> Iterator[str]:
    cost = report.cost
    if known(cost.wasted_rollouts):
        hours = f": {cost.wasted_gpu_hours:,.3g} GPU-hours" if known(cost.wasted_gpu_hours) else ""
        yield f"{cost.wasted_rollouts:.0%} of the rollouts taught nothing (all rewards of a group equal){hours}"
    if known(cost.ill_gpu_hours):
        yield f"{cost.ill_gpu_hours:,.3g} of {cost.gpu_hours:,.3g} GPU-hours were spent after the run broke"


def _unknown(report: RunReportInfo) -> str:
    lost = [f"{item.finding} {item.title}" for item in report.diagnosis.unknown]
    if not known(report.cost.gpu_hours):
        lost.append("GPU-hours (--gpus N)" if report.cost.timed_steps else "GPU-hours (no step times in the log)")
    if not lost:
        return "everything that a diagnosis reads was in the log"
    option = (
        f"; {report.framework} logs the agreement of its engines with {report.agreement}" if report.agreement else ""
    )
    return f"not known: {', '.join(lost)}{option}"
