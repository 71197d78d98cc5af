"""`trmon diagnose`: print what is wrong with a run, of a service or in a log file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from trmon.cli.command import console, echo_json, plain_errors, unusable_input
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.logs import holds_log
from trmon.terminal import diagnosis_query
from trmon.terminal.diagnosis_text import print_diagnosis
from trmon.terminal.example_run import example_log
from trmon.terminal.run_report import failed, names_of, parse_failures, report_on_log
from trmon.terminal.run_report_text import print_report
from trmon.terminal.standard_input import STANDARD_INPUT, log_file
from trmon_client.api.answers import encode_answer

FAILED = 1
SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".log", ".txt")


def diagnose_command(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="PROJECT/RUN|FILE", help="A run of a running service, or the log of a whole run (- is stdin)."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(help="Diagnose the newest lines of a log: JSON, JSONL, CSV or console output of a trainer."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Report on a recorded run that comes with trmon.")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="FINDINGS", help="Exit with 1 if the log has one of these findings: any, or R,D,..."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="The GPUs of the run, for its cost in GPU-hours.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what is wrong with a run or a log, since when, what it cost and what to change.

    Exits with 2 if the input cannot be read or has no known metric.
    """
    with plain_errors(), unusable_input():
        _check_one_input(run, metrics, example=example)
        if example:
            with example_log() as file:
                _print_report(file, "example", fail_on=fail_on, gpus=gpus, as_json=as_json)
        elif run is not None and _is_log(run):
            with log_file(Path(run), standard_input=sys.stdin.buffer) as file:
                _print_report(file, run, fail_on=fail_on, gpus=gpus, as_json=as_json)
        else:
            _check_whole_log(fail_on=fail_on, gpus=gpus)
            if metrics is not None:
                with log_file(metrics, standard_input=sys.stdin.buffer) as file:
                    found = diagnosis_query.diagnose_metrics(file, name=str(metrics))
            else:
                with service_of(url) as service:
                    found = diagnosis_query.fetch_diagnosis(run or "", service=service)
            if as_json:
                echo_json(msgspec.json.format(encode_answer(found)))
            else:
                print_diagnosis(found, console())


def _print_report(file: Path, name: str, *, fail_on: str | None, gpus: int | None, as_json: bool) -> None:
    failures = parse_failures(fail_on) if fail_on else ()
    report = report_on_log(file, gpus=gpus, name=name)
    if as_json:
        echo_json(msgspec.json.format(encode_answer(report)))
    else:
        print_report(report, console())
    if held := failed(report, failures):
        typer.echo(f"trmon: found {names_of(held)}", err=True)
        raise typer.Exit(FAILED)


def _check_one_input(run: str | None, metrics: Path | None, *, example: bool) -> None:
    inputs = {"RUN": run is not None, "--metrics": metrics is not None, "--example": example}
    given = [name for name, is_given in inputs.items() if is_given]
    if len(given) > 1:
        raise InvalidInput(given[0], f"and {given[1]} were both given; give one of them")


def _check_whole_log(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"--{name.replace('_', '-')}", "needs the log of a whole run: trmon diagnose FILE")


def _is_log(given: str) -> bool:
    """Whether an argument is a log file, or written as one, and not PROJECT/RUN."""
    path = Path(given)
    is_log = holds_log(path)
    return is_log or given == STANDARD_INPUT or path.is_absolute() or given.startswith(".") or path.suffix in SUFFIXES
