"""The runbook of a run in a real browser: a link of a message opens it, with this run's values and commands."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.fixtures.running_service import ILL, WELL
from tests.fixtures.service import ThreadedService
from tests.web.conftest import Visiting

pytestmark = pytest.mark.server("chromium")


def test_the_link_of_a_message_opens_the_runbook_with_the_commands_of_the_run(
    replayed: ThreadedService, visiting: Visiting
) -> None:
    runbook = httpx.get(f"{replayed.url}/api/v1/runs/{ILL.key}/runbook").json()
    tab = visiting()
    page = tab.go(f"/runs/{ILL.key}#runbook")
    shown = page.locator("#runbook")
    expect(shown.locator("h2")).to_have_text(["Confirm", "Rule out", "Mitigate", "Verify"])
    commands = [command for stage in runbook["stages"] for command in (*stage["options"], *stage["commands"])]
    expect(shown.locator("pre")).to_have_text(commands)
    assert all(str(ILL.key) in command for stage in runbook["stages"] for command in stage["commands"])
    expect(shown).to_contain_text(runbook["stages"][0]["lines"][1])
    expect(shown).to_be_in_viewport()
    answers = page.get_by_label("Diagnosis").get_by_text("Answers: ")
    expect(answers).to_be_visible()
    assert tab.overflow_pixels == 0


def test_a_healthy_run_has_no_runbook_and_a_rule_has_it_without_values(visiting: Visiting) -> None:
    page = visiting().go(f"/runs/{WELL.key}#runbook")
    expect(page.locator("#runbook")).to_be_hidden()
    page = visiting().go("/rules/stale_rollouts")
    expect(page.locator(".runbook h3")).to_have_text(["Confirm", "Rule out", "Mitigate", "Verify"])
    expect(page.locator(".runbook pre").first).to_have_text(
        "trmon signals PROJECT/RUN version_lag_mean --steps FIRST:LAST --points 20"
    )


def test_the_alerts_view_leads_to_the_runbook_of_the_run(visiting: Visiting) -> None:
    page = visiting().go("/alerts")
    row = page.locator("tbody", has_text="stale rollouts").first
    row.locator("summary").first.click()
    row.get_by_role("link", name="Runbook of this run").click()
    expect(page.locator("#runbook h2").first).to_be_visible()
