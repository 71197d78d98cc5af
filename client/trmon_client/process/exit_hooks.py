"""Exits: what a monitor does when the interpreter ends, by an exception or without a word."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType


class ExitHooks:
    """Calls `crash` for an exception nobody caught, and `leave` at the interpreter's end; only in its own process."""

    def __init__(self, *, crash: Callable[[BaseException], None], leave: Callable[[], None]) -> None:
        self._pid = os.getpid()
        self._crash = crash
        self._leave = leave
        self._previous_hook = sys.excepthook
        self._hook = self._on_exception
        sys.excepthook = self._hook
        atexit.register(self._on_exit)
        # A child of multiprocessing may end without what atexit knows; it has imported this module.
        util = sys.modules.get("multiprocessing.util")
        self._finalizer = None if util is None else util.Finalize(None, self._on_exit, exitpriority=0)

    def end(self) -> None:
        """Watch no more."""
        self._pid = 0
        atexit.unregister(self._on_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
        # Someone may have hooked in after us and calls us still: then the hook stays and does nothing.
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            if os.getpid() == self._pid:
                self._crash(error)
        finally:
            self._previous_hook(kind, error, trace)

    def _on_exit(self) -> None:
        if os.getpid() == self._pid:
            self._leave()
