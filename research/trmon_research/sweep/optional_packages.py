"""The optional packages that sweeps and experiments on their runs need."""

from __future__ import annotations

from importlib import import_module

from trmon.domain.errors import NotReady

PACKAGES = ("pyarrow", "ray")


def check_packages() -> None:
    """Errors: NotReady naming a package that is not installed."""
    try:
        for name in PACKAGES:
            import_module(name)
    except ModuleNotFoundError as error:
        raise NotReady(f"a sweep needs {error.name}; `pip install ./research` brings it") from error
