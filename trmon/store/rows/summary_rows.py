"""Summaries of runs as rows; a document is msgpack, since its numbers may be NaN or infinite."""

from __future__ import annotations

from typing import Any

import msgspec

from trmon.domain.collapse_risk.risk_reading import RiskReading
from trmon.domain.diagnosis.conditions import Evidence, Observation
from trmon.domain.diagnosis.diagnosis import Diagnosis, Escalation, Measurement, Quadrant, TemperatureRatio
from trmon.domain.diagnosis.remedies import remedy_of
from trmon.domain.health.run_summary import RunSummary, Sparkline, SummaryBasis
from trmon.domain.model.finding import Finding, FindingForm

SUMMARY_VERSION = 3
"""To be raised when a document has other fields, or when the same rows get another diagnosis: rows of any other version
are ignored and made anew."""


class _SummaryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A summary without its basis; its remedy follows from its finding."""

    step: int
    steps: int
    primary: Finding
    form: FindingForm | None
    observed: tuple[Observation, ...]
    unknown: tuple[Observation, ...]
    shortfall: tuple[Evidence, ...]
    quadrant: Quadrant
    escalation: Escalation
    temperatures: TemperatureRatio | None
    agreement: tuple[Measurement, ...]
    training: tuple[Measurement, ...]
    collapse_risk: RiskReading | None
    reward: Sparkline
    kl: Sparkline
    mask_rate: float
    expected_step_seconds: float | None


_DOCUMENT = msgspec.msgpack.Decoder(_SummaryDocument)
_OF_SUMMARY = ("reward", "kl", "mask_rate", "expected_step_seconds")
_OF_DIAGNOSIS = tuple(name for name in _SummaryDocument.__struct_fields__ if name not in _OF_SUMMARY)


def summary_to_row(summary: RunSummary) -> dict[str, Any]:
    """Return the row of a summary."""
    fields = {name: getattr(summary.diagnosis, name) for name in _OF_DIAGNOSIS}
    fields |= {name: getattr(summary, name) for name in _OF_SUMMARY}
    return {
        "run_id": summary.run_id,
        **basis_columns(summary.basis),
        "version": SUMMARY_VERSION,
        "made_at": summary.made_at,
        "document": msgspec.msgpack.encode(_SummaryDocument(**fields)),
    }


def summary_from_row(row: Any) -> RunSummary | None:
    """Return the summary of a row of this version; None if its document is damaged."""
    try:
        document = _DOCUMENT.decode(row.document)
    except msgspec.MsgspecError:
        return None
    fields = {name: getattr(document, name) for name in _OF_DIAGNOSIS}
    return RunSummary(
        run_id=row.run_id,
        basis=basis_from_row(row),
        made_at=row.made_at,
        diagnosis=Diagnosis(**fields, remedy=remedy_of(document.primary, document.form)),
        **{name: getattr(document, name) for name in _OF_SUMMARY},
    )


def basis_from_row(row: Any) -> SummaryBasis:
    """Return the basis in a row."""
    return SummaryBasis(attempt_id=row.attempt_id, step=row.step, report_id=row.report_id, notice_id=row.notice_id)


def basis_columns(basis: SummaryBasis) -> dict[str, int]:
    """Return the columns of a basis."""
    return {
        "attempt_id": basis.attempt_id,
        "step": basis.step,
        "report_id": basis.report_id,
        "notice_id": basis.notice_id,
    }
