"""Write the client's warnings to stderr, each one once."""

from __future__ import annotations

import sys


class WarnOnce:
    """Prints each warning once per process; a broken stderr is ignored."""

    def __init__(self) -> None:
        self._printed: dict[str, object] = {}

    def warn(self, key: str, text: str) -> None:
        """Print one line unless the key has been used before."""
        caller = object()
        # One operation, without a lock, which a signal handler could wait for in vain.
        if self._printed.setdefault(key, caller) is not caller:
            return
        try:
            sys.stderr.write(f"trmon: {_printable(text)}\n")
        except (OSError, ValueError, AttributeError, RuntimeError):
            return  # closed, missing (pythonw), or in use by the code that a signal interrupted


def _printable(text: str) -> str:
    """Return text with escapes for control characters, which an answer of the service can contain."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
