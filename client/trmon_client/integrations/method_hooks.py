"""Wrap methods of one object, after checking that they take the parameters that the wrappers rely on."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from trmon_client.error_guard import WarnOnce
from trmon_client.monitor import Monitor

Hook = Callable[..., Any]
"""Takes the wrapped method, then its arguments; calls it once and returns what the caller gets."""


def unfit_methods(owner: object, expected: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the methods that are absent, or whose first parameters have other names, as text for a warning."""
    return [
        f"{name}({', '.join(parameters)})"
        for name, parameters in expected.items()
        if not _takes(getattr(owner, name, None), parameters)
    ]


def hook_method(owner: object, name: str, hook: Hook) -> None:
    """Let calls of one object's method go through `hook`, in place of an earlier hook; other objects keep theirs."""
    method = getattr(owner, name)
    original = getattr(method, "hooked_method", method)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    hooked.hooked_method = original  # type: ignore[attr-defined]
    setattr(owner, name, hooked)


def pausing_hook(monitor: Callable[[], Monitor | None], reason: str) -> Hook:
    """Return a hook that tells the service of a pause before the method runs. Args: monitor: None outside of a run."""

    def pause(original: Hook, *args: Any, **kwargs: Any) -> Any:
        if (current := monitor()) is not None:
            current.pause(reason)
        return original(*args, **kwargs)

    return pause


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, "unknown" if it is not installed as one."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _takes(method: Any, parameters: Sequence[str]) -> bool:
    return callable(method) and [*inspect.signature(method).parameters][: len(parameters)] == [*parameters]


_WARN_ONCE = WarnOnce()


def hook_fitting(
    owner: object, expected: Mapping[str, Sequence[str]], by_name: Mapping[str, Hook], *, framework: str
) -> bool:
    """Wrap the methods of an object, a class or a module and return True, or warn once of those that do not fit.

    Args: expected: the methods' first parameters by name. by_name: wrappers, of what is expected or more.
        framework: its distribution.
    """
    if unfit := unfit_methods(owner, expected):
        what = f"{_name_of(owner)} of {framework} {installed_version(framework)}"
        warn_once(what, f"{what} lacks {', '.join(unfit)}: trmon does not report from it")
        return False
    for name in expected.keys() & by_name.keys():
        hook_method(owner, name, by_name[name])
    return True


def warn_once(key: str, text: str) -> None:
    """Print a warning on stderr, once per process."""
    _WARN_ONCE.warn(key, text)


def _name_of(owner: object) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    kind = owner if isinstance(owner, type) else type(owner)
    return f"{kind.__module__}.{kind.__qualname__}"


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call `act` with a module as soon as it is imported, or at once if it is."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AwaitedModule(name, act))


class _AwaitedModule(MetaPathFinder):
    """Finds nothing itself: it lets the module's own loader call `act` when it has run."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(self, fullname: str, *_where: object) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        if (spec := find_spec(fullname)) is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_act(module: ModuleType) -> None:
                run(module)
                self._act(module)

            spec.loader.exec_module = run_and_act  # type: ignore[method-assign]
        return spec
