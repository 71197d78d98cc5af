"""`trmon diagnose` and `trmon runbook`: what is wrong with a run or a log, and what to do about it."""

from __future__ import annotations

import lzma
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from trmon.cli.command import AllNames, NameMapping, console, echo_json, given_mapping, plain_errors, unusable_input
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.logs import STANDARD_INPUT, holds_log, log_file
from trmon.logs.source import is_url
from trmon.terminal.diagnosis_text import (
    answers_lines,
    diagnosis_lines,
    print_diagnosis,
    unmeasured_lines,
    verdict_text,
)
from trmon.terminal.log_text import log_lines
from trmon.terminal.run_report import RunReportInfo, failed, known, parse_failures, report_on_log
from trmon.terminal.text import print_lines
from trmon_client.api.answers import encode_answer
from trmon_client.api.diagnosis import RunbookStageInfo

if TYPE_CHECKING:
    from trmon.domain.findings.catalogue import Catalogue

EXAMPLE_FILE = Path(__file__).with_name("example_run.jsonl.xz")
LIMITS_OF_VERL = " (verl: below 0.005 is normal, above 0.01 a precision fault)"
MAX_NONFINITE = 6


def print_report(report: RunReportInfo, console: Console, *, is_verbose: bool = False) -> None:
    """Print the verdict, the findings with their evidence and the remedy, the cost, and what was read of the log."""
    first, *others = log_lines(report.log, is_verbose=is_verbose)
    print_lines(console, [f"{report.file}: {first}"])
    console.print(f"[bold]{escape(verdict_text(report.diagnosis))}[/bold]", highlight=False, soft_wrap=True)
    print_lines(console, (*diagnosis_lines(report.diagnosis), *_lines(report, is_verbose=is_verbose), *others))


def _lines(report: RunReportInfo, *, is_verbose: bool) -> Iterator[str]:
    if report.nonfinite:
        names = ", ".join(f"{name} (step {step})" for name, step in list(report.nonfinite.items())[:MAX_NONFINITE])
        yield f"NaN or infinity in {names}"
    if report.sparse:
        yield f"NaN where it was not logged: {', '.join(report.sparse[:MAX_NONFINITE])}"
    yield from _agreement(report)
    yield from _cost(report)
    yield from unmeasured_lines(report.diagnosis.unmeasured, *_not_known(report, is_verbose=is_verbose))


def _not_known(report: RunReportInfo, *, is_verbose: bool) -> Iterator[str]:
    if not known(report.cost.gpu_hours):
        yield "GPU-hours (--gpus N)" if report.cost.timed_steps else "GPU-hours (no step times in the log)"
    if report.not_judged:
        ids = ", ".join(report.not_judged) if is_verbose else "--verbose"
        yield f"{len(report.not_judged)} findings without data ({ids})"


def _agreement(report: RunReportInfo) -> Iterator[str]:
    """Yield what the log has of the engines' agreement besides the findings, with the limits of verl's FAQ."""
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


FAILED = 1
SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".log", ".txt")


def diagnose_command(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="PROJECT/RUN|FILE",
            help="A run of a running service, or a log: a file, a folder, a run's URL in MLflow, or - (stdin).",
        ),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Report on a recorded run that comes with trmon.")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="FINDINGS",
            help="Exit with 1 if the log has one of these findings: any, or reward_collapse,...",
        ),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="The GPUs of the run, for its cost in GPU-hours.")] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A rules file whose limits of findings count for the log.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    mapping: NameMapping = None,
    verbose: AllNames = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what is wrong with a run or a log, since when, what it cost and what to change.

    Exits with 2 if the input cannot be read or has no known metric.
    """
    with plain_errors(), unusable_input():
        failures = parse_failures(fail_on) if fail_on else ()
        show = partial(_print_report, failures=failures, is_verbose=verbose, as_json=as_json)
        if example:
            if run is not None:
                raise InvalidInput("--example", f"and {run} were both given; give one of them")
            with lzma.open(EXAMPLE_FILE) as packed, log_file(STANDARD_INPUT, standard_input=packed) as file:
                show(report_on_log(file, gpus=gpus, name="example", catalogue=_catalogue(rules)))
        elif run is not None and _is_log(run):
            mapped, catalogue = given_mapping(mapping), _catalogue(rules)
            with log_file(run, standard_input=sys.stdin.buffer) as file:
                show(report_on_log(file, gpus=gpus, name=run, mapped=mapped, catalogue=catalogue))
        else:
            _check_log_options(fail_on=fail_on, gpus=gpus, rules=rules, map=mapping)
            with service_of(url) as service:
                found = service.diagnosis(str(RunKey.parse(run or "", otherwise="; or give a log file")))
            if as_json:
                echo_json(msgspec.json.format(encode_answer(found)))
            else:
                print_diagnosis(found, console())


def _catalogue(rules: Path | None) -> Catalogue | None:
    """Return the findings with the limits of a rules file; None without one."""
    if rules is None:
        return None
    from trmon.config.rules import read_rules_file

    return read_rules_file(rules).catalogue


def _print_report(report: RunReportInfo, *, failures: Sequence[str], is_verbose: bool, as_json: bool) -> None:
    if as_json:
        echo_json(msgspec.json.format(encode_answer(report)))
    else:
        print_report(report, console(), is_verbose=is_verbose)
    if held := failed(report, failures):
        words = dict.fromkeys(f"{found.finding} ({found.title})" for found in held)
        typer.echo(f"trmon: found {', '.join(words)}", err=True)
        raise typer.Exit(FAILED)


def _check_log_options(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"--{name.replace('_', '-')}", "needs a log: trmon diagnose FILE")


def _is_log(given: str) -> bool:
    """Whether an argument is a log file, or written as one, and not PROJECT/RUN."""
    path = Path(given)
    is_log = is_url(given) or given == STANDARD_INPUT or holds_log(path)
    return is_log or path.is_absolute() or given.startswith(".") or path.suffix in SUFFIXES


def stage_lines(stages: Iterable[RunbookStageInfo]) -> Iterator[str]:
    """Yield the stages: each with its sentences, the options to set, and the commands to paste, indented."""
    for stage in stages:
        yield f"[bold]{stage.stage.capitalize()}[/bold]"
        yield from map(escape, stage.lines)
        yield from (escape(f"    {line}") for line in (*stage.options, *stage.commands))


def runbook_command(
    name: Annotated[str, typer.Argument(metavar="PROJECT/RUN|NAME", help="A run, or the name of a finding or rule.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what to do about a run's problem: confirm, rule out, mitigate, verify, with its values and commands.

    Of a finding or rule by its name, the same without a run's values.
    """
    with plain_errors(), service_of(url) as service:
        if "/" in name:
            found = service.runbook(str(RunKey.parse(name)))
            told = (f"[bold]{escape(found.headline)}[/bold]", *stage_lines(found.stages))
            lines, answer = (*told, *map(escape, answers_lines(found.answers))), encode_answer(found)
        else:
            rule = next((one for one in service.rules() if one.name == name), None)
            if rule is None:
                raise InvalidInput("NAME", f"is no run, finding or rule: {name}")
            told = (f"[bold]{escape(rule.title.capitalize())}[/bold]", escape(rule.meaning))
            lines, answer = (*told, *stage_lines(rule.stages)), encode_answer(rule)
        if as_json:
            echo_json(msgspec.json.format(answer))
        else:
            for line in lines:
                console().print(line, highlight=False, soft_wrap=True)
