"""The budget of a run on the page: loaded when it is opened, and not before."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Request, expect

from tests.fixtures.browser import PHONE, WIDE
from tests.web.conftest import Visiting
from tests.web.test_accessibility import violations

pytestmark = pytest.mark.server("chromium")

PATH = "/runs/math/stale-8b"


def test_the_budget_is_read_when_it_is_opened(visiting: Visiting) -> None:
    tab, asked = visiting(size=PHONE), list[str]()

    def note(request: Request) -> None:
        if request.url.endswith("/budget"):
            asked.append(request.url)

    tab.page.on("request", note)
    page = tab.go(PATH)
    section = page.get_by_label("Budget", exact=True)
    expect(section).to_contain_text("Budget: mismatch, lag, advice by pipeline")
    expect(page.locator(".charts canvas").first).to_be_visible()
    assert asked == []
    section.locator("summary").click()
    expect(section.locator("h2")).to_have_text(
        [
            *("Mismatch budget", "Lag and learning rate", "Where the drift comes from", "Kinds of off-policyness"),
            *("Advice by pipeline", "Advice to the trainer"),
        ]
    )
    assert len(set(asked)) == 1
    expect(section).to_contain_text("A conjecture for this run")
    expect(section).to_contain_text(re.compile(r"conjectured ceiling of 50 ess_seq, [\d.]+"))
    expect(section.locator("ol li")).to_have_count(5)
    expect(section).to_contain_text(re.compile(r"Asynchronous: Bound the staleness.*version_lag_max \d"))
    expect(section).to_contain_text(re.compile(r"staleness.*\(version_lag_max \d+\).*has it"))
    for size in (PHONE, WIDE):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert tab.overflow_pixels == 0
        assert violations(page) == []
