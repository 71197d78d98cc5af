"""Finding one's way: the palette, nearest names, runs added to and dropped from a comparison, and an empty fleet."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.fixtures.browser import PHONE
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.web.conftest import Visiting
from tests.web.test_accessibility import violations
from trmon.domain.identity import RunKey
from trmon.web.assets import demo_command


def opened(page: Page, text: str = "") -> Page:
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Find a run, a rule or a step")
    expect(field).to_be_focused()
    field.fill(text)
    return page


def options(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Found").get_by_role("option")


def test_a_run_a_rule_and_a_view_are_found_and_opened_from_the_keyboard(visiting: Visiting) -> None:
    page = opened(visiting().go("/"), "stale")
    expect(options(page)).to_have_text(["math/stale-8brunning", "stale rolloutsrule"])
    field = page.get_by_role("combobox", name="Find a run, a rule or a step")
    expect(page.get_by_role("option", name="math/stale-8b")).to_have_attribute("aria-selected", "true")
    field.press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", "found-1")
    field.press("Enter")
    expect(page).to_have_url(re.compile(r"/rules/stale_rollouts$"))
    expect(page.get_by_role("dialog")).to_have_count(0)
    opened(page, "alerts")
    expect(page.get_by_role("option", name="Alerts view")).to_be_visible()
    page.get_by_role("option", name="Alerts view").click()
    expect(page).to_have_url(re.compile(r"/alerts$"))


def test_a_number_is_a_step_of_the_open_run(visiting: Visiting) -> None:
    page = opened(visiting().go("/runs/math/stale-8b"), "step 12")
    expect(page.get_by_role("option", name="Step 12 of math/stale-8b")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/runs/math/stale-8b\?step=12$"))
    expect(page.locator(".step")).to_be_visible()


def test_what_nothing_is_called_is_said_and_escape_closes(visiting: Visiting) -> None:
    page = opened(visiting().go("/"), "zzz")
    expect(page.get_by_text("Nothing is called zzz.")).to_be_visible()
    expect(page.get_by_role("listbox")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_a_button_opens_it_and_axe_finds_nothing(visiting: Visiting, theme: str) -> None:
    page = visiting(size=PHONE, theme=theme).go("/")
    page.get_by_role("button", name="Find a run, a rule or a step").click()
    expect(page.get_by_role("option", name="math/stale-8b")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("combobox", name="Find a run, a rule or a step").fill("zzz")
    expect(page.get_by_text("Nothing is called zzz.")).to_be_visible()
    assert violations(page) == []


def test_a_run_that_does_not_exist_leads_to_the_nearest(visiting: Visiting) -> None:
    tab = visiting()
    tab.expect_complaints("404")
    page = tab.go("/runs/math/stale-8")
    expect(page.locator("h1")).to_have_text("Run not found.")
    page.get_by_role("link", name="math/stale-8b").click()
    expect(page.get_by_role("heading", name="stale-8b")).to_be_visible()


def test_runs_are_added_to_a_comparison_and_dropped(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        for name in "abc":
            train(client, RunKey("math", name))
    page = visiting(service.url).go("/compare?runs=math/a,math/b&by=time")
    expect(page.get_by_role("link", name="Drop")).to_have_count(0)
    page.get_by_role("button", name="Add a run").click()
    expect(options(page)).to_have_text(["math/cfinished"])
    options(page).click()
    expect(page).to_have_url(re.compile(r"runs=math/a,math/b,math/c&by=time$"))
    expect(page.locator(".compared li")).to_have_count(3)
    page.get_by_role("button", name="Add a run").click()
    expect(page.get_by_text("No other run is there.")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Drop A from the comparison").click()
    expect(page).to_have_url(re.compile(r"runs=math/b,math/c&by=time$"))
    expect(page.locator(".compared li")).to_have_count(2)


def test_an_empty_fleet_has_the_commands_to_copy_and_says_that_alerts_reach_nobody(
    service: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(service.url).go("/")
    expect(page.get_by_role("button", name="Copy")).to_have_count(2)
    expect(page.get_by_text(demo_command())).to_be_visible()
    expect(page.get_by_text("no receiver of alerts is configured")).to_be_visible()
