"""The comparison of runs in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.web.conftest import Reading, Visiting

PATH = "/compare?runs=math/healthy-8b,math/stale-8b"


def test_two_runs_are_compared_with_where_they_part(reading: Reading) -> None:
    page = reading(PATH).page
    words = page.get_by_label("Where they part")
    expect(words.locator(".headline")).to_have_text("They have too few steps in common to tell where they part.")
    expect(words.locator("li")).to_have_text(
        [re.compile(r"A.*math/healthy-8b.*Healthy"), re.compile(r"B.*math/stale-8b.*stale rollouts since")]
    )
    expect(page.locator(".charts figure").first).to_contain_text("Reward")
    expect(page.locator(".charts canvas").first).to_be_visible()
    differences = page.get_by_label("Differences")
    expect(differences.locator("tr").filter(has_text="Recording")).to_have_text(re.compile('"healthy".*"stale"'))


def test_a_run_leads_to_its_sound_sibling(reading: Reading) -> None:
    page = reading("/runs/math/stale-8b").page
    page.get_by_role("link", name="Compare").click()
    expect(page.locator("h1")).to_have_text("Compare")
    assert page.url.endswith("/compare?runs=math/stale-8b")
    expect(page.get_by_label("Where they part")).to_contain_text("B was proposed")
    expect(page.get_by_label("Where they part").locator("li").last).to_contain_text("math/healthy-8b")


def test_the_axis_is_kept_in_the_address(reading: Reading) -> None:
    page = reading(PATH).page
    page.get_by_role("button", name="Time").click()
    page.wait_for_url(f"**{PATH}&by=time")
    page.reload()
    expect(page.get_by_role("button", name="Time")).to_have_attribute("aria-pressed", "true")


def test_what_cannot_be_compared_is_said(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/compare?runs=math/stale-8b,math/stale-8b")
    expect(page.get_by_role("alert")).to_contain_text("has 'math/stale-8b' twice")
    tab.expect_complaints("400")
