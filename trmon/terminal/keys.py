"""Keys that are pressed in a terminal, one at a time and without waiting for a line."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

KEYS = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}
"""What terminals send for keys that write nothing."""
LONGEST_SEQUENCE = 8


class KeyReader:
    """Reads keys; without a terminal to read from, it only waits."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def pressed(self, *, within_seconds: float) -> list[str]:
        """Return what was pressed, waiting for the first key so long: characters, or names such as `page down`."""
        if self._descriptor is None:
            time.sleep(within_seconds)
            return []
        if not select.select([self._descriptor], [], [], within_seconds)[0]:
            return []
        data = os.read(self._descriptor, 1024)
        if not data:  # the terminal is gone
            raise KeyboardInterrupt
        return list(split_keys(data.decode(errors="replace")))


@contextmanager
def terminal_keys() -> Iterator[KeyReader]:
    """Read keys from the terminal of stdin without echo, and leave it as it was."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield KeyReader(None)
        return
    if not sys.stdin.isatty():
        yield KeyReader(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield KeyReader(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def split_keys(text: str) -> Iterator[str]:
    """Yield the keys of what a terminal sent; sequences that are not known are left out."""
    while text:
        sequence = next((text[:n] for n in range(LONGEST_SEQUENCE, 0, -1) if text[:n] in KEYS), text[0])
        if sequence == "\x1b" and text[1:2] in ("[", "O"):
            text = _after_sequence(text)
            continue
        text = text[len(sequence) :]
        if sequence in KEYS:
            yield KEYS[sequence]
        elif sequence.isprintable():
            yield sequence


def _after_sequence(text: str) -> str:
    end = next((i for i, char in enumerate(text[2:], 2) if char.isalpha() or char == "~"), len(text) - 1)
    return text[end + 1 :]
