"""The runbook of a rule, to which the links of notifications lead."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visiting

pytestmark = pytest.mark.server("chromium")


def test_a_rule_has_its_meaning_what_to_do_and_when_it_fires(visiting: Visiting) -> None:
    page = visiting().go("/rules/reward_collapse")
    expect(page.locator("h1")).to_have_text("reward collapse")
    card = page.locator("section.rule")
    for said in ("has fallen from its peak", "go back to the last good checkpoint", "fires after 3 steps in a row"):
        expect(card).to_contain_text(said)
    expect(card.locator("code").first).to_have_text("reward_collapse")


def test_a_rule_that_is_not_active_is_not_found(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/rules/none")
    expect(page.locator("h1")).to_have_text("Rule not found.")
    tab.expect_complaints("404")
