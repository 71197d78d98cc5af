"""Parses the names of runs in a query."""

from __future__ import annotations

from trmon.domain.model.errors import InvalidInput
from trmon.domain.model.identity import RunKey


def split_run_keys(names: str) -> list[RunKey]:
    """Return the runs that PROJECT/RUN names, separated by commas, in order. Errors: InvalidInput."""
    return [_key(name.strip()) for name in names.split(",") if name.strip()]


def _key(name: str) -> RunKey:
    project, slash, run = name.partition("/")
    if not slash:
        raise InvalidInput("runs", f"must be PROJECT/RUN, separated by commas, not {name!r:.260}")
    return RunKey.checked(project, run)
