"""The report on a run that a log file holds: the judgement at its last step, and what the run cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Annotated

from trmon.api.diagnosis_answer import judgement_info
from trmon.domain.analysis.logged_run import LoggedRun, judged, not_judged, read_logged_run, run_cost
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import Catalogue, builtin_catalogue
from trmon.domain.findings.verdict import judge_run
from trmon.domain.severity import Severity
from trmon.logs import LogSource
from trmon.terminal.log_text import LogReadInfo, log_read_info
from trmon_client.api.answers import AnswerInfo, ApiNumber, says
from trmon_client.api.diagnosis import DiagnosisInfo, FindingInfo

ANY = "any"
AGREEMENT_SIGNALS = ("prob_diff_mean", "prob_diff_max", "abs_log_ratio_max")
"""What verl, TRL and others log of the engines' agreement and no finding reads."""
ENGINE_PAIRS = ("mismatch", "total")
NEWEST_STEPS = 5


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
    agreement_signals: Annotated[
        dict[str, ApiNumber],
        says("Signals of the engines' agreement that no finding reads: the median of the newest 5 steps."),
    ]
    nonfinite: Annotated[dict[str, int], says("Metrics with NaN or infinity, and the first step of each.")]
    sparse: Annotated[tuple[str, ...], says("Metrics whose NaN means that the step did not log them.")]
    not_judged: Annotated[tuple[str, ...], says("The findings for which the log has no data.")]
    cost: CostInfo
    diagnosis: Annotated[DiagnosisInfo, says("The diagnosis at the last step.")]


def report_on_log(
    file: Path,
    *,
    gpus: int | None = None,
    name: str | None = None,
    mapped: Mapping[str, str] | None = None,
    catalogue: Catalogue | None = None,
) -> RunReportInfo:
    """Return the report on the run in a log file.

    Args: name: what to call the file; mapped: signals by names that the user mapped; catalogue: the findings with the
    user's limits, by default those that trmon ships.
    Errors: InvalidInput if it cannot be read or has no known metric.
    """
    name, catalogue = name or str(file), catalogue or builtin_catalogue()
    source = LogSource.of(file, name=name, mapped=mapped)
    run = read_logged_run(source.items(), source.survey, source=name)
    state = judged(run.rows, catalogue)
    judgement = judge_run(state, catalogue)
    assert judgement is not None
    return RunReportInfo.from_fields(
        file=name,
        log=log_read_info(run.tally, format_name=source.format.name),
        agreement_signals=dict(_agreement_signals(run)),
        nonfinite=dict(run.nonfinite),
        sparse=run.sparse,
        not_judged=tuple(not_judged(state, catalogue)),
        cost=run_cost(run, since=judgement.since, gpus=gpus),
        diagnosis=judgement_info(judgement, framework=source.survey.framework, config={}, is_log=True),
    )


def _agreement_signals(run: LoggedRun) -> Iterator[tuple[str, float]]:
    for name in AGREEMENT_SIGNALS:
        for pair in ENGINE_PAIRS:
            known = [value for value in run.column(f"{pair}_{name}")[-NEWEST_STEPS:] if not math.isnan(value)]
            if known:
                yield name, median(known)
                break


def parse_failures(given: str) -> tuple[str, ...]:
    """Return the ids of --fail-on, separated by commas; of `any` those that warn or page. Errors: InvalidInput."""
    known = builtin_catalogue().by_id
    if given.strip().lower() == ANY:
        return (ANY,)
    ids = tuple(word.strip() for word in given.split(","))
    for word in ids:
        if word not in known:
            raise InvalidInput(
                "--fail-on", f"{word!r} must be {ANY} or findings separated by commas: {', '.join(known)}"
            )
    return ids


def failed(report: RunReportInfo, failures: Iterable[str]) -> list[FindingInfo]:
    """Return the findings of a run, standing or over, that are among those of --fail-on."""
    named = set(failures)
    found = (*report.diagnosis.findings, *report.diagnosis.over)
    return [
        finding
        for finding in found
        if finding.finding in named or (ANY in named and finding.severity != Severity.INFO.value)
    ]


def known(value: float | None) -> bool:
    """Whether a number of the report is known."""
    return value is not None and not math.isnan(value)
