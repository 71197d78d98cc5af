"""Until data arrives, shapes stand where it will be, and nothing moves when it does."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.fixtures.browser import PHONE, WIDE, Visit
from tests.web.conftest import Visiting

VIEWS = ["/", "/alerts", "/runs/math/stale-8b", "/compare?runs=math/healthy-8b,math/stale-8b", "/rules/moe_routing"]
SLOW = """(() => {
    const fetched = window.fetch;
    const released = new Promise((done) => (window.release = done));
    window.fetch = async (url, options) => {
        const answer = await fetched(url, options);
        if (!String(url).includes("/events")) await released;
        return answer;
    };
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const { value, sources } of list.getEntries())
            window.shifts.push([value, sources.map(({ node }) => node?.id)]);
    }).observe({ type: "layout-shift" });
})()"""
FIRST = "(selector) => document.querySelector(selector).getBoundingClientRect().top"
NEAR_PIXELS = 6


def slowly(tab: Visit, path: str) -> Page:
    """Open a view whose answers wait for `window.release()`."""
    tab.page.add_init_script(SLOW)
    tab.page.goto(f"{tab.url}{path}")
    expect(tab.page.locator(".skeleton")).to_be_visible()
    return tab.page


def test_a_step_has_a_skeleton_too(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/runs/math/stale-8b")
    expect(page.locator(".editor")).to_be_attached()
    tab.hold_back("/batches/", seconds=0.5)
    page.get_by_role("spinbutton", name="Step").fill("30")
    page.get_by_role("button", name="Open step").click()
    panel = page.get_by_role("region", name="Step")
    expect(panel.locator(".bone").first).to_be_visible()
    expect(panel.get_by_role("table")).to_be_visible()
    expect(panel.locator(".bone")).to_have_count(0)


def test_shapes_stand_still_where_motion_is_unwanted(visiting: Visiting) -> None:
    page = slowly(visiting(), "/")
    shape = page.locator(".skeleton .bone").first
    expect(shape).to_have_css("animation-name", "breathe")
    page.emulate_media(reduced_motion="reduce")
    expect(shape).to_have_css("animation-name", "none")


def test_the_verdict_does_not_wait_for_the_charts(visiting: Visiting) -> None:
    tab = visiting(size=WIDE)
    page = tab.page
    held: list[Route] = []
    page.route(re.compile(r"/signals\?"), lambda route: held.append(route))
    page.goto(f"{tab.url}/runs/math/stale-8b")
    expect(page.locator("[aria-label='Diagnosis'] .headline")).to_be_visible()
    expect(page.locator(".charts .bone.plot").first).to_be_visible()
    assert held
    # Requests that are held continue.
    page.unroute_all()
    expect(page.locator(".charts canvas").first).to_be_visible()


@pytest.mark.parametrize(("path", "size"), [*((path, WIDE) for path in VIEWS), (VIEWS[2], PHONE)])
def test_the_skeleton_gives_way_without_a_jump(visiting: Visiting, path: str, size: tuple[int, int]) -> None:
    page = slowly(visiting(size=size), path)
    expect(page.locator("main")).to_have_attribute("aria-busy", "true")
    expect(page.get_by_text("Loading …")).to_be_attached()
    title, card = (page.evaluate(FIRST, selector) for selector in (".bone.title", ".skeleton .card"))
    page.evaluate("window.release()")
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
    if size == WIDE:
        assert page.evaluate(FIRST, "main h1") == pytest.approx(title, abs=NEAR_PIXELS)
        assert page.evaluate(FIRST, "main .card") == pytest.approx(card, abs=NEAR_PIXELS)
    if any(part in path for part in ("/runs/", "/compare")):
        expect(page.locator(".charts canvas").first).to_be_visible()
    page.wait_for_timeout(1000)
    moved = [value for value, names in page.evaluate("window.shifts") if set(names) != {"live"}]
    assert sum(moved) < 0.01
