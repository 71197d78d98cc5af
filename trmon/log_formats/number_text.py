"""Numbers as logs print them."""

from __future__ import annotations

import re

_WRAPPED = re.compile(r"^(?:np\.float\d*|numpy\.float\d*|np\.int\d*|float|tensor|array)\(([^(),]+)(?:,[^()]*)?\)$")


def bare_number(text: str) -> str:
    """Return the number inside what a log wraps around one, such as np.float64(0.5); other text unchanged."""
    text = text.strip()
    found = _WRAPPED.match(text)
    return found.group(1) if found else text
