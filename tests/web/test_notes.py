"""Notes on the page of a run: under its header, as text, and leading to their steps."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.web.conftest import Visiting

pytestmark = pytest.mark.server("chromium")

MARKUP = '<img src=x onerror="window.taken=1">'


def test_notes_stand_under_the_header_as_text_and_lead_to_their_steps(
    service: ThreadedService, visiting: Visiting
) -> None:
    with service.client() as client:
        train(client, steps=range(4))
        for text, step in (*((f"note {number}", None) for number in range(6)), (MARKUP, 2)):
            client.post(f"/api/v1/runs/{MATH}/notes", json={"text": text, "step": step}).raise_for_status()
    page = visiting(service.url).go(f"/runs/{MATH}")
    notes = page.get_by_label("Notes")
    expect(notes.locator("> ul > li")).to_have_count(5)
    expect(notes.locator("li").first).to_contain_text(f"step 2{MARKUP}")
    expect(notes.locator("li").first).to_contain_text("local,")
    notes.locator("summary", has_text="2 older notes").click()
    expect(notes.locator("details")).to_contain_text("note 0")
    assert page.locator("main img").count() == 0
    notes.get_by_role("button", name="step 2").click()
    expect(page).to_have_url(re.compile(r"step=2"))
