"""Alerts in a real browser: acknowledging, silencing and history, and filters that find what is not loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.fixtures.databases import open_migrated_store
from tests.fixtures.running_service import Serve, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt, train
from tests.fixtures.waiting import eventually
from tests.store.builders import NOW, alert, append, commit, start_intake
from tests.web.conftest import Visiting, acknowledge
from trmon.domain.access import Scope
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity


def test_an_alert_shows_its_history_and_is_acknowledged_with_a_name_and_a_note(
    paging: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(paging.url).go("/alerts")
    expect(page.locator("h1")).to_have_text("1 alert fires, 1 unacknowledged")
    expect(page.locator("tbody")).to_contain_text("corrupt log")
    page.get_by_role("button", name="History").click()
    expect(page.locator(".events")).to_contain_text("firing at step")
    acknowledge(page, "Acknowledge")
    expect(page.locator("h1")).to_have_text("1 alert fires, 0 unacknowledged")
    expect(page.locator("tbody")).to_contain_text(re.compile("Acknowledged by ana .* the node is gone"))
    page.get_by_role("link", name="Fleet").click()
    expect(page.locator("h1")).to_have_text("No run needs you, 1 acknowledged")


def test_an_alert_links_to_its_run_where_it_can_be_acknowledged_too(
    paging: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(paging.url).go("/alerts")
    page.get_by_role("link", name="math / grpo").click()
    expect(page.locator(".step h2")).to_have_text("Step 0")
    acknowledge(page, "Acknowledge 1 alert", who="ben")
    expect(page.get_by_label("Diagnosis")).to_contain_text("acknowledged by ben")


def test_a_read_only_token_changes_neither_alerts_nor_silences(paging: ThreadedService, visiting: Visiting) -> None:
    with paging.client() as client:
        client.post("/api/v1/silences", json=SILENCE).raise_for_status()
        secret = make_token(client, "reader", Scope.READ)
    tab = visiting(paging.url)
    page = tab.go("/alerts")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_role("dialog")).to_contain_text("This token is read-only.")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="End").click()
    expect(page.locator(".silences")).to_contain_text("This token is read-only.")
    tab.expect_complaints("401", "403")


OTHER = RunKey("code", "ppo")
SILENCE = {"matchers": [{"label": "run", "value": "unknown"}], "seconds": 600}


def test_every_firing_alert_is_counted_the_focus_stays_and_a_double_click_creates_one_silence(
    paging: ThreadedService, visiting: Visiting
) -> None:
    def in_small_pages(route: Route) -> None:
        route.continue_(url=route.request.url.replace("limit=1000", "limit=1").replace("limit=200", "limit=1"))

    tab = visiting(paging.url)
    tab.page.route("**/api/v1/alerts?*", in_small_pages)
    page = tab.go("/alerts")
    page.get_by_role("button", name="Silence", exact=True).focus()
    with paging.client() as client:
        corrupt(client, OTHER)
        expect(page.locator("h1")).to_have_text("2 alerts fire, 2 unacknowledged")
        expect(page.locator("tbody")).to_have_count(2)
        assert "math / grpo" in page.evaluate("document.activeElement.closest('tbody').textContent")
        assert page.evaluate("document.activeElement.textContent") == "Silence"
        tab.hold_back("/silences", seconds=0.5)
        page.keyboard.press("Enter")
        page.get_by_role("dialog").get_by_role("button", name="Silence").dblclick()
        expect(page.locator(".silences li")).to_have_count(1)
        assert len(client.get("/api/v1/silences").json()["items"]) == 1


def test_a_link_can_be_copied_without_clipboard_access_and_a_run_without_steps_has_no_next_step(
    paging: ThreadedService, visiting: Visiting
) -> None:
    with paging.client() as client:
        train(client, OTHER, steps=(), end=False)
    tab = visiting(paging.url)
    tab.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page = tab.go(f"/runs/{MATH}")
    with page.expect_event("dialog") as asked:
        page.on("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("button", name="Copy link").click()
    assert asked.value.default_value == page.url
    tab.go(f"/runs/{OTHER}")
    page.keyboard.press("[")
    page.keyboard.press("]")
    expect(page.locator(".step")).to_be_hidden()
    assert page.url == f"{paging.url}/runs/{OTHER}"
    tab.expect_complaints("diagnosis", "404")


def test_shortcuts_are_disabled_behind_a_dialog_and_a_removed_filter_stays_removed(
    paging: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(paging.url).go("/?project=math")
    for key in ("?", "?", "g", "a"):
        page.keyboard.press(key)
    expect(page.locator("dialog")).to_have_count(1)
    assert page.url == f"{paging.url}/?project=math"
    page.keyboard.press("Escape")
    with paging.client() as client:
        corrupt(client, OTHER)
        expect(page.get_by_label("project").locator("option")).to_have_count(3)
        page.get_by_label("project").select_option("")
        expect(page.locator("a.run")).to_have_count(2)
        train(client, RunKey("vision", "dpo"), end=False)
    expect(page.locator("a.run")).to_have_count(3)


def test_long_tags_and_owners_fit_on_a_phone(paging: ThreadedService, visiting: Visiting) -> None:
    with paging.client() as client:
        corrupt(client, OTHER, owner="o" * 100, tags=["t" * 120, "other"])
    tab = visiting(paging.url, size=(390, 844))
    for path in ("/", f"/runs/{OTHER}"):
        tab.go(path)
        assert tab.overflow_pixels <= 0


@pytest.mark.parametrize("view", ["/", "/alerts"])
@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, ["^Alerts are shown on this page only: no receiver of alerts is configured"]),
        ({"slack_url": "https://hooks.slack.example/x"}, []),
    ],
)
def test_a_service_without_a_receiver_says_so_in_one_quiet_line(
    serve: Serve, visiting: Visiting, view: str, given: dict[str, str], lines: list[str]
) -> None:
    service = serve(**given)
    with service.client() as client:
        train(client, MATH)
        if lines:
            eventually(lambda: client.get("/api/v1/deliveries/receivers").json()["problem"])
    page = visiting(service.url).go(view)
    expect(page.get_by_role("note")).to_have_text([re.compile(line) for line in lines])


LATER = 120
PAGE = 50


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service whose oldest resolved alert, of math/needle, has 120 later ones of math/hay."""
    folder = tmp_path_factory.mktemp("search") / "data"
    store = open_migrated_store(folder / "trmon.sqlite")
    for name, count, severity in (("needle", 1, Severity.WARN), ("hay", LATER, Severity.PAGE)):
        run_id = append(store, start_intake("math", name))[0].run_id
        over = {"run_id": run_id, "state": AlertState.RESOLVED, "severity": severity, "updated_at": NOW + 1}
        alerts = tuple(alert(step=step, identity=f"{name}/corrupt", **over) for step in range(count))
        commit(store, run_id, alerts=alerts)
    store.close()
    service = ThreadedService(folder)
    yield service
    service.stop()


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Resolved").locator("tbody")


def test_words_find_a_resolved_alert_of_a_later_page(searched: ThreadedService, visiting: Visiting) -> None:
    page = visiting(searched.url).go("/alerts")
    expect(rows(page)).to_have_count(PAGE)
    page.get_by_label("Filter by project, run, rule, cause or owner").fill("needle logprobs")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("needle")
    page.reload()
    expect(rows(page)).to_have_count(1)


def test_a_severity_finds_a_resolved_alert_of_a_later_page(searched: ThreadedService, visiting: Visiting) -> None:
    page = visiting(searched.url).go("/alerts")
    page.get_by_label("severity").select_option("warn")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("unacknowledged only").check()
    expect(page.get_by_text("No alert matches these filters.")).to_be_visible()


def test_pages_of_a_search_are_loaded_on_demand(searched: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(searched.url)
    page = tab.go("/alerts?q=hay")
    for shown in (PAGE, 2 * PAGE, LATER):
        expect(rows(page)).to_have_count(shown)
        more = page.locator("section", has=page.get_by_role("table", name="Resolved")).get_by_role(
            "button", name="Show more"
        )
        if shown < LATER:
            more.click()
    expect(more).to_be_hidden()
    assert [url for url in tab.asked if re.search(r"state=resolved.*search=hay", url)]


def test_words_that_nothing_has_say_so_once_everything_is_searched(
    searched: ThreadedService, visiting: Visiting
) -> None:
    tab = visiting(searched.url)
    page = tab.go("/alerts")
    tab.hold_back("search=nothing", seconds=1)
    page.get_by_label("Filter by project, run, rule, cause or owner").fill("nothing")
    none = page.get_by_text("No alert matches these filters.")
    page.wait_for_timeout(500)
    expect(none).to_be_hidden()
    expect(none).to_be_visible()
