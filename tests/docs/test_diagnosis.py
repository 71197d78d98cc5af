"""The page on diagnosis says what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from trmon.domain.finding import Finding
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.fleet.summaries import STEPS

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()


def test_the_example_runs_and_finds_what_it_says() -> None:
    block = PAGE.split("## In Python\n\n")[1].split("\n\n`History")[0]
    names: dict[str, Any] = {}
    exec(textwrap.dedent(block), names)
    assert names["found"].primary is Finding.CORRUPT_LOGPROBS


def test_the_page_says_how_many_steps_are_read() -> None:
    assert f"the newest {STEPS} steps" in " ".join(PAGE.split())


def test_every_measured_cause_exists() -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and line.count(" | ") == 11]
    told = {name for row in rows for name in re.findall(r"(\S+) \d+(?:,|$)", row[9])}
    assert len(rows) > 14
    symptoms = {rule.name for rule in builtin_rules() if rule.is_symptom}
    assert told <= {finding.value for finding in Finding} | symptoms
