"""Where the command gets a diagnosis from: a running service, or a log line in a file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trmon.api.diagnosis.schemas import DiagnosisOut, IgnoredOut
from trmon.domain.diagnosis import History, diagnose, translate
from trmon.domain.model.errors import InvalidInput
from trmon.terminal.api_client import ApiClient, parse_run_name


def fetch_diagnosis(name: str, *, asked: ApiClient) -> DiagnosisOut:
    """Return the diagnosis of PROJECT/RUN that a service gives. Errors: InvalidInput, NotReady."""
    key = parse_run_name(name, otherwise="; or give --metrics FILE")
    return asked.read(DiagnosisOut, f"/api/v1/runs/{key}/diagnosis")


def diagnose_metrics(file: Path) -> DiagnosisOut:
    """Return the diagnosis of a log line: a JSON object of signals under our, verl's or TRL's names.

    Errors: InvalidInput where the file cannot be read as one.
    """
    try:
        line = translate(msgspec.json.decode(file.read_bytes(), type=dict[str, object]))
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput("--metrics", f"{file} must be a JSON object of numbers by name: {error}") from error
    found = diagnose(History.of_signals(line.signals, step=line.step))
    return DiagnosisOut.of(found, ignored=[IgnoredOut(name=item.name, why=item.why) for item in line.ignored])
