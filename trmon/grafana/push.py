"""The shipped dashboards, and their push to a Grafana through its API; what is current is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
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


Dashboard = dict[str, Any]
FOLDER_UID = "trmon"
FOLDER_TITLE = "trmon"
OF_GRAFANA = ("id", "version")
"""Fields that Grafana adds to a dashboard when it saves it."""


def shipped() -> list[Dashboard]:
    """Return every dashboard by its file name."""
    installed = files("trmon.grafana") / "dashboards"
    folder: Traversable = installed if installed.is_dir() else Path(__file__).parents[2] / "dashboards"
    found = sorted((path for path in folder.iterdir() if path.name.endswith(".json")), key=lambda path: path.name)
    return [json.loads(path.read_text("utf-8")) for path in found]


class Change(Enum):
    """The outcome of one push."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Pushed:
    """One object in Grafana and its outcome; `path` is its address in the browser."""

    kind: str
    title: str
    change: Change
    path: str


def push(api: GrafanaApi, dashboards: list[Dashboard]) -> Iterator[Pushed]:
    """Create or update every object in order and yield each outcome."""
    yield _folder(api)
    for dashboard in dashboards:
        found = if_there(partial(api.dashboard.get_dashboard, dashboard["uid"]))
        change = Change.CREATED
        if found is not None:
            saved = {name: value for name, value in found["dashboard"].items() if name not in OF_GRAFANA}
            is_same = saved == dashboard and found["meta"].get("folderUid") == FOLDER_UID
            change = Change.UNCHANGED if is_same else Change.UPDATED
        if change is not Change.UNCHANGED:
            message = {"message": "trmon grafana push", "overwrite": True}
            api.dashboard.update_dashboard({"dashboard": dashboard, "folderUid": FOLDER_UID, **message})
        yield Pushed("dashboard", dashboard["title"], change, f"/d/{dashboard['uid']}")


def _folder(api: GrafanaApi) -> Pushed:
    change = Change.UNCHANGED
    if if_there(lambda: api.folder.get_folder(FOLDER_UID)) is None:
        api.folder.create_folder(FOLDER_TITLE, uid=FOLDER_UID)
        change = Change.CREATED
    return Pushed("folder", FOLDER_TITLE, change, f"/dashboards/f/{FOLDER_UID}")
