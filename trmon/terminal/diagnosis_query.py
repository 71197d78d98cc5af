"""The diagnosis that the command prints: of a run of a service, or of a log line in a file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trmon.api.diagnosis.schemas import DiagnosisOut, IgnoredOut
from trmon.domain.diagnosis import History, diagnose, translate
from trmon.domain.model.errors import InvalidInput
from trmon.terminal.api_client import ApiClient, parse_run_name


def fetch_diagnosis(name: str, *, client: ApiClient) -> DiagnosisOut:
    """Return a service's diagnosis of PROJECT/RUN. Errors: InvalidInput, NotReady."""
    key = parse_run_name(name, otherwise="; or give --metrics FILE")
    return client.read(DiagnosisOut, f"/api/v1/runs/{key}/diagnosis")


def diagnose_metrics(file: Path) -> DiagnosisOut:
    """Return the diagnosis of a log line: a JSON object of signals under trmon's, verl's or TRL's names.

    Errors: InvalidInput if the file is not such an object.
    """
    try:
        line = translate(msgspec.json.decode(file.read_bytes(), type=dict[str, object]))
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput("--metrics", f"{file} must be a JSON object of numbers by name: {error}") from error
    found = diagnose(History.of_signals(line.signals, step=line.step))
    return DiagnosisOut.of(found, ignored=[IgnoredOut(name=item.name, why=item.why) for item in line.ignored])
