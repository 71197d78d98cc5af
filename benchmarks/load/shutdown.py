"""Clean shutdown: stopping a measurement also stops the servers that it started."""

from __future__ import annotations

import signal
import sys


def unwind_on_sigterm() -> None:
    """Make SIGTERM unwind every `with` block, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
