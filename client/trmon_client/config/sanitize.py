"""Words: text of the trainer's own, as every service can take it."""

from __future__ import annotations


def sanitize(value: object, *, at_most: int) -> str:
    """Return `str(value)`, and of an enum's text its value, without what no message or database takes.

    That is half a character of Unicode, and NUL; both are replaced.
    Args: at_most: characters. What has no text to show gives the name of its class.
    """
    try:
        text = (str.__str__(value) if isinstance(value, str) else str(value))[:at_most]
    except Exception:  # noqa: BLE001  the trainer's own objects may raise anything
        text = type(value).__name__[:at_most]
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
