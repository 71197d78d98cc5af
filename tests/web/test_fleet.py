"""The fleet in a real browser: urgency, filters, sorting and navigation."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.fixtures.browser import PHONE
from tests.web.conftest import Visiting

pytestmark = pytest.mark.server("chromium")


def test_the_title_counts_the_runs_by_urgency(visiting: Visiting) -> None:
    page = visiting().go("/")
    expect(page.locator("h1")).to_have_text("No run needs you, 1 to watch, 1 no drift found")
    expect(page).to_have_title("Fleet · trmon")


def test_the_ill_run_comes_first_with_its_finding_first_step_and_fix(visiting: Visiting) -> None:
    page = visiting().go("/")
    first = page.locator("tbody tr").first
    expect(first.locator('[data-name="verdict"]')).to_contain_text(
        re.compile(r"^Watch (\d+% risk)?staleness since step \d\d")
    )
    expect(first.locator(".todo")).to_contain_text("Reduce the lag")
    expect(first.locator("a.run")).to_have_text("stale-8b")
    expect(first.locator("svg path")).to_have_count(2)
    expect(page.locator("tbody tr").nth(1).locator('[data-name="verdict"]')).to_contain_text("No drift found")


def test_runs_are_filtered_by_words_owner_and_tag_and_the_address_keeps_it(visiting: Visiting) -> None:
    page = visiting().go("/")
    page.keyboard.press("/")
    page.keyboard.type("healthy")
    expect(page.locator("tbody a.run")).to_have_text(["healthy-8b"])
    page.get_by_label("Filter runs").fill("")
    page.get_by_label("owner").select_option("ana")
    expect(page.locator("tbody a.run")).to_have_text(["stale-8b"])
    page.reload()
    expect(page.locator("tbody a.run")).to_have_text(["stale-8b"])
    page.get_by_label("owner").select_option("")
    page.get_by_label("tag").select_option("grpo")
    expect(page.locator("tbody a.run")).to_have_text(["healthy-8b"])


def test_a_column_sorts_and_reverses(visiting: Visiting) -> None:
    page = visiting().go("/")
    page.get_by_role("button", name="run", exact=True).click()
    expect(page.locator("tbody a.run")).to_have_text(["healthy-8b", "stale-8b"])
    page.get_by_role("button", name="run", exact=True).click()
    expect(page.locator("tbody a.run")).to_have_text(["stale-8b", "healthy-8b"])


def test_the_keyboard_opens_a_run_and_returns(visiting: Visiting) -> None:
    page = visiting().go("/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("stale-8b")
    assert "/runs/math/stale-8b?step=" in page.url
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.locator("h1")).to_contain_text("needs you")
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page.locator("h1")).to_contain_text("unacknowledged")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("needs you")


def test_every_control_is_reachable_by_tab_with_visible_focus(visiting: Visiting) -> None:
    page = visiting().go("/")
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent || document.activeElement.ariaLabel"))
    assert {"Skip to the content", "Alerts", "◐", "Filter runs", "verdict", "stale-8b", "healthy-8b"} <= set(reached)
    page.get_by_label("Filter runs").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_shortcuts_are_listed(visiting: Visiting) -> None:
    page = visiting().go("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_theme_follows_the_system_until_the_user_chooses(visiting: Visiting) -> None:
    page = visiting(theme="dark").go("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.keyboard.press("t")
    light = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector("main h1")
    assert page.evaluate(ground) == light


@pytest.mark.parametrize(
    "path",
    ["/", "/alerts", "/docs", "/rules/moe_routing", "/compare?runs=math/stale-8b", "/runs/math/stale-8b?step=30"],
)
def test_a_phone_never_scrolls_sideways(visiting: Visiting, path: str) -> None:
    tab = visiting(size=PHONE)
    page = tab.go(path)
    if any(part in path for part in ("/runs/", "/compare")):
        expect(page.locator(".charts canvas").first).to_be_visible()
    tab.page.wait_for_timeout(300)
    assert tab.overflow_pixels <= 0
