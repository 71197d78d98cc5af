"""Hook a framework's methods where they take what the hooks rely on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

from trmon_client.integrations.method_hooks import Hook, hook_method, installed_version, unfit_methods
from trmon_client.safety.warn_once import WarnOnce

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
