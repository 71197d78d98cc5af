"""The rules in force: the built-in ones, and over them those of a file that is read again when it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import structlog

from trmon.config import rule_files
from trmon.config.settings import Settings
from trmon.domain.model.errors import InvalidInput, NotReady
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_yaml import builtin_rules

POLL_SECONDS = 1.0

log = structlog.get_logger(__name__)

Stamp = tuple[int, int, int]
"""A file's time of change, size and inode."""


class ActiveRules:
    """Holds a set of rules and replaces it whole, or, where the file has an error, not at all."""

    def __init__(self, path: Path | None, *, poll_seconds: float = POLL_SECONDS) -> None:
        """Read the file for the first time. Errors: InvalidInput naming file and place."""
        self.path = path
        self.error: str | None = None
        self._stamp = _stamp_of(path)
        self._rules = builtin_rules() if path is None else rule_files.read_rules_file(path)
        self._poll_seconds = poll_seconds
        self._changed: Callable[[], None] = lambda: None
        self._failed: Callable[[], None] = lambda: None
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trmon-rules", daemon=True)

    def __call__(self) -> tuple[Rule, ...]:
        """Return the rules as they are now."""
        return self._rules

    def watched_by(self, *, changed: Callable[[], None], failed: Callable[[], None]) -> None:
        """Name who hears that the rules have changed, and that they could not be read."""
        self._changed, self._failed = changed, failed

    def start(self) -> None:
        """Begin to watch the file, if there is one."""
        if self.path is not None:
            self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def refresh(self) -> None:
        """Read the file again if it has changed; what is wrong with it is said once, and the old rules stay."""
        stamp = _stamp_of(self.path)
        if self.path is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._rules = rule_files.read_rules_file(self.path)
        except InvalidInput as error:
            self.error = str(error)
            self._failed()
            log.error("rules_reload_failed", error=self.error)
            return
        self.error = None
        self._changed()
        log.info("rules_reloaded", file=str(self.path), rules=len(self._rules))

    def _run(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            self.refresh()


def active_rules_of(settings: Settings) -> ActiveRules:
    """Return the rules of the settings. Errors: NotReady naming what is wrong with their file."""
    try:
        return ActiveRules(settings.rules_file)
    except InvalidInput as error:
        raise NotReady(f"TRMON_RULES_FILE: {error}; `trmon rules check` says more") from error


def _stamp_of(path: Path | None) -> Stamp | None:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
