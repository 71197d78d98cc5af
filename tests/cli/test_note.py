"""Notes as a table: what was written, by whom, and when in the reader's zone."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from trmon.cli.runs import note_table
from trmon_client.api import NoteInfo


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_a_time_names_its_zone() -> None:
    written = NoteInfo(id=1, step=62, text="lr halved", author="ada", at=1_760_000_000.0)
    text = io.StringIO()
    Console(file=text, width=100).print(note_table([written]))
    [line] = [line for line in text.getvalue().splitlines() if "ada" in line]
    assert line.split() == ["2025-10-09", "17:53:20", "JST", "ada", "62", "lr", "halved"]
