"""Responses that arrive after the user has left the view, and changes that only time or a later step brings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.fixtures.messages import columns
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, corrupt, send_step, train
from tests.web.conftest import Visiting
from trmon.domain.access import Scope

pytestmark = pytest.mark.server("chromium")

HOUR = 3600


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ThreadedService]:
    """A service without runs."""
    service = ThreadedService(tmp_path / "data")
    yield service
    service.stop()


def test_a_late_response_is_ignored_once_the_user_has_left_the_run(
    service: ThreadedService, visiting: Visiting
) -> None:
    with service.client() as client:
        train(client, MATH)
    tab = visiting(service.url)
    page = tab.go("/")
    tab.hold_back(f"/runs/{MATH}", seconds=1)
    page.locator("a.run").click()
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("h1")).to_have_text("No alert fires")
    page.wait_for_timeout(4000)
    expect(page.locator("h1")).to_have_text("No alert fires")
    assert page.url == f"{service.url}/alerts"
    expect(page).to_have_title("Alerts · trmon")


def test_a_deleted_run_shows_run_not_found(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
        tab = visiting(service.url)
        tab.page.clock.install()
        page = tab.go(f"/runs/{MATH}")
        client.delete(f"/api/v1/runs/{MATH}")
    page.clock.fast_forward(40_000)
    expect(page.locator("h1")).to_have_text("Run not found.")
    tab.expect_complaints("404")


def test_a_run_with_a_silent_trainer_does_not_stay_healthy(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH, end=False)
        await_batches(client, n=2)
    tab = visiting(service.url)
    tab.page.clock.install()
    page = tab.go(f"/runs/{MATH}")
    expect(page.locator("header:not(.top)")).to_contain_text("last report")
    expect(page.locator(".charts h2").first).to_be_visible()
    with page.expect_request(lambda request: f"/fleet/{MATH}" in request.url):
        page.clock.fast_forward(40_000)


def test_a_signal_that_appears_at_a_later_step_gets_its_chart(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH, steps=(), end=False)
        for step in range(2):
            content = columns(seed=step)
            unrewarded = {name: values for name, values in content.items() if name != "reward"}
            send_step(client, MATH, step=step, content=replace(content, by_name=unrewarded))
        await_batches(client, n=1)
        page = visiting(service.url).go(f"/runs/{MATH}")
        charts = page.locator(".charts h2")
        expect(charts.first).to_have_text("KL")
        for step in range(2, 5):
            send_step(client, MATH, step=step)
        expect(charts.first).to_have_text("Reward")


def test_ages_are_correct_if_the_browsers_clock_is_an_hour_off(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        corrupt(client, MATH)
    for off_seconds in (-HOUR, HOUR):
        tab = visiting(service.url)
        tab.page.add_init_script(f"const now = Date.now; Date.now = () => now() + {1000 * off_seconds};")
        page = tab.go("/alerts")
        expect(page.locator('td[data-name="since"]')).to_contain_text(re.compile(r"now|\d s ago"))


def test_a_hidden_tab_holds_no_connection(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
    tab = visiting(service.url)
    tab.page.context.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.seen !== true })")
    tab.go("/")
    for _ in range(7):
        page = tab.page.context.new_page()
        page.goto(service.url)
        expect(page.locator("a.run")).to_have_text(["grpo"])
    turn = "(seen) => { window.seen = seen; document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(turn, True)
    expect(page.locator("#live")).to_contain_text("live")
    page.evaluate(turn, False)
    expect(page.locator("#live")).to_have_text("reconnecting")


def test_a_revoked_token_signs_out_the_open_page(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
        admin = {"Authorization": f"Bearer {make_token(client, 'ana', Scope.ADMIN)}"}
        made = client.post("/api/v1/tokens", json={"name": "ben", "scopes": ["read"]}, headers=admin)
        tab = visiting(service.url)
        page = tab.go(f"/runs/{MATH}")
        page.get_by_label("Token").fill(made.json()["secret"])
        page.keyboard.press("Enter")
        expect(page.locator("#live")).to_have_text("up to date")
        expect(page.locator(".charts canvas").first).to_be_visible()
        assert client.delete("/api/v1/tokens/ben", headers=admin).status_code == 204
    expect(page.locator("h1")).to_have_text("Sign in", timeout=40_000)
    expect(page.get_by_role("alert")).to_contain_text("no longer valid")
    tab.expect_complaints("401", "ERR_INCOMPLETE_CHUNKED_ENCODING")
