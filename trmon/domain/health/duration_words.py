"""Durations in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a readable duration, e.g. `40 s`, `14 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{max(seconds, 0.0):.1g} s"
