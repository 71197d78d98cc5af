"""The words of the inputs: each has some, and the page says the same."""

from __future__ import annotations

import re
from pathlib import Path

from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES
from trmon.domain.collapse_risk.risk_reading import INPUT_WORDS

PAGE = Path(__file__).parents[3] / "trmon" / "web" / "src" / "signalwords.js"


def test_every_input_has_words() -> None:
    assert tuple(INPUT_WORDS) == INPUT_NAMES


def test_the_page_has_the_same_words() -> None:
    page = dict(re.findall(r'^  (\w+): "(.+)",$', PAGE.read_text(), re.MULTILINE))
    assert {name: page.get(name) for name in INPUT_NAMES} == INPUT_WORDS
