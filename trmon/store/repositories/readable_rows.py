"""Check that archived rows can be read as the service reads them once they are in its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trmon.domain.model.errors import InvalidInput
from trmon.domain.runs.run import checked_author, checked_note_text
from trmon.store.repositories.adaptations import setting_from_document
from trmon.store.repositories.policies import policy_version_from_row
from trmon.store.rows.alert_rows import alert_from_row, event_from_row
from trmon.store.rows.run_rows import attempt_from_row, run_from_row


def _check_note(row: Mapping[str, Any]) -> None:
    try:
        checked_author(row["author"])
        checked_note_text(row["text"])
    except InvalidInput as error:
        raise ValueError(f"a note: {error}") from error


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "runs": lambda row: run_from_row({**row, "last_report_at": None}, tags=()),
    "attempts": attempt_from_row,
    "policies": policy_version_from_row,
    "adaptations": lambda row: setting_from_document(row["setting"]),
    "alerts": alert_from_row,
    "alert_events": event_from_row,
    "notes": _check_note,
}


def check_readable(table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Decode the rows of an archived table. Errors: those of the decoders."""
    if decode := _DECODERS.get(table):
        for row in rows:
            decode({**row, "run_id": 0})
