"""Filters of the alerts view find resolved alerts that the page has not loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.fixtures.databases import open_migrated_store
from tests.fixtures.service import ThreadedService
from tests.store.builders import NOW, alert, append, commit, start_intake
from tests.web.conftest import Visiting
from trmon.domain.alerts.alert import AlertState
from trmon.domain.severity import Severity

pytestmark = pytest.mark.server("chromium")

LATER = 120
PAGE = 50


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
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


def test_words_find_a_resolved_alert_of_a_later_page(service: ThreadedService, visiting: Visiting) -> None:
    page = visiting(service.url).go("/alerts")
    expect(rows(page)).to_have_count(PAGE)
    page.get_by_label("Filter by project, run, rule, cause or owner").fill("needle logprobs")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("needle")
    page.reload()
    expect(rows(page)).to_have_count(1)


def test_a_severity_finds_a_resolved_alert_of_a_later_page(service: ThreadedService, visiting: Visiting) -> None:
    page = visiting(service.url).go("/alerts")
    page.get_by_label("severity").select_option("warn")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("unacknowledged only").check()
    expect(page.get_by_text("No alert matches these filters.")).to_be_visible()


def test_pages_of_a_search_are_loaded_on_demand(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
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
    service: ThreadedService, visiting: Visiting
) -> None:
    tab = visiting(service.url)
    page = tab.go("/alerts")
    tab.hold_back("search=nothing", seconds=1)
    page.get_by_label("Filter by project, run, rule, cause or owner").fill("nothing")
    none = page.get_by_text("No alert matches these filters.")
    page.wait_for_timeout(500)
    expect(none).to_be_hidden()
    expect(none).to_be_visible()
