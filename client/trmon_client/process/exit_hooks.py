"""Tell a monitor how its process ends: by an uncaught exception, an exit code, SIGTERM or the interpreter's end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn

from trmon_client.core.wire import EndReason
from trmon_client.process.process_end import ProcessEnd
from trmon_client.process.sigterm import SIGTERM_HANDLER

OnEnd = Callable[[ProcessEnd, float], Callable[[], None]]
"""Begins to finish a run, given for how many seconds the process has waited already, and returns what waits for it."""


class ExitHooks:
    """Calls `on_end` once, when its own process ends; os._exit and SIGKILL cannot be observed.

    All monitors of a process begin to finish before the first is waited for, so that they share the time of one.
    Args: handles_sigterm: install a handler for SIGTERM too, where nobody else has one.
    """

    def __init__(self, on_end: OnEnd, *, handles_sigterm: bool) -> None:
        self._pid = os.getpid()
        self._on_end = on_end
        self._handles_sigterm = handles_sigterm
        self._error_before = _last_error()
        self._exit_status: tuple[Any] | None = None
        self._previous_hook, self._hook = sys.excepthook, self._on_exception
        self._previous_exit, self._exit_wrapper = sys.exit, self._exit
        sys.excepthook, sys.exit = self._hook, self._exit_wrapper
        atexit.register(self._on_exit)
        # A child of multiprocessing may end without running atexit; it has imported this module.
        util = sys.modules.get("multiprocessing.util")
        self._finalizer = None if util is None else util.Finalize(None, self._on_exit, exitpriority=0)
        if handles_sigterm:
            SIGTERM_HANDLER.add(self._on_sigterm)
        _ACTIVE.append(self)

    def forget_exit(self) -> None:
        """Forget a call of `sys.exit`: the trainer goes on, so it was caught."""
        self._exit_status = None

    def end(self) -> None:
        """Remove the hooks."""
        self._pid = 0
        with suppress(ValueError):
            _ACTIVE.remove(self)
        atexit.unregister(self._on_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
        SIGTERM_HANDLER.remove(self._on_sigterm)
        # Another hook may have been installed after ours and still call it: ours then stays and does nothing.
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook
        if sys.exit is self._exit_wrapper:
            sys.exit = self._previous_exit

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            # An interactive interpreter goes on after an exception.
            if os.getpid() == self._pid and not _is_interactive():
                _end_all(lambda _hooks: ProcessEnd.by_exception(error))
        finally:
            self._previous_hook(kind, error, trace)

    def _exit(self, status: Any = None, /) -> NoReturn:
        if os.getpid() == self._pid and threading.current_thread() is threading.main_thread():
            self._exit_status = (status,)
        self._previous_exit(status)

    def _on_sigterm(self, waited_seconds: float) -> None:
        if os.getpid() == self._pid:
            end = ProcessEnd(EndReason.SIGNAL, signal="SIGTERM")
            _end_all(lambda hooks: end if hooks._handles_sigterm else None, waited_seconds=waited_seconds)

    def _on_exit(self) -> None:
        if os.getpid() == self._pid:
            _end_all(ExitHooks._observed_end)

    def _observed_end(self) -> ProcessEnd:
        # A child of multiprocessing runs its finalizers while it handles the exception that ends it.
        error = sys.exc_info()[1]
        if error is None and not _is_interactive() and _last_error() is not self._error_before:
            # Uncaught, and printed by another hook, which did not call ours.
            error = _last_error()
        if error is not None:
            return ProcessEnd.by_exception(error)
        return ProcessEnd(EndReason.EXITED) if self._exit_status is None else ProcessEnd.by_exit(*self._exit_status)


_ACTIVE: list[ExitHooks] = []
"""Those of this process; a forked child also has its parent's, of another pid."""


def _end_all(end_of: Callable[[ExitHooks], ProcessEnd | None], *, waited_seconds: float = 0.0) -> None:
    """Finish the runs of this process, newest first. Args: end_of: None for hooks that are not told."""
    active = [hooks for hooks in reversed(_ACTIVE) if hooks._pid == os.getpid()]
    ends = [(hooks, end_of(hooks)) for hooks in active]
    for wait in [hooks._on_end(end, waited_seconds) for hooks, end in ends if end is not None]:
        wait()


def _last_error() -> BaseException | None:
    """Return the newest exception that reached the interpreter; it is kept for debuggers."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1")
