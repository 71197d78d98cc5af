"""The address of a database, as it is given."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from trmon.domain.model.errors import NotReady


def parse_database_url(url: str | URL) -> URL:
    """Return a URL in its parts. Errors: NotReady, which does not repeat it: it may hold a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise NotReady(
            "TRMON_DATABASE_URL cannot be read: expected sqlite:///path/to/trmon.db or postgresql://user@host:5432/db"
        ) from error
