"""One browser and one service with two recorded runs, shared by all tests of the page, and diagnoses without a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, FloatRect, Locator, Page, expect

from tests.fixtures import browser
from tests.fixtures.browser import Visit
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.ports import free_port
from tests.fixtures.running_service import DAY_SECONDS, ILL, WELL, RecordedRuns, Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt
from tests.fixtures.waiting import eventually
from tests.guards.page import STANDARDS
from tests.store.builders import append, start_intake
from trmon.domain.findings.judge import Evidence
from trmon.domain.findings.verdict import PREDICTION
from trmon_client.api.answers import convert_answer, encode_answer
from trmon_client.api.diagnosis import DiagnosisInfo, FindingInfo

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
    """Return a function that opens a tab: on the service of the test's `run`, of the replayed runs, or another URL.

    At the end of the test, no tab may have logged an error or contacted another host. Request your own service first.
    """
    tabs: list[Visit] = []

    def open_tab(url: str | None = None, *, size: tuple[int, int] = browser.WIDE, theme: str = "light") -> Visit:
        own = "shared_service" if "run" in request.fixturenames else "replayed"
        here = url or request.getfixturevalue(own).url
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


def violations(page: Page) -> list[str]:
    """Return each violation with the elements that have it."""
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": STANDARDS}}).response["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


def wait_until_drawn(page: Page) -> None:
    """Charts are drawn after the words, and what is read later takes the place of its shape."""
    expect(page.locator("main h1").first).to_be_visible()
    if any(part in page.url for part in ("/runs/", "/compare")):
        expect(page.locator(".charts canvas").first).to_be_visible()
        expect(page.locator("main .bone")).to_have_count(0)


def box_of(shown: Locator) -> FloatRect:
    """Return where an element is on the screen."""
    box = shown.bounding_box()
    assert box is not None
    return box


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


@pytest.fixture(scope="session")
def corrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a run on which one alert fires, made once and copied."""
    service = ThreadedService(tmp_path_factory.mktemp("corrupted"))
    with service.client() as client:
        corrupt(client, MATH)
    service.stop()
    return service.data_dir / "trmon.sqlite"


@pytest.fixture
def paging(corrupted: Path, tmp_path: Path, serve: Serve, port: int) -> ThreadedService:
    """A service on which one alert fires; that its run has no trainer does not count as a stall."""
    folder = tmp_path / "data-0"
    folder.mkdir()
    shutil.copy(corrupted, folder)
    return serve(port=port, stall_floor_seconds=DAY_SECONDS)


MISMATCH = {
    "finding": "engine_mismatch",
    "clause": "kl_k3",
    "title": "engine mismatch",
    "meaning": "They differ.",
    "severity": "warn",
    "headline": "engine mismatch since step 62 (last good step 61)",
    "chart": "total_kl_k3",
    "since_step": 62,
    "since_attempt": 1,
    "found_step": 66,
    "last_good_step": 61,
    "last_good_attempt": 1,
    "evidence": (),
}
NOTHING = {"step": 99, "attempt": 1, "rows": 100, "sentence": "healthy", "findings": (), "over": (), "outside": ()}


def evidence(measure: str, signal: str, *, value: float, limit: float, now: float | None = None) -> dict[str, Any]:
    """Return a comparison that holds; `now` is the signal's newest value, by default `value`."""
    words = f"{measure} is {value:g} (limit {limit:g})"
    newest = value if now is None else now
    return {
        "measure": measure,
        "signal": signal,
        "words": words,
        "value": value,
        "side": ">",
        "limit": limit,
        "now": newest,
        "is_on_scale": Evidence(
            measure=measure, signal=signal, value=value, side=">", limit=limit, now=newest
        ).is_on_scale,
    }


def finding(**given: Any) -> dict[str, Any]:
    """Return a finding that stands since step 62, with other fields as given."""
    return _answer(MISMATCH | given, FindingInfo)


def diagnosis(*findings: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Return a diagnosis; the first of the findings leads it, unless `word` is given."""
    lead = findings[0] if findings else {"since_step": None, "last_good_step": None}
    known = {"word": "finding" if findings else "healthy", "remedy": None, "findings": findings}
    since = {"since_step": lead["since_step"], "last_good_step": lead["last_good_step"]}
    fields = NOTHING | known | since | given
    if findings and fields["word"] == "finding" and lead["finding"] != PREDICTION:
        good = fields["since_step"] if fields["last_good_step"] is None else fields["last_good_step"]
        fields["interval"] = (good, lead["found_step"])
    return _answer(fields, DiagnosisInfo)


def _answer(fields: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Return fields as JSON of the answer, with its defaults."""
    answer: dict[str, Any] = json.loads(encode_answer(convert_answer(fields, kind)))
    return answer
