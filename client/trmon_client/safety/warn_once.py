"""What the client tells the trainer's author on stderr: each thing once."""

from __future__ import annotations

import sys


class WarnOnce:
    """Says each thing once in the life of a process; a broken stderr changes nothing."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, key: str, text: str) -> None:
        """Print one line unless this key has been said before."""
        if key in self._said:
            return
        self._said.add(key)
        try:
            sys.stderr.write(f"trmon: {text}\n")
        except (OSError, ValueError, AttributeError, RuntimeError):
            return  # closed, missing (pythonw) or in use by who was interrupted: there is nobody to tell
