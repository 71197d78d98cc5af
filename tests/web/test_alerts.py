"""Alerts in a real browser: many at once, acknowledged, silenced, searched, and the budget of their rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.fixtures.alerting import CRASH
from tests.fixtures.browser import PHONE
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.running_service import RecordedRuns, Serve, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt, send, train
from tests.fixtures.waiting import eventually
from tests.store.builders import NOW, alert, append, commit, start_intake
from tests.web.conftest import Visiting, acknowledge, violations
from trmon.domain.access import Scope
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity


def test_an_alert_has_a_history_and_is_acknowledged(paging: ThreadedService, visiting: Visiting) -> None:
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


def test_an_alert_is_acknowledged_on_the_page_of_its_run(paging: ThreadedService, visiting: Visiting) -> None:
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


def test_the_focus_stays_and_a_double_click_creates_one_silence(paging: ThreadedService, visiting: Visiting) -> None:
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


def test_a_link_is_copied_without_access_to_the_clipboard(paging: ThreadedService, visiting: Visiting) -> None:
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


def test_no_shortcut_acts_behind_a_dialog(paging: ThreadedService, visiting: Visiting) -> None:
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


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, ["^Alerts are shown on this page only: no receiver of alerts is configured"]),
        ({"slack_url": "https://hooks.slack.example/x"}, []),
    ],
    ids=["none", "slack"],
)
def test_a_service_without_a_receiver_says_so_in_one_quiet_line(
    serve: Serve, visiting: Visiting, given: dict[str, str], lines: list[str]
) -> None:
    service = serve(**given)
    with service.client() as client:
        train(client, MATH)
        if lines:
            eventually(lambda: client.get("/api/v1/deliveries/receivers").json()["problem"])
    tab = visiting(service.url)
    for view in ("/", "/alerts"):
        expect(tab.go(view).get_by_role("note")).to_have_text([re.compile(line) for line in lines])


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


def test_nothing_is_found_once_everything_is_searched(searched: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(searched.url)
    page = tab.go("/alerts")
    tab.hold_back("search=nothing", seconds=1)
    page.get_by_label("Filter by project, run, rule, cause or owner").fill("nothing")
    none = page.get_by_text("No alert matches these filters.")
    page.wait_for_timeout(500)
    expect(none).to_be_hidden()
    expect(none).to_be_visible()


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


def test_alerts_of_many_runs_are_one_line(crashing: ThreadedService, shared: httpx.Client, visiting: Visiting) -> None:
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


def test_alerts_that_cannot_be_acknowledged_stay_selected(crashing: ThreadedService, visiting: Visiting) -> None:
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


def test_a_silence_of_an_alert_shows_what_it_mutes(crashing: ThreadedService, visiting: Visiting) -> None:
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


def test_alerts_are_acknowledged_at_once(crashing: ThreadedService, shared: httpx.Client, visiting: Visiting) -> None:
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


def test_selections_survive_an_update(crashing: ThreadedService, shared: httpx.Client, visiting: Visiting) -> None:
    page = visiting(crashing.url).go("/alerts")
    row = page.get_by_role("table", name="Firing").locator("tbody", has_text=MATH.run)
    row.locator("summary").click()
    row.get_by_role("checkbox").check()
    send(shared, RunKey("code", "ppo-late"), CRASH)
    expect(page.get_by_role("button", name="crashed: 6 runs")).to_be_visible()
    expect(row.locator("details")).to_have_attribute("open", "")
    expect(row.get_by_role("checkbox")).to_be_checked()


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
def test_the_budget_leads_to_the_rules(budgeted: ThreadedService, visiting: Visiting, size: tuple[int, int]) -> None:
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
def test_axe_finds_nothing_in_the_budget_on_a_phone(budgeted: ThreadedService, visiting: Visiting, path: str) -> None:
    tab = visiting(budgeted.url, size=PHONE)
    page = tab.go(path)
    if path == "/alerts":
        page.get_by_text("Alarm budget").click()
        expect(page.get_by_role("link", name="Tune stale rollouts")).to_be_attached()
    else:
        expect(page.get_by_text("Over 2 runs.")).to_be_visible()
    assert tab.overflow_pixels == 0
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []
