"""Hook verl's functions where they take what the hooks rely on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trmon_client.integrations.method_hooks import Hook, hook_method, installed_version, unfit_methods
from trmon_client.safety.warn_once import WarnOnce

_WARN_ONCE = WarnOnce()


def hook_fitting(owner: object, expected: Mapping[str, Sequence[str]], by_name: Mapping[str, Hook]) -> bool:
    """Wrap the functions of a class or a module and return True, or warn once of those that do not fit.

    Args: expected: the functions' first parameters by name. by_name: their wrappers.
    """
    if unfit := unfit_methods(owner, expected):
        where = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else vars(owner)["__name__"]
        warn_once(
            where,
            f"{where} of verl {installed_version('verl')} lacks {', '.join(unfit)}: trmon does not report from it",
        )
        return False
    for name in expected:
        hook_method(owner, name, by_name[name])
    return True


def warn_once(key: str, text: str) -> None:
    """Print a warning on stderr, once per process."""
    _WARN_ONCE.warn(key, text)
