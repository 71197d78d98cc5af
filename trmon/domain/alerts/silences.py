"""Silences: who mutes which alerts, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from trmon.domain.alerts.alert import Alert
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon_client.core.wire.messages import decodable

MAX_MATCHERS = 16
MAX_PATTERN_LENGTH = 256


class MatchOperator(Enum):
    """How a matcher compares. Patterns are shell globs: a regular expression could be made to run for ever."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LIKE = "~"
    NOT_LIKE = "!~"


@decodable
@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """A condition on one label of an alert; a missing label is empty."""

    label: str
    operator: MatchOperator
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the condition."""
        value = labels.get(self.label, "")
        if self.operator in (MatchOperator.EQUAL, MatchOperator.NOT_EQUAL):
            return (value == self.value) is (self.operator is MatchOperator.EQUAL)
        return fnmatchcase(value, self.value) is (self.operator is MatchOperator.LIKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Mutes alerts that meet all matchers, in one project (None: all), from `starts_at` until `ends_at`."""

    id: int
    project: str | None
    matchers: tuple[Matcher, ...]
    author: str
    note: str
    starts_at: float
    ends_at: float

    def covers(self, alert: Alert, *, run: RunKey, owner: str | None, now: float) -> bool:
        """Return whether the silence mutes an alert now."""
        return self.starts_at <= now < self.ends_at and self.matches(labels_of(alert, run=run, owner=owner))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the silence mutes, while it lasts, an alert of these labels."""
        return self.project in (None, labels["project"]) and all(one.matches(labels) for one in self.matchers)


def labels_of(alert: Alert, *, run: RunKey, owner: str | None) -> dict[str, str]:
    """Return the labels of an alert that silences match; the rule of an incident is its cause."""
    rule = alert.labels.get("cause", alert.rule) if alert.is_incident else alert.rule
    standard = {"project": run.project, "run": run.run, "owner": owner or ""}
    return alert.labels | standard | {"rule": rule, "severity": alert.severity.value}


def check_matchers(matchers: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
    """Return matchers that are well formed and not too broad. Errors: InvalidInput."""
    if len(matchers) > MAX_MATCHERS:
        raise InvalidInput("matchers", f"must be at most {MAX_MATCHERS}, not {len(matchers)}")
    for i, matcher in enumerate(matchers):
        if not matcher.label or len(matcher.label) > MAX_PATTERN_LENGTH or len(matcher.value) > MAX_PATTERN_LENGTH:
            limit = f"label and value have at most {MAX_PATTERN_LENGTH} characters"
            raise InvalidInput(f"matchers[{i}]", f"needs a label; {limit}")
    if all(matcher.matches({}) for matcher in matchers):
        raise InvalidInput("matchers", "at least one must select alerts, for example rule = mask_rate")
    return matchers
