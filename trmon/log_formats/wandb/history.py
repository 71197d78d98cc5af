"""The history in the records of wandb: what a run logged at each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.log_formats.json_document import flat_row, parse_json
from trmon.log_formats.log_format import LogItem
from trmon.log_formats.protobuf_schema import Fields, message_class

STEP = "_step"
MEDIA_KEY = "_type"
"""Among the keys of a histogram, an image or a table."""
_MESSAGES: Mapping[str, Fields] = {
    "Record": {"history": (2, "History")},
    "History": {"item": (1, "repeated Item"), "step": (2, "Step")},
    "Item": {"key": (1, "bytes"), "nested_key": (2, "repeated bytes"), "value_json": (16, "bytes")},
    "Step": {"num": (1, "int64")},
}
"""Source: wandb/proto/wandb_internal.proto."""


def history_rows(records: Iterable[bytes | LogDefect], *, writer: str) -> Iterator[LogItem]:
    """Yield a row for each step of a run's history; histograms, images and tables are left out.

    Args: writer: what wrote the records.
    """
    record_class = message_class(_MESSAGES, "Record")
    for number, record in enumerate(records, start=1):
        if isinstance(record, LogDefect):
            yield record
            continue
        try:
            found = record_class.FromString(record)
        except DecodeError:
            yield LogDefect(0, f"has a record, number {number}, that is not of wandb; left out")
            continue
        if found.HasField("history"):
            yield LogRow(_metrics(found.history), writer=writer)


def _metrics(history: Any) -> dict[str, Any]:
    """Return what was logged at a step by name; keys of nested objects are joined with a slash."""
    row: dict[str, Any] = {STEP: history.step.num} if history.HasField("step") else {}
    for item in history.item:
        keys = item.nested_key or [item.key]
        row |= flat_row({"/".join(key.decode(errors="replace") for key in keys): _value(item.value_json)})
    media = tuple(name.removesuffix(MEDIA_KEY) for name in row if name.endswith(f"/{MEDIA_KEY}"))
    return {name: value for name, value in row.items() if not name.startswith(media)}


def _value(text: bytes) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text.decode(errors="replace")
