"""The alarm budget on the alerts view, and another limit on the page of a rule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.fixtures.browser import PHONE
from tests.fixtures.running_service import RecordedRuns
from tests.fixtures.service import ThreadedService
from tests.web.conftest import Visiting
from tests.web.test_accessibility import violations

RULE = "- {name: kl_high, severity: warn, when: {signal: kl_k3, above: 0.001}, summary: KL is high}"


@pytest.fixture(scope="module")
def budgeted(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with the finished runs and a rule of its own, which fired on none of them."""
    folder = tmp_path_factory.mktemp("budget")
    rules = folder / "rules.yaml"
    rules.write_text(RULE)
    service = recorded.serve(recorded.finished, folder / "data", rules_file=rules)
    yield service
    service.stop()


@pytest.mark.parametrize("size", [(1360, 900), PHONE], ids=["wide", "phone"])
def test_the_budget_opens_to_rules_and_tune_opens_the_rule(
    budgeted: ThreadedService, visiting: Visiting, size: tuple[int, int]
) -> None:
    page = visiting(budgeted.url, size=size).go("/alerts")
    page.get_by_text("Alarm budget").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="stale rollouts"))
    expect(row.get_by_role("cell")).to_have_text(["1", "–", "1", "0", "0", "0", "1", "Tune"])
    expect(page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="30 days").click()
    expect(page.get_by_role("table", name="Messages of each rule over 30 days")).to_be_visible()
    page.get_by_role("link", name="Tune stale rollouts").click()
    expect(page.get_by_role("heading", name="stale rollouts")).to_be_visible()
    expect(page.get_by_label("of", exact=True)).to_be_focused()


def test_another_limit_is_shown_beside_the_one_of_now(budgeted: ThreadedService, visiting: Visiting) -> None:
    page = visiting(budgeted.url).go("/rules/kl_high?tune")
    expect(page.get_by_text("Over 2 runs.")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="messages of this rule").get_by_role("cell")
    [sent] = row.all_inner_texts()
    assert int(sent) > 0
    limit = page.get_by_label("of", exact=True)
    limit.fill("1000")
    limit.press("Enter")
    expect(page.get_by_role("columnheader", name="limit 1,000")).to_be_visible()
    assert row.all_inner_texts() == [sent, "0"]


def test_a_finding_says_the_line_of_the_rules_file(budgeted: ThreadedService, visiting: Visiting) -> None:
    page = visiting(budgeted.url).go("/rules/stale_rollouts")
    page.get_by_role("combobox").select_option("kl_k3")
    page.get_by_label("of", exact=True).fill("0.3")
    page.get_by_role("button", name="Try").click()
    expect(page.locator(".trial code", has_text="- {name: stale_rollouts, limits: {kl_k3: 0.3}}")).to_be_visible()


def test_a_rule_over_states_has_no_limit_to_try(budgeted: ThreadedService, visiting: Visiting) -> None:
    page = visiting(budgeted.url).go("/rules/stalled?tune")
    expect(page.get_by_text("Another limit")).to_have_count(0)


@pytest.mark.parametrize("path", ["/alerts", "/rules/stale_rollouts?tune"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_a_phone_and_the_page_is_not_wider(
    budgeted: ThreadedService, visiting: Visiting, path: str, theme: str
) -> None:
    page = visiting(budgeted.url, size=PHONE, theme=theme).go(path)
    if path == "/alerts":
        page.get_by_text("Alarm budget").click()
        expect(page.get_by_role("link", name="Tune stale rollouts")).to_be_attached()
    else:
        expect(page.get_by_text("Over 2 runs.")).to_be_visible()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
