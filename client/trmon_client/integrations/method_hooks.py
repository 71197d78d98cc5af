"""Wrap methods of one object, after checking that they take the parameters that the wrappers rely on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

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
