"""The diagnosis that the command prints: of a run of a service, or of the newest steps of a log."""

from __future__ import annotations

from pathlib import Path

from trmon.api.diagnosis.schemas import DiagnosisOut
from trmon.terminal.api_client import ApiClient, parse_run_name
from trmon.terminal.run_report import report_on_log


def fetch_diagnosis(name: str, *, client: ApiClient) -> DiagnosisOut:
    """Return a service's diagnosis of PROJECT/RUN. Errors: InvalidInput, NotReady."""
    key = parse_run_name(name, otherwise="; or give a log file")
    return client.read(DiagnosisOut, f"/api/v1/runs/{key}/diagnosis")


def diagnose_metrics(file: Path, *, name: str | None = None) -> DiagnosisOut:
    """Return the diagnosis of the newest lines of a log; `name` is for errors. Errors: InvalidInput."""
    return report_on_log(file, name=name).diagnosis
