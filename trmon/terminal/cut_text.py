"""Text that is cut to a width."""

from __future__ import annotations

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def cut_middle(text: str, width: int) -> str:
    """Return text of at most `width` characters, without its middle if it is longer: ends tell names apart."""
    if len(text) <= width:
        return text
    kept = max(width - len(ELLIPSIS), 0)
    tail = kept // 2
    return f"{text[: kept - tail]}{ELLIPSIS[:width]}{text[len(text) - tail :]}"
