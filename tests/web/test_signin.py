"""Signing in with a token, which lasts as long as the tab and never appears in an address."""

from __future__ import annotations

import re

from playwright.sync_api import Route, expect

from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.web.conftest import Visiting
from trmon.domain.access import Scope


def test_a_service_with_tokens_asks_for_one_and_forgets_it_with_the_tab(
    service: ThreadedService, visiting: Visiting
) -> None:
    with service.client() as client:
        train(client, MATH)
        secret = make_token(client, "ana", Scope.ADMIN)
    tab = visiting(service.url)
    page = tab.go(f"/runs/{MATH}?step=1")
    expect(page.locator("h1")).to_have_text("Sign in")
    expect(page.locator("#live")).to_have_text("signed out")
    page.get_by_label("Token").fill("trmon_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the token is unknown")
    page.get_by_label("Token").fill(secret)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("grpo")
    expect(page.locator(".step h2")).to_have_text("Step 1")
    expect(page.locator("#live")).to_have_text("up to date")
    page.reload()
    expect(page.locator("h1")).to_have_text("grpo")
    assert secret not in page.url + "".join(tab.asked)
    assert secret not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
    other = visiting(service.url)
    expect(other.go("/").locator("h1")).to_have_text("Sign in")
    expect(other.page.locator("#live")).to_have_text("signed out")
    for one in (tab, other):
        one.expect_complaints("401")


def test_the_form_is_drawn_once_and_keeps_what_is_typed(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
        make_token(client, "ana", Scope.ADMIN)
    tab = visiting(service.url)
    page = tab.page
    held: list[Route] = []
    page.route(re.compile("/api/v1/(?!events)"), lambda route: held.append(route))
    page.goto(f"{tab.url}/")
    expect(page.locator("#live")).to_have_text("signed out")
    expect(page.get_by_label("Token")).to_have_count(0)
    for route in held:
        route.continue_()
    page.get_by_label("Token").fill("trmon_typed")
    page.unroute_all()
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 500)))")
    expect(page.get_by_label("Token")).to_have_value("trmon_typed")
    tab.expect_complaints("401")
