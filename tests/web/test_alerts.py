"""Alerts in a real browser: acknowledging, silencing and history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt
from tests.web.conftest import Visiting
from trmon.domain.access import Scope

pytestmark = pytest.mark.server("chromium")


@pytest.fixture
def paging(tmp_path: Path) -> Iterator[ThreadedService]:
    """A service on which one alert fires."""
    service = ThreadedService(tmp_path / "data")
    with service.client() as client:
        corrupt(client, MATH)
    yield service
    service.stop()


def test_an_alert_is_acknowledged_with_a_name_and_a_note(paging: ThreadedService, visiting: Visiting) -> None:
    page = visiting(paging.url).go("/alerts")
    expect(page.locator("h1")).to_have_text("1 alert fires, 1 unacknowledged")
    expect(page.locator("tbody")).to_contain_text("corrupt log")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_label("Who").fill("ana")
    page.get_by_label("Note").fill("looking at the padding")
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    expect(page.locator("h1")).to_have_text("1 alert fires, 0 unacknowledged")
    expect(page.locator("tbody")).to_contain_text(re.compile("Acknowledged by ana .* looking at the padding"))
    page.get_by_role("link", name="Fleet").click()
    expect(page.locator("h1")).to_have_text("No run needs you, 1 acknowledged")


def test_an_alert_links_to_its_run_where_it_can_be_acknowledged_too(
    paging: ThreadedService, visiting: Visiting
) -> None:
    page = visiting(paging.url).go("/alerts")
    page.get_by_role("link", name="math / grpo").click()
    expect(page.locator(".step h2")).to_have_text("Step 0")
    page.get_by_role("button", name="Acknowledge 1 alert").click()
    page.get_by_label("Who").fill("ben")
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_label("Diagnosis")).to_contain_text("acknowledged by ben")


def test_a_silence_is_created_and_ended(paging: ThreadedService, visiting: Visiting) -> None:
    page = visiting(paging.url).go("/alerts")
    page.get_by_role("button", name="Silence", exact=True).click()
    page.get_by_label("run (shell pattern").fill("grp*")
    page.get_by_label("For").select_option("8")
    page.get_by_role("dialog").get_by_role("button", name="Silence").click()
    line = page.locator(".silences li")
    expect(line).to_contain_text("project=math, run~grp*, rule=corrupt_logprobs")
    expect(line).to_contain_text("ends in 8 h")
    line.get_by_role("button", name="End").click()
    expect(line).to_have_count(0)


def test_the_history_of_an_alert_opens(paging: ThreadedService, visiting: Visiting) -> None:
    page = visiting(paging.url).go("/alerts")
    page.get_by_role("button", name="History").click()
    expect(page.locator(".events")).to_contain_text("firing at step")


def test_a_read_only_token_gets_an_error_message(paging: ThreadedService, visiting: Visiting) -> None:
    with paging.client() as client:
        secret = make_token(client, "reader", Scope.READ)
    tab = visiting(paging.url)
    page = tab.go("/alerts")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_role("dialog")).to_contain_text("This token is read-only.")
    tab.expect_complaints("401", "403")
