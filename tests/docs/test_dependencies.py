"""Every dependency of the packages has its reason in the docs."""

from __future__ import annotations

import re

import pytest
import tomllib

from tests.fixtures.versions import REPOSITORY

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
