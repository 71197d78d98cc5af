"""The page of the client names every argument, attribute and call that there is, and no other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import trmon_client
from trmon_client import BatchDecision, Monitor

PAGE = (Path(__file__).parents[2] / "docs/reference/client.md").read_text()
INTERNAL = {
    "spec",
    "error_guard",
    "counted_tokens",
    "is_enforced",
    "columns",
    "verdict",
    "tokens",
    "neutral",
    "settings",
    "advice_cache",
}
"""What the client's own modules read of a decision or a monitor."""


def named(section: str) -> set[str]:
    """Return the names in the first column of a section's first table."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = next(block for block in text.strip().split("\n\n") if block.startswith("| "))
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)[^`]*`", cell)}


@pytest.mark.parametrize(("section", "function"), [("`init`", trmon_client.init), ("`log_batch`", Monitor.log_batch)])
def test_every_argument_is_named(section: str, function: object) -> None:
    assert callable(function)
    assert {*inspect.signature(function).parameters} - {"self"} == named(section)


def test_every_attribute_of_a_decision_is_named() -> None:
    assert {name for name in dir(BatchDecision) if not name.startswith("_")} | {"advice"} == named("The decision") | (
        INTERNAL & {*dir(BatchDecision)}
    )


def test_every_other_call_is_named() -> None:
    calls = {name for name in vars(Monitor) if not name.startswith("_")} - {"log_batch"} - INTERNAL
    assert calls == named("Between and after")
