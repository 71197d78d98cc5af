"""Every error the service raises on purpose.

TrmonError
├── InvalidInput          a field of the request is wrong; names it
├── NotFound              no such thing, or none this token may see
├── Conflict              another payload or state stands under the same identity
├── Unauthenticated       no token, or none that is known and alive
├── Forbidden             the token lacks the scope or the project
├── TooLarge              a body beyond the cap, also after decompression
├── UnsupportedMedia      a content type or encoding the service does not read
├── Damaged               a stored report or notice cannot be decoded
├── Fenced                the run belongs to another worker by now
├── Overloaded            try again later; says when
└── NotReady              the service cannot do this yet, or no longer
"""

from __future__ import annotations


class TrmonError(Exception):
    """The root of the tree."""


class InvalidInput(TrmonError):
    """A field of the request is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class NotFound(TrmonError):
    """No such thing, or none that the caller may see."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"no {kind} {name!r}")
        self.kind = kind
        self.name = name


class Conflict(TrmonError):
    """Another payload or state stands under the same identity."""


class Unauthenticated(TrmonError):
    """No token was given, or none that is known and alive."""


class Forbidden(TrmonError):
    """The token lacks the scope or the project."""


class TooLarge(TrmonError):
    """A body beyond the cap, also after decompression."""


class UnsupportedMedia(TrmonError):
    """A content type or encoding that the service does not read."""


class Damaged(TrmonError):
    """A stored report or notice cannot be decoded: it is set aside, since a retry would fail in the same way."""


class Fenced(TrmonError):
    """The run belongs to another worker by now; what this one made of it must not be written."""


class Overloaded(TrmonError):
    """The service has more to do than it can; `retry_after_seconds` says when to try again."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NotReady(TrmonError):
    """The service cannot do this yet, or no longer."""
