"""Loads the golden vectors of tests/golden, which were computed one token at a time in float64 without trmon."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent.parent / "golden"
OTHER_FILES = {"exact", "bounds"}


def cases() -> list[str]:
    """Return the names of the column cases, such as `plain-op`."""
    return sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem not in OTHER_FILES)


def inputs(case: str) -> dict[str, Any]:
    """Return the given arguments of `statistics.columns`: float64 [B, T], advantages [B], mask bool [B, T]."""
    given = {name: rows for name, rows in load(case)["inputs"].items() if rows is not None}
    mask = given.pop("mask")
    arrays = {name: np.array(numbers(rows), np.float64) for name, rows in given.items()}
    return {**arrays, "mask": np.array(mask, bool)}


def columns(case: str) -> dict[str, Any]:
    """Return the expected columns, name to float64 [B]."""
    return {name: np.array(numbers(row), np.float64) for name, row in load(case)["columns"].items()}


def signals(case: str) -> dict[str, float]:
    """Return the expected signals, a subset of those trmon computes."""
    return {name: float(value) for name, value in load(case)["signals"].items()}


@cache
def load(stem: str) -> Any:
    """Return the parsed golden file; `bounds` is a list of cases."""
    return json.loads((GOLDEN / f"{stem}.json").read_text())


def numbers(value: Any) -> Any:
    """Return float64 for a JSON number, `inf`, `-inf` or `nan`, and an array for lists of them."""
    return np.array([numbers(item) for item in value]) if isinstance(value, list) else float(value)
