"""Run names and tags are untrusted: the page shows them as text and never as markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt
from tests.web.conftest import Visiting

pytestmark = pytest.mark.server("chromium")

MARKUP = '"><img src=x onerror="window.taken=1"><script>window.taken=1</script>'


def assert_untouched(page: Page) -> None:
    """Assert that no markup became an element or ran."""
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.taken") is None


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ThreadedService]:
    """A service on a free port."""
    service = ThreadedService(tmp_path / "data")
    yield service
    service.stop()


def test_markup_from_a_trainer_stays_text(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        corrupt(client, MATH, owner=MARKUP, tags=[MARKUP], config={MARKUP: MARKUP})
        policy = {"name": MARKUP[:40], "criteria": [{"statistic": "mean_k3", "upper": 0.5}]}
        client.put(f"/api/v1/runs/{MATH}/policy", json={"policy": policy, "reason": MARKUP})
        identity = client.get("/api/v1/alerts").json()["items"][0]["identity"]
        client.post(f"/api/v1/alerts/{identity}/ack", json={"author": MARKUP, "note": MARKUP})
        client.post(
            "/api/v1/silences", json={"matchers": [{"label": "run", "value": MARKUP}], "seconds": 60, "note": MARKUP}
        )
    tab = visiting(service.url)
    page = tab.go("/")
    expect(page.locator(".tag")).to_have_text([MARKUP])
    assert_untouched(page)
    tab.go(f"/runs/{MATH}?step=2&tab={MARKUP}")
    expect(page.locator("main > header")).to_contain_text(MARKUP)
    page.locator("summary", has_text="configuration").click()
    assert_untouched(page)
    tab.go("/alerts")
    expect(page.locator("tbody")).to_contain_text(MARKUP)
    assert_untouched(page)


def test_the_page_runs_no_injected_script(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/")
    with page.expect_console_message(lambda said: "Content Security Policy" in said.text):
        page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.taken = 1";
                document.body.append(script);
                document.body.insertAdjacentHTML("beforeend", '<img src="/x" onerror="window.taken = 1">');
            }"""
        )
    page.wait_for_timeout(200)
    assert page.evaluate("window.taken") is None
    tab.expect_complaints("Content Security Policy", "404")
