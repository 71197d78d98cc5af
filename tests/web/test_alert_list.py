"""Hundreds of alerts on the page: grouped, filtered, selected, acknowledged at once and silenced."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.alerting import CRASH
from tests.fixtures.browser import PHONE
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt, send
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting, acknowledge
from trmon.domain.identity import RunKey

CRASHED = 5


@pytest.fixture(scope="module")
def crashing(shared_service: ThreadedService, shared: httpx.Client) -> ThreadedService:
    """Return a service with an incident and five crashed runs; tests that change it stand last."""
    corrupt(shared, MATH)
    for i in range(CRASHED):
        send(shared, RunKey("code", f"ppo-{i}"), CRASH)
    eventually(lambda: crashed(shared), lambda found: len(found) == CRASHED)
    return shared_service


def crashed(client: httpx.Client) -> list[dict[str, object]]:
    items = client.get("/api/v1/alerts", params={"state": "firing"}).json()["items"]
    return [alert for alert in items if alert["rule"] == "crashed"]


def firing(page: Page) -> list[str]:
    rows: list[str] = page.get_by_role("table", name="Firing").locator("tbody").all_inner_texts()
    return rows


def test_alerts_that_many_runs_share_are_one_line_that_unfolds(
    crashing: ThreadedService, shared: httpx.Client, visiting: Visiting
) -> None:
    run = shared.get(f"/api/v1/fleet/named?runs={MATH}").json()[0]
    tab = visiting(crashing.url)
    page = tab.go("/alerts")
    rows = page.get_by_role("table", name="Firing").locator("tbody")
    expect(rows).to_have_count(2)
    since = rows.filter(has_text=run["incident"]["title"]).locator('[data-name="since"]')
    expect(since).to_contain_text(f"step {run['incident']['since_step']}")
    fold = page.get_by_role("button", name="crashed: 5 runs")
    fold.click()
    expect(rows).to_have_count(2 + CRASHED)
    expect(fold).to_have_attribute("aria-expanded", "true")
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert tab.overflow_pixels <= 0
    assert {f"ppo-{i}" for i in range(CRASHED)} == set(re.findall(r"ppo-\d", " ".join(firing(page))))


def test_the_button_of_silences_stands_at_the_edge_of_the_lists(crashing: ThreadedService, visiting: Visiting) -> None:
    page = visiting(crashing.url).go("/alerts")
    right = "(one) => Math.round(one.getBoundingClientRect().right)"
    table = page.get_by_role("table", name="Firing").evaluate(right)
    assert (
        abs(page.get_by_role("button", name="New silence").evaluate(right) - table) <= 8
    )  # A gap for what it may say.


def test_alerts_that_cannot_be_acknowledged_are_named_and_stay_selected(
    crashing: ThreadedService, visiting: Visiting
) -> None:
    tab = visiting(crashing.url)
    refused = {"acknowledged": [], "refused": []}

    def in_part(route: object) -> None:
        identities = route.request.post_data_json["identities"]  # type: ignore[attr-defined]
        failed = {"identity": identities[0], "detail": "it is resolved"}
        route.fulfill(json=refused | {"acknowledged": identities[1:], "refused": [failed]})  # type: ignore[attr-defined]

    tab.page.route("**/api/v1/alerts/ack", in_part)
    page = tab.go("/alerts")
    acknowledge(page, "Acknowledge 5")
    bar = page.get_by_role("region", name="Selected alerts")
    expect(bar).to_contain_text("4 of 5 alerts acknowledged. Not acknowledged:")
    expect(bar.locator("li")).to_have_text(re.compile(r"code/ppo-\d: crashed: it is resolved"))
    expect(bar.get_by_role("status")).to_have_text("1 alert selected")


def test_a_range_is_selected_with_shift_and_with_keys(crashing: ThreadedService, visiting: Visiting) -> None:
    page = visiting(crashing.url).go("/alerts?q=code/ppo")
    page.get_by_role("button", name="crashed: 5 runs").click()
    boxes = page.get_by_role("table", name="Firing").get_by_role("checkbox")
    boxes.nth(1).click()
    boxes.nth(3).click(modifiers=["Shift"])
    status = page.get_by_role("region", name="Selected alerts").get_by_role("status")
    expect(status).to_have_text("3 alerts selected")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(status).to_have_text("4 alerts selected")
    expect(boxes.nth(4)).to_be_focused()
    page.keyboard.press("a")
    expect(page.get_by_role("dialog")).to_contain_text("Acknowledge 4 alerts")


def test_a_filter_is_kept_in_the_address_and_can_be_cleared(crashing: ThreadedService, visiting: Visiting) -> None:
    page = visiting(crashing.url).go("/alerts")
    page.get_by_label("Filter by project, run, rule, cause or owner").fill("nothing like this")
    expect(page.get_by_text("No alert matches these filters.")).to_be_visible()
    expect(page).to_have_url(re.compile("q=nothing"))
    page.reload()
    page.get_by_role("button", name="Show all alerts").click()
    expect(page.get_by_role("table", name="Firing").locator("tbody")).to_have_count(2)
    expect(page).to_have_url(f"{crashing.url}/alerts")


def test_a_silence_built_from_an_alert_shows_what_it_mutes_and_where_it_acts(
    crashing: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(crashing.url).go("/alerts?q=ppo")
    page.get_by_role("button", name="crashed: 5 runs").click()
    page.get_by_role("button", name="Silence", exact=True).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text("Mutes 1 firing alert now:")
    dialog.get_by_label("run (shell pattern").fill("ppo-*")
    expect(dialog.get_by_role("status")).to_contain_text("Mutes 5 firing alerts now:")
    dialog.get_by_label("For").select_option("8")
    dialog.get_by_label("Who").fill("ana")
    dialog.get_by_label("Note").fill("maintenance")
    dialog.get_by_role("button", name="Silence").click()
    tags = page.get_by_role("button", name=re.compile(r"Silenced until .* by ana: maintenance"))
    expect(tags).to_have_count(CRASHED)
    tags.first.click()
    line = page.locator(".silences li")
    expect(line).to_be_focused()
    for words in ("project=code, run~ppo-*, rule=crashed", "ends in 8 h", "mutes 5 alerts now"):
        expect(line).to_contain_text(words)
    line.get_by_role("button", name="End").click()
    expect(tags).to_have_count(0)


def test_every_alert_that_matches_a_filter_is_acknowledged_with_one_request(
    crashing: ThreadedService, shared: httpx.Client, visiting: Visiting
) -> None:
    tab = visiting(crashing.url)
    page = tab.go("/alerts?q=ppo")
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("5 of 6 firing alerts shown")
    page.get_by_label("Select crashed of 5 runs").check()
    expect(page.get_by_role("region", name="Selected alerts").get_by_role("status")).to_have_text("5 alerts selected")
    acknowledge(page, "Acknowledge 5 alerts")
    expect(page.locator("h1")).to_have_text("6 alerts fire, 1 unacknowledged")
    assert [url for url in tab.asked if url.endswith("/ack")] == [f"{crashing.url}/api/v1/alerts/ack"]
    notes = {str(alert["ack"]) for alert in crashed(shared)}
    assert len(notes) == 1
    assert "the node is gone" in notes.pop()


def test_an_open_disclosure_and_a_selection_survive_an_update(
    crashing: ThreadedService, shared: httpx.Client, visiting: Visiting
) -> None:
    page = visiting(crashing.url).go("/alerts")
    row = page.get_by_role("table", name="Firing").locator("tbody", has_text=MATH.run)
    row.locator("summary").click()
    row.get_by_role("checkbox").check()
    send(shared, RunKey("code", "ppo-late"), CRASH)
    expect(page.get_by_role("button", name="crashed: 6 runs")).to_be_visible()
    expect(row.locator("details")).to_have_attribute("open", "")
    expect(row.get_by_role("checkbox")).to_be_checked()
