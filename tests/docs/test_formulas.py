"""The table of formulas: complete, and every row leads to a function with a source and to a test."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trmon_client.core.bounds.surrogate_error import ErrorBounds
from trmon_client.core.columns.schema import COLUMNS, DIVERGENCE_STEMS, PAIR_STEMS, PAIRS, TURN_STEMS
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS
from trmon_client.core.policies.turn_criterion import TURN_STATISTICS
from trmon_client.core.signals.catalogue import SIGNALS

ROOT = Path(__file__).parents[2]


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "reference" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()
FORMULAS: Any = GENERATOR.FORMULAS


def names(section: int) -> set[str]:
    return {row.name for row in FORMULAS if row.section.startswith(f"{section}.")}


@pytest.mark.parametrize("function", sorted({row.function for row in FORMULAS}))
def test_every_function_says_its_source(function: str) -> None:
    assert GENERATOR.source_of(function)


@pytest.mark.parametrize("test", sorted({row.test for row in FORMULAS}))
def test_every_test_is_there(test: str) -> None:
    path, name = test.split("::")
    tree = ast.parse((ROOT / "tests" / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_column_has_its_row() -> None:
    of_pairs = {f"{pair}_{stem}" for pair in PAIRS for stem in PAIR_STEMS}
    assert {*(COLUMNS.keys() - of_pairs - {*DIVERGENCE_STEMS}), *PAIR_STEMS} <= names(3)
    assert {f"{stem} of a turn" for stem in ("n_tokens", *TURN_STEMS)} <= names(3)
    assert {*DIVERGENCE_STEMS} <= names(4)


def test_every_signal_has_its_row() -> None:
    assert {spec.stem for spec in SIGNALS.values()} <= names(5)


def test_every_statistic_and_every_preset_has_its_row() -> None:
    assert {f"statistic {name}" for name in STATISTICS} <= names(6)
    assert {f"statistic {name}" for name in TURN_STATISTICS} <= names(6)
    assert {*PRESETS, *TOKEN_POLICIES} <= names(6)


def test_every_bound_has_its_row() -> None:
    assert {field.name for field in dataclasses.fields(ErrorBounds)} <= names(7)


def test_no_formula_has_two_rows() -> None:
    rows = [(row.section, row.name) for row in FORMULAS]
    assert len(rows) == len(set(rows))


def test_every_function_with_a_source_in_these_modules_has_its_row() -> None:
    """A formula cannot be added to a module of the table without a row, and so without a test."""
    resolved = [pkgutil.resolve_name(f"trmon_client.core.{row.function}") for row in FORMULAS if _is_of_core(row)]
    # A row may also name a property.
    named = [function for function in resolved if inspect.isfunction(function) or inspect.ismethod(function)]
    modules = {function.__module__ for function in named}
    assert "trmon_client.core.statistics" in modules
    sourced = {
        f"{module}.{node.name}"
        for module in modules
        for node in ast.parse(Path(str(importlib.import_module(module).__file__)).read_text()).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and "Source:" in (ast.get_docstring(node) or "")
    }
    assert sourced <= {f"{function.__module__}.{function.__qualname__}" for function in named}


def _is_of_core(row: Any) -> bool:
    return not row.function.startswith("trmon.")
