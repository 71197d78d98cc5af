"""The client of trmon: two lines in a reinforcement-learning trainer report its off-policy drift."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trmon_client.config.version import __version__

if TYPE_CHECKING:
    from trmon_client.batch_decision import BatchDecision
    from trmon_client.monitor import Monitor, init

__all__ = ["BatchDecision", "Monitor", "__version__", "init"]

_MODULES = {
    "BatchDecision": "trmon_client.batch_decision",
    "Monitor": "trmon_client.monitor",
    "init": "trmon_client.monitor",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the service imports the core and must not load the rest."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
