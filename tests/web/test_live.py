"""Live updates: a first run appears, a lost connection is shown, and no event is missed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, corrupt, send_step, train
from tests.web.conftest import Visiting
from trmon.domain.identity import RunKey

pytestmark = pytest.mark.server("chromium")

LOST_MS = 20_000
CODE = RunKey("code", "ppo")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ThreadedService]:
    """A service without runs."""
    service = ThreadedService(tmp_path / "data")
    yield service
    service.stop()


def restart(service: ThreadedService) -> None:
    """Restart on the same port, as systemd would."""
    service.start(port=httpx.URL(service.url).port)


def test_an_empty_service_shows_how_to_start_and_then_the_first_run(
    service: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(service.url).go("/")
    expect(page.locator("h1")).to_have_text("No runs yet")
    expect(page.locator("pre")).to_contain_text(f'url="{service.url}"')
    with service.client() as client:
        train(client, MATH)
    expect(page.locator("tbody a.run")).to_have_text(["grpo"], timeout=LOST_MS)


def test_a_run_appears_before_its_first_step_and_then_gets_charts(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
    with service.client() as client:
        train(client, MATH, steps=(), end=False)
        page = tab.go(f"/runs/{MATH}")
        expect(page.get_by_label("Diagnosis")).to_contain_text("Unknown: no step has closed yet")
        for step in range(3):
            send_step(client, MATH, step=step)
        expect(page.locator(".charts h2").first).to_have_text("Reward", timeout=LOST_MS)
    tab.expect_complaints("404")


def test_rerendering_keeps_the_keyboard_focus(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        corrupt(client, MATH)
        page = visiting(service.url).go(f"/runs/{MATH}")
        page.get_by_label("Diagnosis").get_by_text("If it persists").click()
        page.get_by_role("tab", name="TRL").focus()
        page.keyboard.press("Enter")
        for step in range(6, 9):
            send_step(client, MATH, step=step)
        expect(page.locator("header:not(.top)")).to_contain_text("step 8", timeout=LOST_MS)
        expect(page.get_by_role("tab", name="TRL")).to_be_focused()
        expect(page.get_by_role("tab", name="TRL")).to_have_attribute("aria-selected", "true")
        expect(page.get_by_label("Diagnosis")).to_contain_text("Print one response's tokens")


def test_an_open_run_updates_live(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH, steps=range(3), end=False)
        await_batches(client, n=2)
        page = visiting(service.url).go(f"/runs/{MATH}")
        for step in range(3, 8):
            send_step(client, MATH, step=step)
        expect(page.locator(".rangebar")).to_contain_text("steps 0 to 6", timeout=LOST_MS)
        expect(page.locator("header:not(.top)")).to_contain_text("step 7")


def test_a_lost_connection_is_shown_and_resumes_where_it_stopped(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
    places: list[str | None] = []
    tab.page.on(
        "request", lambda asked: places.append(asked.headers.get("last-event-id")) if "/events" in asked.url else None
    )
    with service.client() as client:
        train(client, MATH)
        page = tab.go("/")
        expect(page.locator("#live")).to_contain_text("live")
        corrupt(client, CODE)
    expect(page.locator("h1")).to_contain_text("1 run needs you", timeout=LOST_MS)
    service.stop()
    expect(page.locator("#live")).to_have_text("reconnecting", timeout=LOST_MS)
    expect(page.locator("tbody a.run")).to_have_text(["ppo", "grpo"])
    restart(service)
    with service.client() as client:
        train(client, RunKey("code", "sort"))
    expect(page.locator("#live")).to_contain_text("live", timeout=LOST_MS)
    expect(page.locator("tbody tr")).to_have_count(3, timeout=LOST_MS)
    assert places[0] is None
    assert int(places[-1] or 0) > 0
    tab.expect_complaints("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")


def test_an_unreachable_service_shows_an_error_until_it_is_back(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
    page = tab.go("/")
    service.stop()
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("h1")).to_have_text("The service does not respond.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    expect(page.locator("#live")).to_have_text(re.compile("^(no answer|reconnecting)$"))
    restart(service)
    expect(page.locator("h1")).to_have_text("No alert fires")
    expect(page.locator("#live")).to_contain_text("live")
    tab.expect_complaints("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")


def test_the_badge_is_never_live_beside_an_error(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
    page = tab.go("/")
    expect(page.locator("#live")).to_contain_text("live")
    page.route("**/api/v1/alerts?*", lambda route: route.abort())
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("h1")).to_have_text("The service does not respond.")
    expect(page.locator("#live")).to_have_text("no answer")
    page.unroute("**/api/v1/alerts?*")
    expect(page.locator("h1")).to_have_text("No alert fires")
    expect(page.locator("#live")).to_contain_text("live")
    tab.expect_complaints("ERR_FAILED")


def test_an_unreachable_service_is_tried_again_on_request(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
    page = tab.go("/")
    service.stop()
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("h1")).to_have_text("The service does not respond.")
    restart(service)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("h1")).to_have_text("No alert fires")
    tab.expect_complaints("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
