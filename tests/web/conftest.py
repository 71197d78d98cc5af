"""One service with two recorded runs, shared by the tests of a module, and a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.fixtures import browser
from tests.fixtures.browser import Visit
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.replay import ReplayedRun, replaying
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt
from tests.store.builders import append, start_intake

ILL = ReplayedRun("stale-8b", "stale", tags=("dapo",))
WELL = ReplayedRun("healthy-8b", "healthy", owner="ben", tags=("grpo",))

Visiting = Callable[..., Visit]
Evaluate = Callable[[str], Any]

# Generous: a busy machine is not a failure.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """Return a service with an ill run and a healthy run, both still running.

    Tests of other modules, which may run between two of the page, end all monitors of their process.
    """
    service = ThreadedService(tmp_path_factory.mktemp("page") / "data")
    with service.client() as client, replaying(client, WELL, ILL):
        yield service
    service.stop()


def service_of_started_runs(folder: Path, *keys: tuple[str, str]) -> ThreadedService:
    """Return a service with runs, by project and name, that have started."""
    store = open_migrated_store(folder / "trmon.sqlite")
    append(store, *(start_intake(*key) for key in keys))
    store.close()
    return ThreadedService(folder)


@pytest.fixture
def visiting(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Visiting]:
    """Return a function that opens a tab, on the service with the replayed runs or on another URL.

    At the end of the test, no tab may have logged an error or contacted another host. Request your own service first.
    """
    tabs: list[Visit] = []

    def open_tab(url: str | None = None, *, size: tuple[int, int] = browser.WIDE, theme: str = "light") -> Visit:
        here = url or request.getfixturevalue("replayed").url
        tabs.append(browser.visit(chromium, here, size=size, theme=theme))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        browser.leave(tab)
    assert [(tab.complaints, tab.strangers) for tab in tabs] == [([], [])] * len(tabs)


@pytest.fixture
def evaluate(visiting: Visiting) -> Evaluate:
    """Return a function that runs a function of the page's modules, in a tab without a view."""
    return lambda script: visiting().go("/docs").evaluate(script)


@pytest.fixture
def paging(service: ThreadedService) -> ThreadedService:
    """Return a service on which one alert fires."""
    with service.client() as client:
        corrupt(client, MATH)
    return service
