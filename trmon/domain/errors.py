"""The errors that the service raises on purpose.

TrmonError
├── InvalidInput          a field of the request is invalid; names the field
│   └── UnreadParameter   a query parameter that the route does not read, or one of its single ones repeated
├── NotFound              does not exist, or this token may not see it
├── Conflict              the same identity already has another payload or state
├── Unauthenticated       no token, or an unknown, revoked or expired one
├── Forbidden             the token lacks the scope or access to the project
├── QuotaExceeded         the project has reached the limit of its stored runs or bytes
├── TooLarge              the body exceeds the limit, before or after decompression
├── UnsupportedMedia      a content type or encoding that the service does not support
├── Damaged               a stored report, notice or row cannot be decoded
├── Fenced                another worker owns the run now
├── Overloaded            the service is overloaded; says when to retry
└── NotReady              the service is starting or shutting down
    ├── DatabaseAway      the server of the database cannot be reached now
    └── LakeUnavailable   the run was moved to a lake that cannot be read now
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


class TrmonError(Exception):
    """The base class of all errors."""


class InvalidInput(TrmonError):
    """A field of the request is invalid."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class UnreadParameter(InvalidInput):
    """The route does not read this query parameter, or reads one value of it and got several."""


class NotFound(TrmonError):
    """The object does not exist, or the caller may not see it."""

    def __init__(self, kind: str, name: str, *, nearest: Sequence[str] = ()) -> None:
        """Args: nearest: similar names that the caller may see."""
        super().__init__(f"no {kind} {name!r}{_suggestion(nearest)}")
        self.nearest = nearest


class Conflict(TrmonError):
    """The same identity already has another payload or state."""


class Unauthenticated(TrmonError):
    """No token was given, or it is unknown, revoked or expired."""


class Forbidden(TrmonError):
    """The token lacks the scope or access to the project."""


class QuotaExceeded(TrmonError):
    """The project has reached the limit of its stored runs or report bytes."""


class TooLarge(TrmonError):
    """The body exceeds the limit, before or after decompression."""


class UnsupportedMedia(TrmonError):
    """A content type or encoding that the service does not support."""


class Damaged(TrmonError, ValueError):
    """A stored report, notice or row cannot be decoded; it is quarantined, since a retry would fail again."""


class Fenced(TrmonError):
    """Another worker owns the run now; the results of this one must not be written."""


class Overloaded(TrmonError):
    """The service is overloaded; retry after `retry_after_seconds`."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NotReady(TrmonError):
    """The service is starting or shutting down, or a part that the request needs is not available."""


class DatabaseAway(NotReady):
    """The server of the database cannot be reached now, or is starting; a retry may succeed."""


class LakeUnavailable(NotReady):
    """The rows of a run are in the lake, which cannot be read now; runs in the database are not affected."""


PASSING = (NotReady, Overloaded, Fenced, OSError)
"""The errors that what is processed has no part in: a later attempt may succeed."""


@contextmanager
def needs_package(extra: str, *, said: str = "this needs", error: type[TrmonError] = NotReady) -> Iterator[None]:
    """Turn a package that the block imports in vain into an error, which names the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise error(f"{said} {missing.name}; pip install 'trmon[{extra}]' brings it") from missing


def nearest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that are most similar to a name, two at most; none if no name is similar."""
    return tuple(get_close_matches(name[:128], list(known), n=2))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of similar known names, to follow an error text; empty if no name is similar."""
    return _suggestion(nearest_names(name, known))


def _suggestion(near: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""
