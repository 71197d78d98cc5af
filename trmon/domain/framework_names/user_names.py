"""Names that no table has: suggestions for them, and what the user says that they mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache

from trmon.domain.errors import InvalidInput
from trmon.domain.framework_names.tables import normal_form
from trmon.domain.framework_names.translation import ALL_TABLES, trmon_name, trmon_names

SUGGESTIONS = 3
LIKENESS = 0.75
"""Of a suggestion, at least; names of other things are less alike."""


@lru_cache(maxsize=4096)
def nearest_names(name: str) -> tuple[str, ...]:
    """Return up to three names that are read and resemble a name, the nearest first."""
    return tuple(
        _known()[form] for form in get_close_matches(normal_form(name), _known(), n=SUGGESTIONS, cutoff=LIKENESS)
    )


@lru_cache(maxsize=1)
def _known() -> Mapping[str, str]:
    """Return the names that are read, by the form in which they are compared."""
    names = (*trmon_names(), *(name for table in ALL_TABLES for name in table.signals if "*" not in name))
    return {normal_form(name): name for name in reversed(names)}


def parse_mapped(lines: Iterable[str], *, source: str) -> dict[str, str]:
    """Return the signals that the user maps names to, of lines NAME=SIGNAL; empty lines and # comments are left out.

    Args: source: what to call the lines in errors. Errors: InvalidInput for a line of another form, a signal that
    trmon does not have, or a name with two signals.
    """
    mapped: dict[str, str] = {}
    for line in (line.strip() for line in lines):
        if not line or line.startswith("#"):
            continue
        name, is_mapped, signal = (part.strip() for part in line.rpartition("="))
        if not (is_mapped and name and signal):
            raise InvalidInput(source, f"expected NAME=SIGNAL, such as my_reward=reward_mean, got {line!r}")
        known = trmon_name(signal)
        if known is None:
            near = get_close_matches(signal, trmon_names(), n=SUGGESTIONS)
            hint = f"did you mean {' or '.join(near)}?" if near else "docs/reference/signals.md lists them"
            raise InvalidInput(source, f"trmon has no signal {signal!r}; {hint}")
        if mapped.setdefault(name, known) != known:
            raise InvalidInput(source, f"{name!r} is mapped to {mapped[name]} and to {known}; keep one")
    return mapped
