"""Run a monitor's last steps when the interpreter ends, with an uncaught exception or without one."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType


class ExitHooks:
    """Calls `on_crash` for an uncaught exception and `on_exit` when the interpreter ends, only in its own process."""

    def __init__(self, *, on_crash: Callable[[BaseException], None], on_exit: Callable[[], None]) -> None:
        self._pid = os.getpid()
        self._on_crash = on_crash
        self._close = on_exit
        self._previous_hook = sys.excepthook
        self._hook = self._on_exception
        sys.excepthook = self._hook
        atexit.register(self._on_exit)
        # A child of multiprocessing may end without running atexit; it has imported this module.
        util = sys.modules.get("multiprocessing.util")
        self._finalizer = None if util is None else util.Finalize(None, self._on_exit, exitpriority=0)

    def end(self) -> None:
        """Remove the hooks."""
        self._pid = 0
        atexit.unregister(self._on_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
        # Another hook may have been installed after ours and still call it: ours then stays and does nothing.
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            if os.getpid() == self._pid:
                self._on_crash(error)
        finally:
            self._previous_hook(kind, error, trace)

    def _on_exit(self) -> None:
        if os.getpid() == self._pid:
            self._close()
