"""Do something when a module is imported that this process may never import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


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
