"""Validates the names of Apprise receivers."""

from __future__ import annotations

import re
from collections.abc import Collection

NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def check_apprise_names(names: Collection[str], *, reserved: Collection[str]) -> None:
    """Check the names of receivers. Errors: ValueError."""
    for name in names:
        if name in reserved:
            raise ValueError(f"{name} is the name of a built-in receiver; choose another")
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a receiver name: it has 1 to 32 characters a-z, 0-9, _ or -, and starts with a letter"
            )
