"""What is shown says how old it is once the service does not answer, and once nothing is judged; nothing moves."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.browser import PHONE, WIDE
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.trainer import MATH, send_step, train
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting
from tests.web.test_accessibility import violations
from tests.web.test_live import LOST_MS, restart
from trmon.domain.identity import RunKey

RESET = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
PLACES = """() => [...document.querySelectorAll("main *")]
    .filter((one) => !one.closest(".claim, svg, details > :not(summary)"))
    .map((one) => one.getBoundingClientRect()).map(({ y, height }) => [y, height].map(Math.round).join())"""
VIEWS = {
    "/": ("1 run needs you", WIDE, "light"),
    "/alerts": ("1 alert fires, 1 unacknowledged", PHONE, "dark"),
    f"/runs/{MATH}": ("Act: ", WIDE, "dark"),
}


def banner(page: Page) -> Any:
    return page.locator("#stale")


@pytest.mark.parametrize("path", VIEWS)
def test_without_an_answer_a_banner_comes_the_claim_is_withdrawn_and_nothing_moves(
    path: str, paging: ThreadedService, visiting: Visiting
) -> None:
    claims, size, theme = VIEWS[path]
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


def test_a_tab_that_was_hidden_or_slept_shows_what_has_changed_before_it_claims_anything(
    paging: ThreadedService, visiting: Visiting
) -> None:
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


def test_without_the_live_events_the_page_is_read_every_five_seconds(
    paging: ThreadedService, visiting: Visiting
) -> None:
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
