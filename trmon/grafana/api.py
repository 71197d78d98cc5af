"""Grafana's API through grafana-client: checked when opened, with its errors as domain errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from trmon.domain.errors import Conflict, Forbidden, InvalidInput, NotReady, Unauthenticated, needs_package

if TYPE_CHECKING:
    from grafana_client.api import GrafanaApi

OLDEST = 10
"""The first major version that reads our dashboards."""
TIMEOUT_SECONDS = 30.0
NOT_FOUND = 404

T = TypeVar("T")


@contextmanager
def grafana(url: str, *, token: str) -> Iterator[GrafanaApi]:
    """Yield the API of a Grafana that is reachable, accepts the token and is new enough.

    Errors: NotReady without grafana-client or if no suitable Grafana answers; InvalidInput for a malformed URL;
    Unauthenticated, Forbidden and Conflict as Grafana answers.
    """
    with needs_package("grafana"):
        from grafana_client.api import GrafanaApi
    if not url.startswith(("http://", "https://")):
        raise InvalidInput("--url", f"must begin with http:// or https://, not {url!r}")
    try:
        is_one = urlsplit(url).hostname and urlsplit(url).port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise InvalidInput("--url", f"must be a URL such as http://host:port, not {url!r}")
    with _told_as_ours(url):
        api = GrafanaApi.from_url(f"{url.rstrip('/')}/", credential=token, timeout=TIMEOUT_SECONDS)
        major = (api.version or "").partition(".")[0]
        if not major.isdigit():
            raise NotReady(f"{url} does not name a Grafana version; pass the URL of Grafana itself by --url")
        if int(major) < OLDEST:
            raise NotReady(f"{url} is Grafana {api.version}; the dashboards need {OLDEST}.0 or later")
        yield api


def if_there(read: Callable[[], T]) -> T | None:
    """Return the result of a call, None if Grafana answers 404."""
    from grafana_client.client import GrafanaClientError

    try:
        return read()
    except GrafanaClientError as error:
        if error.status_code != NOT_FOUND:
            raise
        return None


@contextmanager
def _told_as_ours(url: str) -> Iterator[None]:
    from grafana_client.client import GrafanaClientError, GrafanaException
    from niquests.exceptions import JSONDecodeError, RequestException

    try:
        yield
    except GrafanaClientError as error:
        raise _refusal(error.status_code, error.response, url=url) from error
    except (JSONDecodeError, AttributeError) as error:
        raise NotReady(f"{url} does not answer like Grafana; pass the URL of Grafana itself by --url") from error
    except (RequestException, GrafanaException, OSError) as error:
        raise NotReady(f"no Grafana answers at {url}: {error}") from error


def _refusal(status: int, response: object, *, url: str) -> Exception:
    said = response.get("message", response) if isinstance(response, dict) else response
    if status == 401:
        return Unauthenticated(f"{url} does not know the token ({said}); make one for a service account that is Editor")
    if status == 403:
        return Forbidden(f"the token may not do this at {url} ({said}); dashboards need Editor")
    if status == NOT_FOUND:
        return NotReady(f"{url} has no API of Grafana's ({said}); pass the URL of Grafana itself by --url")
    return Conflict(f"{url} refused with {status}: {said}")
