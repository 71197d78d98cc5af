"""Warnings on stderr: what a service answers cannot control the terminal."""

from __future__ import annotations

import pytest

from trmon_client.error_guard import WarnOnce


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    WarnOnce().warn("key", "HTTP 403: no\x1b[2J\x07\r\x9b access\u202e, für λ")
    assert capsys.readouterr().err == "trmon: HTTP 403: no\\x1b[2J\\x07\\r\\x9b access\\u202e, für λ\n"


def test_a_warning_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    warnings = WarnOnce()
    for key in ("a", "b", "a"):
        warnings.warn(key, f"line {key}")
    assert capsys.readouterr().err == "trmon: line a\ntrmon: line b\n"
