"""Finding one's way: the palette, comparisons of runs, links in messages, and signing in."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
from playwright.sync_api import Locator, Page, Route, expect

from tests.fixtures.browser import PHONE
from tests.fixtures.running_service import ILL, WELL, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.fixtures.waiting import eventually
from tests.web.conftest import Reading, Visiting, violations
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey


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


def test_on_a_phone_a_button_opens_it_and_axe_finds_nothing(visiting: Visiting) -> None:
    page = visiting(size=PHONE).go("/")
    page.get_by_role("button", name="Find a run, a rule or a step").click()
    found = page.get_by_role("option", name="math/stale-8b")
    nothing = page.get_by_text("Nothing is called zzz.")
    for text, shown in (("", found), ("zzz", nothing)):
        page.get_by_role("combobox", name="Find a run, a rule or a step").fill(text)
        expect(shown).to_be_visible()
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
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


COMPARISON = "/compare?runs=math/healthy-8b,math/stale-8b"


def test_two_runs_are_compared_with_where_they_part(reading: Reading) -> None:
    page = reading(COMPARISON).page
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
    page = reading(COMPARISON).page
    page.get_by_role("button", name="Time").click()
    page.wait_for_url(f"**{COMPARISON}&by=time")
    page.reload()
    expect(page.get_by_role("button", name="Time")).to_have_attribute("aria-pressed", "true")


def test_what_cannot_be_compared_is_said(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/compare?runs=math/stale-8b,math/stale-8b")
    expect(page.get_by_role("alert")).to_contain_text("has 'math/stale-8b' twice")
    tab.expect_complaints("400")


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


def test_a_link_changes_something_only_once_its_button_is_pressed(paging: ThreadedService, visiting: Visiting) -> None:
    alert = incident(paging)
    tab = visiting(paging.url, size=PHONE)
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


def test_a_link_says_who_has_the_alert_or_that_it_is_over(paging: ThreadedService, visiting: Visiting) -> None:
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


def test_a_link_opens_the_runbook_of_its_run(replayed: ThreadedService, visiting: Visiting) -> None:
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


def test_a_token_is_asked_for_and_forgotten_with_the_tab(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
        secret = make_token(client, "ana", Scope.ADMIN)
    tab = visiting(service.url)
    page = tab.go(f"/runs/{MATH}?step=1")
    expect(page.locator("h1")).to_have_text("Sign in")
    expect(page.locator("#live")).to_have_text("signed out")
    page.get_by_label("Token").fill("trmon_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the token is unknown")
    page.get_by_label("Token").fill(secret)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("grpo")
    expect(page.locator(".step h2")).to_have_text("Step 1")
    expect(page.locator("#live")).to_have_text("up to date")
    page.reload()
    expect(page.locator("h1")).to_have_text("grpo")
    assert secret not in page.url + "".join(tab.asked)
    assert secret not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
    other = visiting(service.url)
    expect(other.go("/").locator("h1")).to_have_text("Sign in")
    expect(other.page.locator("#live")).to_have_text("signed out")
    for one in (tab, other):
        one.expect_complaints("401")


def test_the_form_is_drawn_once_and_keeps_what_is_typed(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
        make_token(client, "ana", Scope.ADMIN)
    tab = visiting(service.url)
    page = tab.page
    held: list[Route] = []
    page.route(re.compile("/api/v1/(?!events)"), lambda route: held.append(route))
    page.goto(f"{tab.url}/")
    expect(page.locator("#live")).to_have_text("signed out")
    expect(page.get_by_label("Token")).to_have_count(0)
    for route in held:
        route.continue_()
    page.get_by_label("Token").fill("trmon_typed")
    page.unroute_all()
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 500)))")
    expect(page.get_by_label("Token")).to_have_value("trmon_typed")
    tab.expect_complaints("401")
