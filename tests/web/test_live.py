"""Live updates: a first run appears, a lost connection is shown, and no event is missed."""

from __future__ import annotations

import re
from dataclasses import replace

import httpx
from playwright.sync_api import expect

from tests.fixtures.messages import columns
from tests.fixtures.running_service import OwnRun, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, corrupt, send_step, train
from tests.web.conftest import Visiting
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey

LOST_MS = 20_000
CONNECTIONS_OF_A_HOST = 6
"""How many a browser opens at once, for all tabs."""
CODE = RunKey("code", "ppo")


def restart(service: ThreadedService) -> None:
    """Restart on the same port, as systemd would."""
    service.start(port=httpx.URL(service.url).port)


def test_an_empty_service_shows_how_to_start_and_then_the_first_run(
    service: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(service.url).go("/")
    expect(page.locator("h1")).to_have_text("No runs yet")
    expect(page.locator("pre").first).to_contain_text(f'url="{service.url}"')
    with service.client() as client:
        train(client, MATH)
    expect(page.locator("tbody a.run")).to_have_text(["grpo"], timeout=LOST_MS)


def test_a_run_appears_before_its_first_step_and_then_gets_charts(
    run: OwnRun, shared_service: ThreadedService, visiting: Visiting
) -> None:
    tab = visiting(shared_service.url)
    run.train(steps=(), end=False)
    page = tab.go(f"/runs/{run.key}")
    expect(page.get_by_label("Diagnosis")).to_contain_text("Unknown: no step has closed yet")
    for step in range(3):
        send_step(run.client, run.key, step=step)
    expect(page.locator(".charts h2", has_text="Reward")).to_be_visible(timeout=LOST_MS)
    tab.expect_complaints("404")


def test_an_open_run_updates_live_and_keeps_the_keyboard_focus(
    run: OwnRun, shared_service: ThreadedService, visiting: Visiting
) -> None:
    corrupt(run.client, run.key)
    page = visiting(shared_service.url).go(f"/runs/{run.key}")
    page.get_by_label("Diagnosis").get_by_text("If it persists").click()
    page.get_by_role("button", name="Copy link").focus()
    for step in range(6, 9):
        send_step(run.client, run.key, step=step)
    expect(page.locator(".rangebar")).to_contain_text("steps 0 to 7", timeout=LOST_MS)
    expect(page.locator("header:not(.top)")).to_contain_text("step 8")
    expect(page.get_by_role("button", name="Copy link")).to_be_focused()
    expect(page.locator("details[data-name=then]")).to_have_attribute("open", "")


def test_a_lost_connection_is_shown_resumes_where_it_stopped_and_a_new_view_says_so_meanwhile(
    service: ThreadedService, visiting: Visiting
) -> None:
    tab = visiting(service.url)
    places: list[str | None] = []
    tab.page.on(
        "request", lambda asked: places.append(asked.headers.get("last-event-id")) if "/events" in asked.url else None
    )
    with service.client() as client:
        train(client, MATH)
        page = tab.go("/")
        expect(page.locator("#live")).to_contain_text("live")
        corrupt(client, CODE)
    expect(page.locator("h1")).to_contain_text("1 run needs you", timeout=LOST_MS)
    service.stop()
    expect(page.locator("#live")).to_have_text("reconnecting", timeout=LOST_MS)
    expect(page.locator("tbody a.run")).to_have_text(["ppo", "grpo"])
    restart(service)
    with service.client() as client:
        train(client, RunKey("code", "sort"))
    expect(page.locator("#live")).to_contain_text("live", timeout=LOST_MS)
    expect(page.locator("tbody tr")).to_have_count(3, timeout=LOST_MS)
    assert places[0] is None
    assert int(places[-1] or 0) > 0
    service.stop()
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("h1")).to_have_text("The service does not respond.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    expect(page.locator("#live")).to_have_text(re.compile("^(no answer|reconnecting)$"))
    restart(service)
    expect(page.locator("h1")).to_have_text("1 alert fires, 1 unacknowledged")
    expect(page.locator("#live")).to_contain_text("live")
    tab.expect_complaints("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")


def test_the_badge_is_never_live_beside_an_error_and_a_late_response_is_ignored_once_the_user_has_left(
    service: ThreadedService, visiting: Visiting
) -> None:
    with service.client() as client:
        train(client, MATH)
    tab = visiting(service.url)
    page = tab.go("/")
    expect(page.locator("#live")).to_contain_text("live")
    page.route("**/api/v1/alerts?*", lambda route: route.abort())
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("h1")).to_have_text("The service does not respond.")
    expect(page.locator("#live")).to_have_text("no answer")
    page.unroute("**/api/v1/alerts?*")
    expect(page.locator("h1")).to_have_text("No alert fires")
    expect(page.locator("#live")).to_contain_text("live")
    tab.expect_complaints("ERR_FAILED")

    page.get_by_role("link", name="Fleet").click()
    tab.hold_back(f"/runs/{MATH}", seconds=0.5)
    page.locator("a.run").click()
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("h1")).to_have_text("No alert fires")
    page.wait_for_timeout(1500)
    expect(page.locator("h1")).to_have_text("No alert fires")
    assert page.url == f"{service.url}/alerts"
    expect(page).to_have_title("Alerts · trmon")


HOUR = 3600


def test_a_deleted_run_shows_run_not_found(run: OwnRun, shared_service: ThreadedService, visiting: Visiting) -> None:
    run.train()
    tab = visiting(shared_service.url)
    tab.page.clock.install()
    page = tab.go(f"/runs/{run.key}")
    run.ask("DELETE")
    page.clock.fast_forward(40_000)
    expect(page.locator("h1")).to_have_text("Run not found.")
    tab.expect_complaints("404")


def test_a_run_with_a_silent_trainer_does_not_stay_healthy(
    run: OwnRun, shared_service: ThreadedService, visiting: Visiting
) -> None:
    run.train(end=False)
    await_batches(run.client, run.key, n=2)
    tab = visiting(shared_service.url)
    tab.page.clock.install()
    page = tab.go(f"/runs/{run.key}")
    expect(page.locator("header:not(.top)")).to_contain_text("last report")
    expect(page.locator(".charts h2").first).to_be_visible()
    with page.expect_request(lambda request: f"/runs/{run.key}?include" in request.url):
        page.clock.fast_forward(40_000)


def test_a_signal_that_appears_at_a_later_step_gets_its_chart(
    run: OwnRun, shared_service: ThreadedService, visiting: Visiting
) -> None:
    run.train(steps=(), end=False)
    for step in range(2):
        content = columns(seed=step)
        unrewarded = {name: values for name, values in content.items() if name != "reward"}
        send_step(run.client, run.key, step=step, content=replace(content, by_name=unrewarded))
    await_batches(run.client, run.key, n=1)
    page = visiting(shared_service.url).go(f"/runs/{run.key}")
    charts = page.locator(".charts h2")
    expect(charts.first).to_be_visible()
    expect(charts.filter(has_text="Reward")).to_have_count(0)
    for step in range(2, 5):
        send_step(run.client, run.key, step=step)
    expect(charts.filter(has_text="Reward")).to_be_visible()


def test_ages_are_correct_if_the_browsers_clock_is_an_hour_off(
    run: OwnRun, shared_service: ThreadedService, visiting: Visiting
) -> None:
    corrupt(run.client, run.key)
    for off_seconds in (-HOUR, HOUR):
        tab = visiting(shared_service.url)
        tab.page.add_init_script(f"const now = Date.now; Date.now = () => now() + {1000 * off_seconds};")
        page = tab.go(f"/alerts?q={run.key.project}")
        expect(page.locator('td[data-name="since"]')).to_contain_text(re.compile(r"now|\d s ago"))


def test_a_hidden_tab_holds_no_connection(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
    for _ in range(CONNECTIONS_OF_A_HOST + 1):
        tab = visiting(service.url)
        tab.page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.seen !== true })")
        page = tab.go("/")
        expect(page.locator("a.run")).to_have_text(["grpo"])
    turn = "(seen) => { window.seen = seen; document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(turn, True)
    expect(page.locator("#live")).to_contain_text("live")
    page.evaluate(turn, False)
    expect(page.locator("#live")).to_have_text("reconnecting")


def test_a_revoked_token_signs_out_the_open_page(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
        admin = bearer(make_token(client, "ana", Scope.ADMIN))
        made = client.post("/api/v1/tokens", json={"name": "ben", "scopes": ["read"]}, headers=admin)
        tab = visiting(service.url)
        page = tab.go(f"/runs/{MATH}")
        page.get_by_label("Token").fill(made.json()["secret"])
        page.keyboard.press("Enter")
        expect(page.locator("#live")).to_have_text("up to date")
        expect(page.locator(".charts canvas").first).to_be_visible()
        assert client.delete("/api/v1/tokens/ben", headers=admin).status_code == 204
    expect(page.locator("h1")).to_have_text("Sign in", timeout=40_000)
    expect(page.get_by_role("alert")).to_contain_text("no longer valid")
    tab.expect_complaints("401", "ERR_INCOMPLETE_CHUNKED_ENCODING")
