"""Plain text: messages without markup, and text of others on one line."""

from __future__ import annotations

from trmon.notifications.receivers.message_text import MessageText


def one_line(text: str, *, max_length: int) -> str:
    """Return text without line ends and control characters, which would end a header or change a terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= max_length else f"{line[: max_length - 3]}..."


def plain_text(text: MessageText) -> str:
    """Return a message as plain text."""
    paragraphs = ["\n".join((f"{alert.status}: {alert.summary}", *alert.details)) for alert in text.alerts]
    if text.note is not None:
        paragraphs.append(text.note)
    if text.link is not None:
        paragraphs.append(f"{text.link.text}: {text.link.url}")
    return "\n\n".join(paragraphs) + "\n"
