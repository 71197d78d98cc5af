"""The tables in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trmon_research.detection.faults import InjectedFault
from trmon_research.detection.outcome import RunOutcome, is_healthy, median_of, wilson_interval
from trmon_research.detection.record import LAB
from trmon_research.detection.recorded_run import RunName

FAULT_HEAD = (
    "injected",
    "runs",
    "reward fell",
    "found before it fell",
    "found at all",
    "delay",
    "after the fall",
    "first cause right",
    "last cause right",
    "first causes",
    "pages a run",
    "openings a run",
)
HEALTHY_HEAD = ("healthy", "runs", "paged falsely", "warned falsely", "first told as")


def markdown_tables(outcomes: Sequence[RunOutcome]) -> Iterator[str]:
    """Yield the lines of the tables: faults, then healthy runs."""
    groups: dict[str, list[RunOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(title_of(outcome.name), []).append(outcome)
    yield from _table(FAULT_HEAD, [_fault_row(title, of) for title, of in groups.items() if not is_healthy(of[0].name)])
    yield ""
    yield from _table(HEALTHY_HEAD, [_healthy_row(title, of) for title, of in groups.items() if is_healthy(of[0].name)])


def title_of(name: RunName) -> str:
    """Return what a kind of runs is called in the table."""
    return f"lab: {name.kind.lower()}" if name.testbed == LAB else InjectedFault[name.kind].value


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " ---: |" * (len(head) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _fault_row(title: str, of: Sequence[RunOutcome]) -> list[str]:
    fell = [one for one in of if one.fell_at is not None]
    found = [one for one in of if one.found is not None]
    early = [one for one in fell if one.delay_of_collapse is not None and one.delay_of_collapse < 0]
    causes = Counter(one.found.cause or one.found.rule for one in of if one.found is not None)
    return [
        title,
        str(len(of)),
        str(len(fell)),
        f"{len(early)} of {len(fell)}",
        _share(len(found), len(of)),
        median_of([one.delay for one in found]),
        median_of([one.delay_of_collapse for one in fell]),
        _share(sum(one.is_right for one in found), len(found)),
        _share(sum(one.is_right_in_the_end for one in found), len(found)),
        ", ".join(f"{name} {n}" for name, n in causes.most_common()),
        f"{sum(one.pages for one in of) / len(of):.1f}",
        f"{sum(one.openings for one in of) / len(of):.1f}",
    ]


def _healthy_row(title: str, of: Sequence[RunOutcome]) -> list[str]:
    causes = Counter(one.found.cause or one.found.rule for one in of if one.found is not None)
    return [
        title.removeprefix("healthy, "),
        str(len(of)),
        _share(sum(one.pages > 0 for one in of), len(of)),
        _share(sum(one.warnings > 0 for one in of), len(of)),
        ", ".join(f"{name} {n}" for name, n in causes.most_common()),
    ]


def _share(successes: int, n: int) -> str:
    low, high = wilson_interval(successes, n)
    return f"{successes} of {n} ({100 * low:.0f}-{100 * high:.0f}%)" if n else ""
