"""Launches of compiled kernels: at once, or after a thread has compiled them, while the caller does without."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from trmon_client.core.arrays import is_tensor

_state = threading.local()


class StillCompiling(Exception):
    """A thread compiles or imports what is needed; the caller does without it until then."""


@contextmanager
def compiling_elsewhere() -> Iterator[None]:
    """Let launches and imports of kernels within this context raise `StillCompiling` in place of taking seconds."""
    _state.is_elsewhere = True
    try:
        yield
    finally:
        _state.is_elsewhere = False


@dataclass(frozen=True, slots=True)
class StandIn:
    """What a kernel is compiled for of a tensor, without its memory: the dtype, and whether its address is aligned."""

    dtype: Any
    address: int

    @classmethod
    def of(cls, argument: Any) -> Any:
        """Return the stand-in of a tensor; other arguments as they are."""
        return cls(argument.dtype, argument.data_ptr() % ALIGNMENT) if is_tensor(argument) else argument

    def data_ptr(self) -> int:
        """Return an address with the alignment of the tensor's."""
        return self.address


ALIGNMENT = 16
"""A kernel is compiled anew for numbers and addresses that are multiples of it, and for numbers of 1."""


class BackgroundTasks:
    """Tasks that run once each, by key, in threads; the interpreter waits for them at its end, some seconds at most."""

    def __init__(self) -> None:
        self._outcomes: dict[Any, object] = {}

    def done(self, key: Any, task: Callable[[], object]) -> None:
        """Return once the task has run; else start it. Errors: StillCompiling until then, what the task raised after.

        A process that was forked in the middle of a task never has its result, and does without.
        """
        running = object()
        # One operation, without a lock, which a fork could leave locked.
        outcome = self._outcomes.setdefault(key, running)
        if outcome is running:
            # Not a daemon: one that the end of the interpreter stops within a compiler would abort the process.
            thread = threading.Thread(target=self._run, args=(key, task), name="trmon-compiler", daemon=False)
            try:
                thread.start()
            except RuntimeError as error:  # the system cannot start another thread
                outcome = self._outcomes[key] = error
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            raise StillCompiling

    def _run(self, key: Any, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001  whatever a compiler raises ends neither process nor thread
            is_plain = isinstance(error, Exception)
            self._outcomes[key] = error if is_plain else RuntimeError(f"{type(error).__name__}: {error}")
        else:
            self._outcomes[key] = None


_TASKS = BackgroundTasks()
_KERNELS: dict[int, Any] = {}


def imported(name: str) -> ModuleType:
    """Return a module that imports Triton. Errors: StillCompiling within `compiling_elsewhere` until it is imported."""
    found = sys.modules.get(name)
    is_whole = found is not None and not getattr(found.__spec__, "_initializing", False)
    if getattr(_state, "is_elsewhere", False) and not is_whole:
        _TASKS.done(name, lambda: importlib.import_module(name))
    return importlib.import_module(name)


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    *,
    on_device: Callable[[], Any],
) -> None:
    """Launch a kernel of Triton.

    Args: options: compile-time constants and options of the compiler; on_device: returns a context in which launches
        go to the arguments' device.
    Errors: StillCompiling within `compiling_elsewhere` until a thread has compiled it for arguments of this kind.
    """
    if getattr(_state, "is_elsewhere", False):
        stand_ins = [StandIn.of(argument) for argument in arguments]
        kind = tuple(one if isinstance(one, StandIn) else _kind_of(one) for one in stand_ins)
        device = next(str(one.device) for one in arguments if is_tensor(one))
        # Kept, so that no other kernel gets its id; to hash it Triton would hash its source.
        _KERNELS[id(kernel)] = kernel
        key = id(kernel), device, kind, tuple(options.items())

        def compile_it() -> None:
            with on_device():
                compiled = kernel.warmup(*stand_ins, grid=grid, **options)
                # Loads it on the device, too, without a launch.
                compiled[(*grid, 1, 1)[:3]]

        _TASKS.done(key, compile_it)
    with on_device():
        kernel[grid](*arguments, **options)


def _kind_of(number: int) -> tuple[bool, bool, bool]:
    """Return what a kernel is compiled for of an integer; at least as fine as Triton's kinds."""
    return number == 1, number % ALIGNMENT == 0, number >= 1 << 31
