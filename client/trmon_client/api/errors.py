"""The errors of `Service`; each message says what to do.

ServiceError             also an OSError, as the errors of other HTTP clients are
├── ServiceUnreachable   no service answers at the URL
├── ServiceBusy          it is starting, overloaded or limits the rate of requests; says when to retry
├── AccessDenied         no token, an unknown one, or one without the scope or the project
├── NotFoundError        no such run, or this token may not see it
├── RequestRefused       a field is invalid, or contradicts what is stored
└── IncompatibleService  the answer is not from trmon, or from a version that this client does not know
"""

from __future__ import annotations


class ServiceError(OSError):
    """A request to a service failed; `status` is that of the HTTP answer, None without one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServiceUnreachable(ServiceError):
    """No service answers at the URL."""


class ServiceBusy(ServiceError):
    """The service cannot answer now; retry after `retry_after_seconds`."""

    def __init__(self, message: str, *, status: int, retry_after_seconds: float) -> None:
        super().__init__(message, status=status)
        self.retry_after_seconds = retry_after_seconds


class AccessDenied(ServiceError):
    """The token is missing, unknown, expired, or lacks the scope or the project."""


class NotFoundError(ServiceError):
    """There is no such thing, or the token may not see it."""


class RequestRefused(ServiceError):
    """The request is invalid, or contradicts what is stored."""


class IncompatibleService(ServiceError):
    """The answer is not from trmon, or from a version that this client does not know."""
