"""The reference says what the code says: generated pages, formulas, the schema of rules and the client's page."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

import trmon_client
from docs.reference import generate
from docs.reference.generate import generated
from docs.reference.rules_schema import rules_json_schema
from tests.docs.code_blocks import functions_in
from tests.domain.rules.rule_documents import CONDITIONS, INVALID_RULES, InvalidRules
from trmon.domain.rules.rule_yaml import FIELDS
from trmon_client import BatchDecision, Monitor
from trmon_client.core.bounds import ErrorBounds
from trmon_client.core.column_schema import COLUMNS, DIVERGENCE_STEMS, PAIR_STEMS, PAIRS, TURN_STEMS
from trmon_client.core.policies.criteria import TURN_STATISTICS
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS
from trmon_client.core.signals.catalogue import SIGNALS

ROOT = Path(__file__).parents[2]


GENERATED = generated()


@pytest.mark.parametrize(("path", "text"), GENERATED.items())
def test_a_generated_page_is_what_its_code_generates(path: str, text: str) -> None:
    assert (ROOT / path).read_text() == text, "run `make docs`"


def test_every_runbook_is_of_a_rule_that_there_is() -> None:
    pages = {str(page.relative_to(ROOT)) for page in ROOT.glob("docs/runbooks/*.md")}
    assert pages == {path for path in GENERATED if path.startswith("docs/runbooks/")}


def test_every_link_between_documents_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("client/*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken


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


def test_every_function_says_its_source_and_every_test_is_there() -> None:
    assert [row.function for row in FORMULAS if not generate.source_of(row.function)] == []
    named = {(f"tests/{path}", name) for path, name in (row.test.split("::") for row in FORMULAS)}
    assert {(path, name) for path, name in named if name not in functions_in(path)} == set()


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


SCHEMA = rules_json_schema()
SchemaErrors = Callable[[Any], list[str]]


@pytest.fixture(scope="module")
def schema_errors() -> SchemaErrors:
    """Return a function that says what a document has against the schema, which is a valid one."""
    from jsonschema import Draft202012Validator  # here: with cyclonedx beside it, its import compiles grammars for 5 s

    Draft202012Validator.check_schema(SCHEMA)
    validator = Draft202012Validator(SCHEMA)
    return lambda document: [error.message for error in validator.iter_errors(document)]


def test_it_accepts_the_builtin_rules(schema_errors: SchemaErrors) -> None:
    builtin = yaml.safe_load(files("trmon.domain.rules").joinpath("builtin_rules.yaml").read_text("utf-8"))
    assert schema_errors(builtin) == []


@pytest.mark.parametrize("rules", [rules for rules in INVALID_RULES if rules.in_schema], ids=attrgetter("case"))
def test_it_rejects_what_the_parser_rejects(rules: InvalidRules, schema_errors: SchemaErrors) -> None:
    assert schema_errors(yaml.safe_load(rules.text))


@pytest.mark.parametrize("when", CONDITIONS, ids=str)
def test_it_accepts_every_kind_of_condition(when: dict[str, object], schema_errors: SchemaErrors) -> None:
    rule = {"name": "r", "severity": "warn", "summary": "{{x}} {run}", "when": when}
    assert schema_errors([rule, {"name": "mask_rate", "disabled": True}]) == []


def test_it_has_every_field_of_a_rule() -> None:
    assert SCHEMA["$defs"]["rule"]["properties"].keys() == FIELDS.keys()


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
