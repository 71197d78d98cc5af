"""Tells a monitor how its process ends: by an uncaught exception, an exit code, SIGTERM or the interpreter's end."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from trmon_client.core.wire import EndReason
from trmon_client.process.process_end import ProcessEnd

BLOCKED_SECONDS = 0.5
"""How long the main thread may take to run the handler before another thread takes its place.

Python runs handlers in the main thread, between two of its instructions: never while it waits in a native call, such
as a collective operation whose peer is gone.
"""

STOP = b"\0"
"""No signal has this number."""
STOP_SECONDS = 1.0

_CREDENTIALS = struct.Struct("3i")
"""The process, user and group ids that Linux attaches to a message."""


class SigtermHandler:
    """The process' handler of SIGTERM; installed for the first callback, if the main thread adds it, over the default.

    Callbacks get the seconds that the process has waited since the signal; they must return soon and raise nothing.
    After them the default action is restored and the signal raised again, so that the exit status is that of SIGTERM.
    A forked child has the default action from its start.
    """

    def __init__(self) -> None:
        self._callbacks: list[Callable[[float], None]] = []
        self._pid = 0
        self._is_reset_in_children = False
        self._has_run = threading.Event()
        self._watch: _SignalWatch | None = None
        self._forking = threading.local()

    def add(self, callback: Callable[[float], None]) -> None:
        """Call a function on SIGTERM; nothing happens in another thread than the main one, or over another handler."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._pid != os.getpid():
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                return
            self._install()
        self._callbacks.append(callback)

    def remove(self, callback: Callable[[float], None]) -> None:
        """Stop calling a function; after the last one the default action is restored."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)
        if not self._callbacks and self._pid == os.getpid():
            self._uninstall()

    def _install(self) -> None:
        self._callbacks, self._pid = [], os.getpid()
        self._has_run.clear()
        signal.signal(signal.SIGTERM, self._on_signal)
        self._watch = _SignalWatch.started(self._on_watched)
        # Once: a registration cannot be undone.
        if not self._is_reset_in_children and hasattr(os, "register_at_fork"):
            self._is_reset_in_children = True
            os.register_at_fork(
                before=self._hold_signal, after_in_parent=self._release_signal, after_in_child=self._reset_in_child
            )

    def _uninstall(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may; without callbacks the handler only raises the signal again
        self._pid = 0
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _hold_signal(self) -> None:
        """Block SIGTERM while the process forks.

        The interpreter forgets in the child what reaches it before it is set up, so that a child that is terminated at
        once would live on.
        """
        if self._pid == os.getpid():
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _release_signal(self) -> None:
        """Restore the signal mask after a fork; a signal that has arrived since then is delivered now."""
        mask = getattr(self._forking, "mask", None)
        if mask is not None:
            self._forking.mask = None
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _reset_in_child(self) -> None:
        """Restore the default action in a forked child: its parent's monitors are not its own."""
        try:
            if self._pid != 0:
                self._callbacks = []
                watch, self._watch = self._watch, None
                with suppress(ValueError):
                    if watch is not None:
                        watch.detach()
                        watch.close()
                    if signal.getsignal(signal.SIGTERM) == self._on_signal:
                        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        finally:
            self._release_signal()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._has_run.set()
        # A second signal ends the process at once.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._run_callbacks(waited_seconds=0.0)
        os.kill(os.getpid(), signal.SIGTERM)

    def _on_watched(self) -> None:
        """Take the main thread's place if it does not run the handler; a handler of the trainer is left alone."""
        if signal.getsignal(signal.SIGTERM) != self._on_signal:
            return
        if not self._has_run.wait(BLOCKED_SECONDS):
            self._run_callbacks(waited_seconds=BLOCKED_SECONDS)
            # Python's own function may be called in the main thread only; the watch has imported ctypes.
            sys.modules["ctypes"].CDLL(None).signal(int(signal.SIGTERM), None)
            os.kill(os.getpid(), signal.SIGTERM)

    def _run_callbacks(self, *, waited_seconds: float) -> None:
        if self._pid == os.getpid():
            for callback in tuple(self._callbacks):
                callback(waited_seconds)


SIGTERM_HANDLER = SigtermHandler()
"""The one handler of this process."""


class _SignalWatch:
    """A thread that learns of SIGTERM at once, whatever the main thread does; Linux only.

    The interpreter writes each signal's number to a socket. Linux names the process that wrote it: a forked child has
    the same socket, and its signals are not ours.
    """

    def __init__(self, reader: socket.socket, writer: socket.socket, on_sigterm: Callable[[], None]) -> None:
        self._reader = reader
        self._writer = writer
        self._on_sigterm = on_sigterm
        self._thread = threading.Thread(target=self._run, name="trmon-sigterm", daemon=True)

    @classmethod
    def started(cls, on_sigterm: Callable[[], None]) -> _SignalWatch | None:
        """Return a started watch; None where it is not possible, or another library watches signals."""
        credentials = getattr(socket, "SO_PASSCRED", None)
        if credentials is None:
            return None
        try:
            import ctypes  # noqa: F401  in the main thread: an import by another may hang a fork

            reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            reader.setsockopt(socket.SOL_SOCKET, credentials, 1)
            writer.setblocking(False)
            watch = cls(reader, writer, on_sigterm)
            previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            if previous != -1:
                signal.set_wakeup_fd(previous)
                watch.close()
                return None
            watch._thread.start()
        except (ImportError, OSError, RuntimeError, ValueError):
            return None
        return watch

    def stop(self) -> None:
        """Stop watching and end the thread."""
        self.detach()
        with suppress(OSError):
            self._writer.send(STOP)
        self._thread.join(STOP_SECONDS)
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        self._writer.close()
        self._reader.close()

    def detach(self) -> None:
        """Stop the interpreter's writing, unless another library's socket has taken the place of ours."""
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer.fileno()):
            signal.set_wakeup_fd(current)

    def _run(self) -> None:
        pid = os.getpid()
        while True:
            try:
                data, attached, _, _ = self._reader.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:
                return
            senders = [_CREDENTIALS.unpack(part[: _CREDENTIALS.size])[0] for _, _, part in attached]
            if senders != [pid]:
                continue
            if data == STOP:
                return
            if data[0] == signal.SIGTERM:
                self._on_sigterm()


OnEnd = Callable[[ProcessEnd, float], Callable[[], None]]
"""Begins to finish a run, given for how many seconds the process has waited already, and returns what waits for it."""


class ExitHooks:
    """Calls `on_end` once, when its own process ends; os._exit and SIGKILL cannot be observed.

    All monitors of a process begin to finish before the first is waited for, so that they share the time of one.
    Args: handles_sigterm: install a handler for SIGTERM too, unless there is one.
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
        """Forget a call of `sys.exit`: the trainer continues, so it was caught."""
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
            # An interactive interpreter continues after an exception.
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
    """Finish the runs of this process, newest first. Args: end_of: None for hooks that do not know it."""
    active = [hooks for hooks in reversed(_ACTIVE) if hooks._pid == os.getpid()]
    ends = [(hooks, end_of(hooks)) for hooks in active]
    for wait in [hooks._on_end(end, waited_seconds) for hooks, end in ends if end is not None]:
        wait()


def _last_error() -> BaseException | None:
    """Return the newest exception that reached the interpreter; it is kept for debuggers."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1")
