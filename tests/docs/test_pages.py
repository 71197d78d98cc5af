"""Pages that name what is elsewhere: decisions, paths, tests of threats, dependencies and versions; the site builds."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import tomllib

from tests.fixtures.versions import REPOSITORY

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    shown = {
        page.parent / source for page in pages for source in re.findall(r'<img[^>]* src="([^":]+)"', page.read_text())
    }
    assert len(shown) >= 8
    assert not [picture for picture in shown if not picture.is_file()]
    ranks = {
        entry["location"]: entry.get("boost")
        for entry in json.loads((tmp_path / "site/search/search_index.json").read_text())["docs"]
    }
    assert ranks["decisions/0016-order-on-postgresql/"] < 1 == (ranks["alerts/"] or 1)


def test_every_decision_has_a_line_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    missing = [page.name for page in sorted(folder.glob("0*.md")) if f"]({page.name}): " not in index]
    assert not missing


def test_every_path_on_the_architecture_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = {path.rstrip("/") for path in re.findall(r"`([\w.-]+/[\w/.-]*)`", page)}
    bases = ("", "trmon", "client/trmon_client")
    missing = {
        path
        for path in named
        if not any((ROOT / base / f"{path}{suffix}").exists() for base in bases for suffix in ("", ".py"))
    }
    assert named
    assert not missing


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


REASONED = [
    name.strip().lower()
    for line in (REPOSITORY / "docs/dependencies.md").read_text().splitlines()
    if line.startswith("| ")
    for name in re.sub(r"\(.*?\)", "", line.split("|")[1]).split(",")
]
"""The names in the first column of the table, without licences."""


def required(path: str) -> set[str]:
    """Return the names of what a package requires, with all of its extras."""
    project = tomllib.loads((REPOSITORY / path).read_text())["project"]
    extras = project.get("optional-dependencies", {}).values()
    return {
        re.split(r"[^\w-]", wanted)[0]
        for wanted in (*project["dependencies"], *(one for extra in extras for one in extra))
    }


@pytest.mark.parametrize(
    "name", sorted((required("pyproject.toml") | required("client/pyproject.toml")) - {"trmon-client"})
)
def test_a_dependency_has_its_reason(name: str) -> None:
    assert REASONED.count(name) == 1


SAID = {
    "trl": [("trl.md", "{trl} (transformers {transformers})")],
    "trl-oldest": [("trl.md", "{trl} (transformers {transformers})")],
    "examples": [
        ("scalars.md", "transformers {transformers} and Lightning {lightning}, "),
        ("scalars.md", "wandb {wandb} and trackio {trackio}, "),
    ],
    **{
        name: [(f"{name}.md", f"{{{name}}}"), ("index.md", f"{{{name}}}")]
        for name in ("skyrl", "openrlhf", "areal", "ms-swift")
    },
}
"""Of each file of requirements, what which page says of its versions."""


@pytest.mark.parametrize("pinned", SAID)
def test_the_pages_name_the_versions_that_are_run(pinned: str) -> None:
    requirements = (ROOT / f"requirements/{pinned}.txt").read_text()
    versions = dict(re.findall(r"^([\w-]+)==([\d.]+)", requirements, re.MULTILINE))
    if "transformers" in versions:
        versions["transformers"] = ".".join(versions["transformers"].split(".")[:2])
    for page, said in SAID[pinned]:
        assert said.format_map(versions) in (ROOT / "docs/integrations" / page).read_text()
