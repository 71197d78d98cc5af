"""The table of formulas: complete, and every row leads to a function with a source and to a test."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from docs.reference import generate
from trmon_client.core.bounds import ErrorBounds
from trmon_client.core.column_schema import COLUMNS, DIVERGENCE_STEMS, PAIR_STEMS, PAIRS, TURN_STEMS
from trmon_client.core.policies.criteria import TURN_STATISTICS
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS
from trmon_client.core.signals.catalogue import SIGNALS

ROOT = Path(__file__).parents[2]


FORMULAS: Any = generate.FORMULAS
CODE = ("client/trmon_client", "trmon")
CITATION = re.compile(r"formulas,\s+sections?\s+(\d+(?:(?:,|\s+and|\s+to)\s+\d+)*)")
KEY = re.compile(r"\[([A-Z][A-Z0-9]*|3P)\]")


def sections_in(text: str) -> set[int]:
    """Return the sections of the page that a text cites: 1, 2 and 3 for "formulas, sections 1 to 3"."""
    found: set[int] = set()
    for cited in CITATION.findall(text):
        first, *others = map(int, re.findall(r"\d+", cited))
        found |= set(range(first, others[-1] + 1)) if "to" in cited else {first, *others}
    return found


def names(section: int) -> set[str]:
    return {row.name for row in FORMULAS if row.section.startswith(f"{section}.")}


@pytest.mark.parametrize("function", sorted({row.function for row in FORMULAS}))
def test_every_function_says_its_source(function: str) -> None:
    assert generate.source_of(function)


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


def test_every_row_stands_in_a_section_that_its_function_cites() -> None:
    cited = {row.function: sections_in(generate.source_of(row.function)) for row in FORMULAS}
    strays = {
        row.function
        for row in FORMULAS
        if cited[row.function] and int(row.section.partition(".")[0]) not in cited[row.function]
    }
    assert not strays


def test_every_citation_names_a_section_and_a_source_that_a_reader_finds() -> None:
    sources = set(re.findall(r"^\| \[([A-Z0-9]+)\] \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE))
    texts = [path.read_text() for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    sections = set().union(*map(sections_in, texts))
    assert sections == {int(row.section.partition(".")[0]) for row in FORMULAS}
    cited = {key for text in texts for found in re.findall(r"Source: [^\"]*", text) for key in KEY.findall(found)}
    assert "TRM" in cited
    assert cited <= sources


def test_no_formula_has_two_rows() -> None:
    rows = [(row.section, row.name) for row in FORMULAS]
    assert len(rows) == len(set(rows))


STEPS = {
    f"trmon_client.core.{name}"
    for name in (
        "divergence.divergence_columns.blockwise_divergences",
        "divergence.divergence_columns.reduce_divergences",
        "reduction.sequences.reduce_block",
        "reduction.sequences.sequence_labels",
        "reduction.token_terms.ClipTokens.columns",
    )
}
"""Steps of functions that have a row."""


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
    assert sourced - STEPS <= {f"{function.__module__}.{function.__qualname__}" for function in named}


def _is_of_core(row: Any) -> bool:
    return not row.function.startswith("trmon.")
