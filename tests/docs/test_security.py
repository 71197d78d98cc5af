"""The page on threats: each defence names its tests, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in (ROOT / "docs" / "security.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| threat |", "| --- |"))
]


@cache
def functions_in(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_every_threat_has_a_defence_and_tests_that_exist(row: list[str]) -> None:
    threat, defence, tests = row
    assert threat
    assert defence
    named = re.findall(r"`([^`]+)`", tests)
    assert named, "no test is named"
    missing = [name for name in named if name.partition("::")[2] not in functions_in(name.partition("::")[0])]
    assert not missing
