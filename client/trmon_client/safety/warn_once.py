"""Write the client's warnings to stderr, each one once."""

from __future__ import annotations

import sys


class WarnOnce:
    """Prints each warning once per process; a broken stderr is ignored."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def warn(self, key: str, text: str) -> None:
        """Print one line unless the key has been used before."""
        if key in self._printed:
            return
        self._printed.add(key)
        try:
            sys.stderr.write(f"trmon: {text}\n")
        except (OSError, ValueError, AttributeError, RuntimeError):
            return  # closed, missing (pythonw), or in use by the code that a signal interrupted
