"""The page on diagnosis says what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from trmon.domain.findings.catalogue import USUAL_HOLD
from trmon.domain.findings.judge import CLEAR_ROWS
from trmon.domain.findings.verdict import ENOUGH_ROWS, LEADS_AFTER_ROWS, NEAR_ROWS, Word
from trmon.domain.rules.rule import IMMUNE_ROWS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "diagnosis.md").read_text()
WORDS = " ".join(PAGE.split())


def test_the_example_runs_and_finds_what_it_says() -> None:
    block = textwrap.dedent(PAGE.split("## In Python\n\n")[1].split("\n\nThe state")[0])
    statements, _, last = block.rpartition("\n")
    names: dict[str, Any] = {}
    exec(statements, names)
    expression, _, said = last.partition("# ")
    assert eval(expression, names) == said


def test_every_word_of_a_verdict_is_explained() -> None:
    explained = {line.split(" | ")[0].removeprefix("| ") for line in PAGE.splitlines() if line.startswith("| ")}
    for word in Word:
        if word is not Word.FINDING:
            assert any(words.startswith(word.value) for words in explained), word


def test_the_numbers_of_the_page_are_those_of_the_judge() -> None:
    assert f"*{USUAL_HOLD}*" in WORDS
    assert f"ends after {CLEAR_ROWS} rows" in WORDS
    assert f"within {NEAR_ROWS} rows of each other" in WORDS
    assert f"has stood for {LEADS_AFTER_ROWS} rows" in WORDS
    assert f"({ENOUGH_ROWS // 3 + 1} of {ENOUGH_ROWS})" in WORDS
    assert f"In the first {IMMUNE_ROWS} steps" in WORDS


def test_every_section_of_the_findings_that_the_code_cites_is_on_the_page() -> None:
    texts = [path.read_text() for path in (ROOT / "trmon").rglob("*.py")]
    cited = {number for text in texts for number in re.findall(r"Source: findings, section (\d)", text)}
    assert cited
    assert cited <= set(re.findall(r"^### (\d)\. ", PAGE, re.MULTILINE))
