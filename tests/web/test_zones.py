"""Every time on the page has its zone, or is relative."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.fixtures.browser import Visit
from tests.web.conftest import Visiting

pytestmark = pytest.mark.server("chromium")

TIME = re.compile(r"\d{1,2}:\d{2}(?!\d)")
ZONED = re.compile(r"\d{1,2}:\d{2}(?::\d{2})? (?:GMT[+-]\d+(?::\d+)?|UTC)")
VIEWS = [
    "/",
    "/alerts",
    "/runs/math/stale-8b?step=30",
]


@pytest.mark.parametrize("path", VIEWS)
def test_every_time_in_a_view_has_its_zone(visiting: Visiting, path: str) -> None:
    page = visiting().go(path)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    if "/runs/" in path:
        expect(page.locator(".charts canvas").first).to_be_visible()
    titles = page.evaluate("[...document.querySelectorAll('[title]')].map((one) => one.title).join(' | ')")
    text = f"{page.locator('body').inner_text()} {titles}"
    assert len(TIME.findall(text)) == len(ZONED.findall(text)), TIME.findall(text)
    if "/runs/" in path:
        assert ZONED.search(text)


def test_the_zone_is_the_browser_s(chromium: Browser, visiting: Visiting) -> None:
    context = chromium.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    tab = Visit(context.new_page(), visiting().url)
    page = tab.go("/")
    said = page.evaluate(
        """async () => {
            const { clock, hour, zone } = await import("/assets/any/words.js");
            return [clock(1_700_000_000), hour(Date.now() / 1000), zone(1_700_000_000)];
        }"""
    )
    assert said[0] == "15 Nov 2023, 03:43 GMT+5:30"
    assert re.fullmatch(r"\d\d:\d\d GMT\+5:30", said[1])
    assert said[2] == "GMT+5:30"
    context.close()


def test_an_axis_of_times_names_its_zone(visiting: Visiting) -> None:
    tab = visiting()
    tab.page.add_init_script(
        """const filled = CanvasRenderingContext2D.prototype.fillText;
        window.written = new Set();
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.written.add(text);
            return filled.call(this, text, ...rest);
        };"""
    )
    page = tab.go("/runs/math/healthy-8b")
    expect(page.locator(".charts canvas").first).to_be_visible()
    assert not page.evaluate("[...window.written].filter((text) => /UTC|GMT/.test(text))")
    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_function("[...window.written].some((text) => /^(UTC|GMT)/.test(text))")
