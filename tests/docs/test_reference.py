"""The documentation says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.reference.generate import generated

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("path", "text"), generated().items())
def test_a_generated_page_is_what_its_code_generates(path: str, text: str) -> None:
    assert (ROOT / path).read_text() == text, "run `make docs`"


def test_every_runbook_is_of_a_rule_that_there_is() -> None:
    pages = {str(page.relative_to(ROOT)) for page in ROOT.glob("docs/runbooks/*.md")}
    assert pages == {path for path in generated() if path.startswith("docs/runbooks/")}


def test_every_link_between_documents_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("client/*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken


def test_every_make_target_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert named
    assert named <= targets


def test_every_command_that_the_readme_names_exists() -> None:
    commands = set(re.findall(r"^## `trmon ([a-z]+)", (ROOT / "docs/reference/commands.md").read_text(), re.MULTILINE))
    named = set(re.findall(r"trmon ([a-z]+)(?=[ `\n])", _code_of((ROOT / "README.md").read_text())))
    assert named & commands
    assert named <= commands


def _code_of(markdown: str) -> str:
    """Return the inline code and the indented lines of a page."""
    return "\n".join(
        [*re.findall(r"`(trmon [^`]+)`", markdown), *re.findall(r"^    (trmon .*)$", markdown, re.MULTILINE)]
    )
