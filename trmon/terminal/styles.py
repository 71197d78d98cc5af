"""Colours of verdicts and severities on a terminal: red for act, amber for watch."""

from __future__ import annotations

from rich.text import Text

from trmon.api.fleet.schemas import FleetRunOut, VerdictOut
from trmon.domain.health.run_verdict import duration
from trmon.domain.health.verdict import VerdictKind
from trmon.domain.model.severity import Severity

OF_KIND = {
    VerdictKind.ACT: "bold red",
    VerdictKind.CRASHED: "bold",
    VerdictKind.STALLED: "bold",
    VerdictKind.WATCH: "yellow",
    VerdictKind.ENDED_ILL: "yellow",
    VerdictKind.UNKNOWN: "dim",
    VerdictKind.TRAINING_HEALTHY: "green",
    VerdictKind.NO_DRIFT_FOUND: "green",
    VerdictKind.HEALTHY: "green",
    VerdictKind.FINISHED: "dim",
}
OF_SEVERITY = {Severity.PAGE: "bold red", Severity.WARN: "yellow", Severity.INFO: "dim"}


def verdict_line(verdict: VerdictOut) -> Text:
    """Return a verdict in one line, e.g. `Act: staleness since step 63`."""
    style = OF_KIND[verdict.kind] if isinstance(verdict.kind, VerdictKind) else ""
    return Text(f"{kind_words(verdict.kind).capitalize()}: {verdict.why}", style=style)


def kind_words(kind: VerdictKind | str) -> str:
    """Return a kind of verdict in words, also one of a newer service."""
    return kind.words if isinstance(kind, VerdictKind) else kind.replace("_", " ")


def last_seen_text(run: FleetRunOut, *, now: float) -> str:
    """Return how long ago a run reported."""
    return "never" if run.last_report_at is None else f"{duration(max(now - run.last_report_at, 0.0))} ago"


def percent_text(value: float | None) -> str:
    """Return a share as a percentage."""
    return "-" if value is None else f"{value:.0%}" if value == 0 or value >= 0.1 else f"{value:.1%}"
