"""Reads rules files over the built-in rules, and runs rule tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trmon.domain.model.errors import InvalidInput
from trmon.domain.pipeline.rule_test_yaml import ExpectedAlert, RuleTest, parse_rule_tests
from trmon.domain.pipeline.rule_testing import run_rule_test
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTestResult:
    """A rule test, and the alerts that its rules raised."""

    test: RuleTest
    alerts: tuple[ExpectedAlert, ...]

    @property
    def passed(self) -> bool:
        """Whether the alerts are the expected ones."""
        return self.alerts == self.test.alerts

    def __str__(self) -> str:
        if self.passed:
            return f"ok      {self.test.name}"
        return f"FAILED  {self.test.name}\n  expected: {_list(self.test.alerts)}\n  got:      {_list(self.alerts)}"


def read_rules_file(path: Path) -> tuple[Rule, ...]:
    """Return the built-in rules with those of a file over them. Errors: InvalidInput naming file and position."""
    text = _read(path)
    try:
        return overlay_rules(builtin_rules(), text)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.field}", error.message) from error


def run_rules_file_tests(path: Path) -> list[RuleTestResult]:
    """Return the result of each test in a file, over the rules that the file names. Errors: InvalidInput."""
    text = _read(path)
    try:
        given = parse_rule_tests(text)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.field}", error.message) from error
    rules = builtin_rules() if given.rules is None else read_rules_file(path.parent / given.rules)
    return [RuleTestResult(test=one, alerts=run_rule_test(one, rules)) for one in given.tests]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from error


def _list(alerts: tuple[ExpectedAlert, ...]) -> str:
    return ", ".join(map(str, alerts)) or "nothing"
