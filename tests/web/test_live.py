"""Live updates: a first run appears, a lost connection and the age of what is shown are told, no event is missed."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.browser import PHONE, WIDE
from tests.fixtures.messages import columns
from tests.fixtures.running_service import OwnRun, bearer, make_token
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.trainer import MATH, await_batches, corrupt, send_step, train
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting, violations
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey
from trmon.web.routes import demo_command

LOST_MS = 20_000
CONNECTIONS_OF_A_HOST = 6
"""How many a browser opens at once, for all tabs."""
CODE = RunKey("code", "ppo")


def restart(service: ThreadedService) -> None:
    """Restart on the same port, as systemd would."""
    service.start(port=httpx.URL(service.url).port)


def test_an_empty_service_has_commands_to_copy_and_then_a_run(service: ThreadedService, visiting: Visiting) -> None:
    page = visiting(service.url).go("/")
    expect(page.locator("h1")).to_have_text("No runs yet")
    expect(page.locator("pre").first).to_contain_text(f'url="{service.url}"')
    expect(page.get_by_role("button", name="Copy")).to_have_count(2)
    expect(page.get_by_text(demo_command())).to_be_visible()
    expect(page.get_by_text("no receiver of alerts is configured")).to_be_visible()
    with service.client() as client:
        train(client, MATH)
    expect(page.locator("tbody a.run")).to_have_text(["grpo"], timeout=LOST_MS)


def test_a_run_gets_charts_with_its_first_steps_and_a_later_signal_its_own(run: OwnRun, visiting: Visiting) -> None:
    tab = visiting()
    run.train(steps=(), end=False)
    page = tab.go(f"/runs/{run.key}")
    expect(page.get_by_label("Diagnosis")).to_contain_text("Unknown: no step has closed yet")
    for step in range(3):
        content = columns(seed=step)
        unrewarded = {name: values for name, values in content.items() if name != "reward"}
        send_step(run.client, run.key, step=step, content=replace(content, by_name=unrewarded))
    charts = page.locator(".charts h2")
    expect(charts.first).to_be_visible(timeout=LOST_MS)
    expect(charts.filter(has_text="Reward")).to_have_count(0)
    for step in range(3, 6):
        send_step(run.client, run.key, step=step)
    expect(charts.filter(has_text="Reward")).to_be_visible(timeout=LOST_MS)
    tab.expect_complaints("404")


def test_an_open_run_updates_live_and_keeps_the_keyboard_focus(run: OwnRun, visiting: Visiting) -> None:
    corrupt(run.client, run.key)
    page = visiting().go(f"/runs/{run.key}")
    page.get_by_label("Diagnosis").get_by_text("If it persists").click()
    page.get_by_role("button", name="Copy link").focus()
    for step in range(6, 9):
        send_step(run.client, run.key, step=step)
    expect(page.locator(".rangebar")).to_contain_text("steps 0 to 7", timeout=LOST_MS)
    expect(page.locator("header:not(.top)")).to_contain_text("step 8")
    expect(page.get_by_role("button", name="Copy link")).to_be_focused()
    expect(page.locator("details[data-name=then]")).to_have_attribute("open", "")


def test_a_lost_connection_is_shown_and_resumes(service: ThreadedService, visiting: Visiting) -> None:
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


def test_the_badge_is_not_live_beside_an_error_or_a_late_answer(service: ThreadedService, visiting: Visiting) -> None:
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


def test_a_deleted_run_shows_run_not_found(run: OwnRun, visiting: Visiting) -> None:
    run.train()
    tab = visiting()
    tab.page.clock.install()
    page = tab.go(f"/runs/{run.key}")
    run.ask("DELETE")
    page.clock.fast_forward(40_000)
    expect(page.locator("h1")).to_have_text("Run not found.")
    tab.expect_complaints("404")


def test_a_run_with_a_silent_trainer_does_not_stay_healthy(run: OwnRun, visiting: Visiting) -> None:
    run.train(end=False)
    await_batches(run.client, run.key, n=2)
    tab = visiting()
    tab.page.clock.install()
    page = tab.go(f"/runs/{run.key}")
    expect(page.locator("header:not(.top)")).to_contain_text("last report")
    expect(page.locator(".charts h2").first).to_be_visible()
    with page.expect_request(lambda request: f"/runs/{run.key}?include" in request.url):
        page.clock.fast_forward(40_000)


def test_ages_are_correct_if_the_browsers_clock_is_an_hour_off(run: OwnRun, visiting: Visiting) -> None:
    corrupt(run.client, run.key)
    for off_seconds in (-HOUR, HOUR):
        tab = visiting()
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


RESET = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
PLACES = """() => [...document.querySelectorAll("main *")]
    .filter((one) => !one.closest(".claim, svg, details > :not(summary)"))
    .map((one) => one.getBoundingClientRect()).map(({ y, height }) => [y, height].map(Math.round).join())"""
CLAIMS = {
    "/": ("1 run needs you", WIDE, "light"),
    "/alerts": ("1 alert fires, 1 unacknowledged", PHONE, "dark"),
    f"/runs/{MATH}": ("Act: ", WIDE, "dark"),
}


def banner(page: Page) -> Any:
    return page.locator("#stale")


@pytest.mark.parametrize("path", CLAIMS)
def test_without_an_answer_the_claim_is_withdrawn(path: str, paging: ThreadedService, visiting: Visiting) -> None:
    claims, size, theme = CLAIMS[path]
    tab = visiting(paging.url, size=size, theme=theme)
    tab.page.clock.install()
    page = tab.go(path)
    claim = page.locator("main .claim").first
    expect(claim).to_contain_text(claims)
    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator("main .bone")).to_have_count(0)
    paging.stop()
    expect(page.locator("#live")).to_have_text("reconnecting", timeout=LOST_MS)
    expect(banner(page)).to_be_hidden()
    places = page.evaluate(PLACES)
    page.clock.run_for(14_000)
    expect(banner(page)).to_have_text(re.compile(r"No answer for \d+ s: shown as of \d\d:\d\d "))
    expect(page.get_by_role("status").filter(has_text="out of date")).to_be_attached()
    expect(claim).to_contain_text(claims)
    assert page.evaluate(PLACES) == places
    page.clock.run_for(20_000)
    expect(claim.locator(".instead")).to_have_text("Not known now")
    expect(claim.locator(".withdrawn")).to_have_css("visibility", "hidden")
    page.clock.resume()
    for _ in range(8):
        page.wait_for_timeout(300)
        assert claim.locator(".instead").count() == 1, "the view was drawn over it"
    expect(page).to_have_title(re.compile(r"^\? "))
    assert page.evaluate(PLACES) == places
    assert violations(page) == []
    assert tab.overflow_pixels == 0
    restart(paging)
    page.clock.run_for(20_000)
    expect(banner(page)).to_be_hidden(timeout=LOST_MS)
    expect(claim).to_contain_text(claims)
    expect(claim.locator(".instead")).to_have_count(0)
    assert page.evaluate(PLACES) == places
    tab.expect_complaints(*RESET)


def test_a_tab_that_slept_claims_nothing_until_it_has_read(paging: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(paging.url)
    tab.page.clock.install()
    tab.page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.unseen === true })")
    page = tab.go("/")
    turn = "(unseen) => { window.unseen = unseen; document.dispatchEvent(new Event('visibilitychange')); }"
    expect(page.locator("#live")).to_contain_text("live")
    page.evaluate(turn, True)
    page.clock.run_for(300_000)
    with paging.client() as client:
        train(client, RunKey("code", "sort"))
    page.route("**/api/v1/**", lambda _: None)
    page.evaluate(turn, False)
    page.clock.run_for(1000)
    expect(page.locator("main .claim .instead")).to_have_text("Not known now")
    expect(banner(page)).to_contain_text("No answer for 5 min")
    page.unroute("**/api/v1/**")
    page.clock.fast_forward(600_000)
    expect(page.locator("tbody a.run")).to_have_count(2, timeout=LOST_MS)
    expect(page.locator("h1")).to_contain_text("1 run needs you")
    expect(banner(page)).to_be_hidden()
    tab.expect_complaints("ERR_")


def test_a_hung_worker_and_a_hung_service_are_shown_and_their_return_too(tmp_path: Path, visiting: Visiting) -> None:
    service = ServiceProcess(tmp_path / "data", grace_seconds="0.1")
    stopped = [worker_of(service)]
    try:
        with service.client() as client:
            train(client, MATH, end=False)
            eventually(lambda: client.get(f"/api/v1/runs/{MATH}").json()["status"]["judged_step"] == 2)
            tab = visiting(service.url)
            page = tab.go("/")
            expect(page.locator("#live")).to_contain_text("live")
            os.kill(stopped[0], signal.SIGSTOP)
            for step in range(3, 7):
                send_step(client, MATH, step=step)
        expect(banner(page)).to_have_text(re.compile(r"Judging has stopped: \d+ s"), timeout=LOST_MS)
        expect(page.locator("h1")).not_to_have_text("Not known now")
        page.get_by_role("link", name="Alerts").click()
        expect(banner(page)).to_contain_text("Judging has stopped")
        page.get_by_role("link", name="Fleet").click()
        expect(page.locator("tbody .behind")).to_have_text(re.compile(r"\(judged to step 2 of 6, \d+ s behind\)"))
        os.kill(stopped.pop(), signal.SIGCONT)
        expect(banner(page)).to_be_hidden(timeout=LOST_MS)
        expect(page.locator("tbody .behind")).to_have_count(0, timeout=LOST_MS)
        stopped.append(service.process.pid)
        os.kill(service.process.pid, signal.SIGSTOP)
        expect(banner(page)).to_contain_text("No answer for", timeout=LOST_MS)
        os.kill(stopped.pop(), signal.SIGCONT)
        expect(banner(page)).to_be_hidden(timeout=LOST_MS)
        tab.expect_complaints("ERR_")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        service.stop()


def worker_of(service: ServiceProcess) -> int:
    """Return the process of the embedded worker."""
    tasks = Path(f"/proc/{service.process.pid}/task")
    children = [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    return next(pid for pid in children if b"trmon.bootstrap.workers" in Path(f"/proc/{pid}/cmdline").read_bytes())


def test_without_events_the_page_is_read_every_five_seconds(paging: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(paging.url)
    tab.page.route("**/api/v1/events", lambda route: route.abort())
    page = tab.go("/")
    with paging.client() as client:
        train(client, RunKey("code", "sort"))
    expect(page.locator("tbody a.run")).to_have_count(2, timeout=LOST_MS)
    page.wait_for_timeout(12_000)
    expect(page.locator("#live")).to_have_text("reconnecting")
    expect(banner(page)).to_be_hidden()
    tab.expect_complaints("ERR_FAILED")
