"""One browser, and one service with two recorded runs, shared by all tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.fixtures import browser
from tests.fixtures.browser import Visit
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.ports import free_port
from tests.fixtures.running_service import ILL, WELL, RecordedRuns, Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt
from tests.fixtures.waiting import eventually
from tests.store.builders import append, start_intake

Visiting = Callable[..., Visit]
Reading = Callable[..., Visit]
Evaluate = Callable[..., Any]

# Generous: a busy machine is not a failure.
expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that open a tab say which server they need."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server("chromium"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser.chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def profile(chromium: Browser) -> Iterator[BrowserContext]:
    """A person's browser, whose tabs tests open: what it has loaded once need not be compiled again."""
    context = browser.new_profile(chromium)
    yield context
    context.close()


@pytest.fixture(scope="session")
def replayed(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """Return a service with an ill run and a healthy run, both still running, which tests leave as they are.

    Their newest steps are judged: no test sees the grace of the newest step end.
    """
    service = recorded.serve(recorded.running, tmp_path_factory.mktemp("page") / "data", grace_seconds=0.1)
    with service.client() as client:
        for run in (WELL, ILL):
            eventually(lambda run=run: client.get(f"/api/v1/runs/{run.key}").json()["status"], _is_judged)
    yield service
    service.stop()


def _is_judged(status: dict[str, Any]) -> bool:
    return bool(status["judged_step"] == status["step"])


def service_of_started_runs(folder: Path, *keys: tuple[str, str]) -> ThreadedService:
    """Return a service with runs, by project and name, that have started."""
    store = open_migrated_store(folder / "trmon.sqlite")
    append(store, *(start_intake(*key) for key in keys))
    store.close()
    return ThreadedService(folder)


@pytest.fixture
def visiting(profile: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Visiting]:
    """Return a function that opens a tab, on the service with the replayed runs or on another URL.

    At the end of the test, no tab may have logged an error or contacted another host. Request your own service first.
    """
    tabs: list[Visit] = []

    def open_tab(url: str | None = None, *, size: tuple[int, int] = browser.WIDE, theme: str = "light") -> Visit:
        here = url or request.getfixturevalue("replayed").url
        tabs.append(browser.open_tab(profile, here, size=size, theme=theme))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        browser.forget(tab)
    assert [(tab.complaints, tab.strangers) for tab in tabs] == [([], [])] * len(tabs)


@pytest.fixture(scope="module")
def tabs_of_file(profile: BrowserContext) -> Iterator[dict[str, Visit]]:
    """The tabs of the tests of a file that only read, by the URL of their service."""
    tabs: dict[str, Visit] = {}
    yield tabs
    for tab in tabs.values():
        browser.forget(tab)


@pytest.fixture
def reading(profile: BrowserContext, replayed: ThreadedService, tabs_of_file: dict[str, Visit]) -> Iterator[Reading]:
    """Return a function that shows an address of the replayed runs, or of another service, in a tab of the file.

    The page keeps its state in the address, so a test that only reads, or goes back to where it began, costs no load.
    """
    used: list[Visit] = []

    def read(path: str, url: str = replayed.url) -> Visit:
        if url not in tabs_of_file:
            tabs_of_file[url] = browser.open_tab(profile, url)
        tab = tabs_of_file[url]
        used.append(tab)
        if tab.page.url == f"{url}{path}":
            tab.page.evaluate("window.scrollTo(0, 0)")
            return tab
        if tab.page.url.startswith(url):
            tab.page.evaluate("localStorage.clear()")
        tab.go(path)
        return tab

    yield read
    for tab in used:
        tab.page.emulate_media(color_scheme="light", media="screen")
        tab.page.set_viewport_size({"width": browser.WIDE[0], "height": browser.WIDE[1]})
    assert [(tab.complaints, tab.strangers) for tab in used] == [([], [])] * len(used)


@pytest.fixture(scope="session")
def tab_without_view(profile: BrowserContext, replayed: ThreadedService) -> Iterator[Visit]:
    tab = browser.open_tab(profile, replayed.url)
    tab.go("/docs")
    yield tab
    browser.forget(tab)


@pytest.fixture
def evaluate(tab_without_view: Visit) -> Iterator[Evaluate]:
    """Return a function that runs a function of the page's modules, in a tab without a view."""
    yield tab_without_view.page.evaluate
    assert tab_without_view.complaints == []


def acknowledge(page: Page, button: str, *, who: str = "ana", note: str = "the node is gone") -> None:
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Who").fill(who)
    dialog.get_by_label("Note").fill(note)
    dialog.get_by_role("button", name="Acknowledge", exact=True).click()
    expect(dialog).to_have_count(0)


@pytest.fixture(scope="session")
def port() -> int:
    """The port of services that last for one test: of one address, the browser keeps the page's modules."""
    return free_port()


@pytest.fixture
def service(serve: Serve, port: int) -> ThreadedService:
    """A service with default settings."""
    return serve(port=port)


@pytest.fixture
def paging(service: ThreadedService) -> ThreadedService:
    """Return a service on which one alert fires."""
    with service.client() as client:
        corrupt(client, MATH)
    return service
