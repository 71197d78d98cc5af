"""Make text from the trainer acceptable to messages and databases."""

from __future__ import annotations


def sanitize(value: object, *, at_most: int) -> str:
    """Return `str(value)`, or the value of a string enum, with lone surrogates and NUL replaced.

    Messages and databases accept neither. An object whose `str` fails gives the name of its class.
    Args: at_most: the maximum number of characters.
    """
    try:
        text = (str.__str__(value) if isinstance(value, str) else str(value))[:at_most]
    except Exception:  # noqa: BLE001  the trainer's own objects may raise anything
        text = type(value).__name__[:at_most]
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
