"""Rules files: read over the built-in rules, tested, and reloaded when they change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from trmon.config.settings import Settings
from trmon.domain.collapse_risk.risk_model import decode_model, use_model
from trmon.domain.errors import InvalidInput, NotReady
from trmon.domain.pipeline.rule_testing import ExpectedAlert, RuleTest, parse_rule_tests, run_rule_test
from trmon.domain.rules.rule import RuleSet
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules

T = TypeVar("T")
FileStamp = tuple[int, int, int]
"""A file's modification time, size and inode."""

log = structlog.get_logger(__name__)


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


def read_rules_file(path: Path) -> RuleSet:
    """Return the built-in rules with those of a file over them. Errors: InvalidInput naming file and position."""
    return _parsed(path, partial(overlay_rules, builtin_rules()))


def run_rules_file_tests(path: Path) -> list[RuleTestResult]:
    """Return the result of each test in a file, over the rules that the file names. Errors: InvalidInput."""
    given = _parsed(path, parse_rule_tests)
    rules = builtin_rules() if given.rules is None else read_rules_file(path.parent / given.rules)
    return [RuleTestResult(test=one, alerts=run_rule_test(one, rules)) for one in given.tests]


MAX_BYTES = 256 << 10
"""Of a file of rules: YAML is parsed at about as much a second, in the service's process too."""


def _parsed(path: Path, parse: Callable[[str], T]) -> T:
    text = _read(path)
    try:
        return parse(text)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.field}", error.message) from error


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InvalidInput(str(path), f"is longer than {MAX_BYTES >> 10} KiB, the most that rules may have")
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from error


def _list(alerts: tuple[ExpectedAlert, ...]) -> str:
    return ", ".join(map(str, alerts)) or "nothing"


class ActiveRules:
    """Holds the set of rules; a reload replaces the whole set, or nothing if the file is invalid."""

    def __init__(self, path: Path | None) -> None:
        """Read the file. Errors: InvalidInput naming file and position."""
        self.path = path
        self.error: str | None = None
        self._stamp = _stamp_of(path)
        self._rules = builtin_rules() if path is None else read_rules_file(path)
        self.on_change: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None
        """Called after a reload, and after one that failed."""

    def __call__(self) -> RuleSet:
        """Return the current rules."""
        return self._rules

    def health_rules(self) -> frozenset[str]:
        """Return the names of the rules whose alerts join a run's incident."""
        return self._rules.of_health

    def refresh(self) -> None:
        """Reload the file if it changed; if it is invalid, log the error once and keep the old rules."""
        stamp = _stamp_of(self.path)
        if self.path is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._rules = read_rules_file(self.path)
        except InvalidInput as error:
            self.error = str(error)
            self.on_failure()
            log.error("rules_reload_failed", error=self.error)
            return
        self.error = None
        self.on_change()
        log.info("rules_reloaded", file=str(self.path), rules=len(self._rules.rules))


def active_rules_of(settings: Settings) -> ActiveRules:
    """Return the active rules for the settings, which predict with their model of the risk of a collapse.

    Errors: NotReady naming the error in the rules file or the model.
    """
    try:
        use_model(None if settings.risk_model is None else decode_model(settings.risk_model.read_bytes()))
    except (InvalidInput, OSError) as error:
        raise NotReady(f"TRMON_RISK_MODEL: {error}; write it again with `trmon risk calibrate`") from error
    try:
        return ActiveRules(settings.rules_file)
    except InvalidInput as error:
        raise NotReady(f"TRMON_RULES_FILE: {error}; run `trmon rules check` for details") from error


def _stamp_of(path: Path | None) -> FileStamp | None:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
