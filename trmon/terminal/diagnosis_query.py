"""The diagnosis that the command prints: of a run of a service, or of the newest steps of a log."""

from __future__ import annotations

from pathlib import Path

from trmon.terminal.run_argument import parse_run_name
from trmon.terminal.run_report import report_on_log
from trmon_client.api import DiagnosisInfo, Service


def fetch_diagnosis(name: str, *, service: Service) -> DiagnosisInfo:
    """Return a service's diagnosis of PROJECT/RUN. Errors: InvalidInput, ServiceError."""
    return service.diagnosis(str(parse_run_name(name, otherwise="; or give a log file")))


def diagnose_metrics(file: Path, *, name: str | None = None) -> DiagnosisInfo:
    """Return the diagnosis of the newest lines of a log; `name` is for errors. Errors: InvalidInput."""
    return report_on_log(file, name=name).diagnosis
