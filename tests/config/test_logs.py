"""Log lines of a whole process: text of others in them is shown, and controls neither terminal nor log."""

from __future__ import annotations

import json

from tests.fixtures.command import run_python

SECRET = "redis://:horse@host password=horse"
HOSTILE = "/\x1b[2J\x9b2J\u202e"
PROGRAM = f"""
import logging
import structlog
from trmon.config.logs import configure_logging
from trmon.config.settings import Settings

configure_logging(Settings())
hostile = {HOSTILE!a}
structlog.get_logger("trmon").warning("refused", path=hostile, error={SECRET!r})
logging.getLogger("library").warning(hostile)
try:
    raise ValueError(hostile + {SECRET!r})
except ValueError:
    structlog.get_logger("trmon").exception("failed")
"""


def lines(**environment: str) -> str:
    """Return what a process logs. Args: environment: its settings."""
    done = run_python(PROGRAM, PYTHONIOENCODING="utf-8", **environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_line_holds_no_control_characters() -> None:
    written = lines()
    assert written.count(r"/\x1b[2J\x9b2J\u202e") == 3
    assert "Traceback" in written
    assert "horse" not in written
    assert all(character.isprintable() or character == "\n" for character in written)


def test_json_has_one_line_an_event() -> None:
    shown = "/\ufffd[2J\ufffd2J\u202e"
    events = [json.loads(line) for line in lines(TRMON_LOG_FORMAT="json").splitlines()]
    assert [event["event"] for event in events] == ["refused", shown, "failed"]
    assert (events[0]["path"], events[0]["error"]) == (shown, "redis://***@host password=***")
    assert "horse" not in str(events)
