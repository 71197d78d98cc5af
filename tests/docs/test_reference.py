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
