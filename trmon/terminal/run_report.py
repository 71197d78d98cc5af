"""The report on a run that a log file holds: its findings over its course, where it broke, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from trmon.api.diagnosis_answer import diagnosis_info
from trmon.domain.analysis.logged_run import (
    course_of,
    read_logged_run,
    run_cost,
)
from trmon.domain.diagnosis.criteria import Thresholds
from trmon.domain.diagnosis.framework_options import with_sent_options
from trmon.domain.diagnosis.history import ENGINE_PAIRS, History
from trmon.domain.errors import InvalidInput
from trmon.domain.finding import Finding
from trmon.logs import LogSource
from trmon.terminal.log_text import LogReadInfo, log_read_info
from trmon_client.api.answers import AnswerInfo, ApiNumber, says
from trmon_client.api.diagnosis import DiagnosisInfo

ANY = "any"
AGREEMENT_SIGNALS = ("prob_diff_mean", "abs_log_ratio_mean", "abs_log_ratio_max")
"""What verl, TRL and others log of the engines' agreement and no finding reads."""
NEWEST_STEPS = 5
NOT_FAILURES = (Finding.HEALTHY, Finding.UNKNOWN)


class SpanInfo(AnswerInfo, frozen=True, kw_only=True):
    """A finding and the steps in which it held."""

    finding: Finding
    title: str
    first_step: int
    last_step: int
    stands: Annotated[bool, says("Whether it still held at the last step.")]


class CostInfo(AnswerInfo, frozen=True, kw_only=True):
    """The cost of the run, null where unknown; hours are GPU-hours."""

    wasted_rollouts: ApiNumber
    timed_steps: ApiNumber
    gpu_hours: ApiNumber
    wasted_gpu_hours: ApiNumber
    ill_gpu_hours: ApiNumber


class RunReportInfo(AnswerInfo, frozen=True, kw_only=True):
    """The report on a run in a log file."""

    file: str
    log: LogReadInfo
    agreement: Annotated[str, says("The option that makes the framework log how far its engines agree, if needed.")]
    agreement_signals: Annotated[
        dict[str, ApiNumber],
        says("Signals of the engines' agreement that no finding reads: the median of the newest 5 steps."),
    ]
    broke_at: Annotated[int | None, says("Where the chain of findings began that stands at the end.")]
    last_good_step: int | None
    spans: Annotated[tuple[SpanInfo, ...], says("All findings over the course of the run, oldest first.")]
    nonfinite: Annotated[dict[str, int], says("Metrics with NaN or infinity, and the first step of each.")]
    cost: CostInfo
    diagnosis: Annotated[DiagnosisInfo, says("The diagnosis at the last step.")]


def report_on_log(
    file: Path, *, gpus: int | None = None, name: str | None = None, mapped: Mapping[str, str] | None = None
) -> RunReportInfo:
    """Return the report on the run in a log file.

    Args: name: what to call the file; mapped: signals by names that the user mapped.
    Errors: InvalidInput if it cannot be read or has no known metric.
    """
    name = name or str(file)
    source = LogSource.of(file, name=name, mapped=mapped)
    run = read_logged_run(source.items(), source.survey, source=name)
    framework, table = source.survey.framework, source.survey.table
    # A log of one step cannot show a second one with NaN.
    limits = Thresholds(nonfinite_steps=0.0) if len(run.history) == 1 else Thresholds()
    course = course_of(run.history, limits=limits)
    return RunReportInfo.from_fields(
        file=name,
        log=log_read_info(run.tally, format_name=source.format.name),
        agreement="" if table is None or run.compares_engines else table.agreement,
        agreement_signals=_agreement_signals(run.history),
        broke_at=course.broke_at,
        last_good_step=course.last_good_step,
        spans=[SpanInfo.from_fields(span, title=span.finding.title) for span in course.spans],
        nonfinite=dict(run.nonfinite),
        cost=run_cost(run, broke_at=course.broke_at, gpus=gpus),
        diagnosis=diagnosis_info(
            course.diagnosis,
            framework=framework,
            config=with_sent_options({}, run.history),
            last_good_step=course.last_good_step,
        ),
    )


def _agreement_signals(history: History) -> dict[str, float]:
    found = {name: history.find(name, pairs=ENGINE_PAIRS)[1][-NEWEST_STEPS:] for name in AGREEMENT_SIGNALS}
    return {name: float(np.nanmedian(values)) for name, values in found.items() if not np.isnan(values).all()}


def parse_failures(given: str) -> tuple[Finding, ...]:
    """Return the findings of --fail-on: letters or titles, separated by commas, or `any`. Errors: InvalidInput."""
    if given.strip().lower() == ANY:
        return tuple(finding for finding in Finding if finding not in NOT_FAILURES)
    return tuple(_finding(word.strip()) for word in given.split(","))


def failed(report: RunReportInfo, failures: Iterable[Finding]) -> list[Finding]:
    """Return those of the findings that held at some step of the run."""
    held = {span.finding for span in report.spans}
    return [finding for finding in failures if finding in held]


def _finding(word: str) -> Finding:
    known = [finding for finding in Finding if finding not in NOT_FAILURES]
    for finding in known:
        if word.lower() in (finding.value.lower(), finding.title.lower(), finding.name.lower()):
            return finding
    names = ", ".join(f"{finding.value} ({finding.title})" for finding in known)
    raise InvalidInput("--fail-on", f"{word!r} must be {ANY} or findings separated by commas: {names}")


def known(value: float | None) -> bool:
    """Whether a number of the report is known."""
    return value is not None and not math.isnan(value)


def names_of(findings: Sequence[Finding]) -> str:
    """Return the findings as text."""
    return ", ".join(f"{finding.value} ({finding.title})" for finding in findings)
