"""The page of the report: its template with the measured sections in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trmon_research.collapse.stored_runs import StoredRun

TEMPLATE = Path(__file__).with_name("report_template.md")


def report_page(runs: Sequence[StoredRun], sections: Sequence[str]) -> str:
    """Return the page as markdown."""
    return TEMPLATE.read_text().format(
        n_runs=len(runs),
        n_collapsed=sum(run.has_collapsed for run in runs),
        sections="\n".join(sections),
    )
