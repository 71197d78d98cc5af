"""The trainer's own numbers that a run is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAMES = ("loss", "grad_norm", "learning_rate", "entropy", "completions/clipped_ratio")
PREFIXES = ("sampling/", "sample/staleness_")
RENAMED = {"learning_rate": "lr"}


def trainer_scalars(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers of the newest entry of a trainer's log history; evaluations have other names."""
    newest = history[-1] if history else {}
    return {
        RENAMED.get(name, name): value
        for name, value in newest.items()
        if value is not None and (name in NAMES or name.startswith(PREFIXES))
    }
