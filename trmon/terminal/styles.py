"""Colours of verdicts and severities on a terminal: red for act, amber for watch."""

from __future__ import annotations

from rich.text import Text

from trmon.domain.finding import Severity
from trmon.domain.health.verdict import VerdictKind, duration
from trmon_client.api import VerdictInfo

OF_KIND = {
    VerdictKind.ACT.value: "bold red",
    VerdictKind.CRASHED.value: "bold",
    VerdictKind.STALLED.value: "bold",
    VerdictKind.WATCH.value: "yellow",
    VerdictKind.ENDED_ILL.value: "yellow",
    VerdictKind.UNKNOWN.value: "dim",
    VerdictKind.TRAINING_HEALTHY.value: "green",
    VerdictKind.NO_DRIFT_FOUND.value: "green",
    VerdictKind.HEALTHY.value: "green",
    VerdictKind.FINISHED.value: "dim",
}
OF_SEVERITY = {Severity.PAGE.value: "bold red", Severity.WARN.value: "yellow", Severity.INFO.value: "dim"}


def verdict_line(verdict: VerdictInfo, *, limit: str = "") -> Text:
    """Return a verdict in one line, e.g. `Act: staleness since step 63`. Args: limit: what it does not cover yet."""
    known = f" ({limit})" if limit else ""
    return Text(f"{kind_words(verdict.kind).capitalize()}{known}: {verdict.why}", style=OF_KIND.get(verdict.kind, ""))


def kind_words(kind: str) -> str:
    """Return a kind of verdict in words, also one of a newer service."""
    return kind.replace("_", " ")


def last_seen_text(at: float | None, *, now: float) -> str:
    """Return how long ago a run reported."""
    return "never" if at is None else f"{duration(max(now - at, 0.0))} ago"


def percent_text(value: float | None) -> str:
    """Return a share as a percentage."""
    return "-" if value is None else f"{value:.0%}" if value == 0 or value >= 0.1 else f"{value:.1%}"
