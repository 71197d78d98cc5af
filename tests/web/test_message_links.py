"""The links in messages, in a real browser: a dialog, whose button alone changes anything, and the runbook of a run."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.browser import PHONE, WIDE
from tests.fixtures.running_service import ILL, WELL
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting

SIZES = [pytest.param(WIDE, id="wide"), pytest.param(PHONE, id="phone")]


def incident(service: ThreadedService) -> dict[str, Any]:
    """Return the alert that carries the incident."""
    with service.client() as client:
        found: dict[str, Any] = eventually(
            lambda: next(
                (one for one in client.get("/api/v1/alerts").json()["items"] if one["rule"] == "incident"), None
            )
        )
    return found


def link(alert: dict[str, Any], action: str) -> str:
    return f"/runs/{MATH}?step=0&action={action}&alert={quote(alert['identity'], safe='')}"


def changes(page: Page) -> list[str]:
    """Return a list that fills with the requests of a page that change something."""
    made: list[str] = []
    page.on(
        "request",
        lambda asked: made.append(asked.url) if asked.method != "GET" and "preview" not in asked.url else None,
    )
    return made


@pytest.mark.parametrize("size", SIZES)
def test_a_link_acknowledges_and_silences_only_once_its_button_is_pressed(
    paging: ThreadedService, visiting: Visiting, size: tuple[int, int]
) -> None:
    alert = incident(paging)
    tab = visiting(paging.url, size=size)
    made = changes(tab.page)
    page = tab.go(link(alert, "acknowledge"))
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Acknowledge corrupt log-probs")
    page.reload()
    expect(dialog).to_contain_text(alert["summary"])
    assert tab.overflow_pixels <= 0
    assert made == []
    assert incident(paging)["ack"] is None
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_label("Diagnosis")).to_contain_text("acknowledged by local")
    expect(page).to_have_url(re.compile(r"\?step=0$"))
    assert len(made) == 1
    assert incident(paging)["ack"]["author"] == "local"

    tab.go(link(alert, "silence"))
    expect(dialog).to_contain_text("Mutes 1 firing alert now")
    expect(dialog.locator(".preview li")).to_have_text(f"{MATH}: corrupt log-probs")
    assert dialog.locator("[data-label=rule] input").input_value() == "corrupt_logprobs"
    assert len(made) == 1
    dialog.get_by_role("button", name="Silence").click()
    expect(dialog).to_have_count(0)
    assert len(made) == 2
    assert incident(paging)["silenced"]["author"] == "local"


def test_a_link_to_what_somebody_has_says_who_and_to_what_is_over_says_so(
    paging: ThreadedService, visiting: Visiting
) -> None:
    alert = incident(paging)
    with paging.client() as client:
        client.post(f"/api/v1/alerts/{alert['identity']}/ack", json={"author": "ana", "note": "on it"})
    tab = visiting(paging.url)
    page = tab.go(link(alert, "acknowledge"))
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile("ana has corrupt log-probs since .*: on it"))
    page.get_by_label("Who").fill("bo")
    dialog.get_by_role("button", name="Take over").click()
    expect(page.get_by_label("Diagnosis")).to_contain_text("acknowledged by bo")
    tab.go(link({"identity": "999/incident"}, "acknowledge"))
    expect(dialog).to_contain_text("Nothing to acknowledge")
    assert dialog.get_by_role("button").all_inner_texts() == ["Close"]
    dialog.get_by_role("button", name="Close").click()
    expect(page).to_have_url(re.compile(r"\?step=0$"))
    tab.go(f"/runs/{MATH}?action=delete&alert=1")
    expect(page.locator("dialog")).to_have_count(0)


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
