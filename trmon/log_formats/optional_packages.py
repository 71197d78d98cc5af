"""Packages that only some formats need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trmon.domain.model.errors import NotReady


@contextmanager
def packages_required(what: str) -> Iterator[None]:
    """Tell what to install if a package is missing. Errors: NotReady."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotReady(f"{what} need {error.name}; install it with pip install 'trmon[logs]'") from error
