"""A run whose rows are in the lake, in a real browser: its charts, its diagnosis and the sequences of a step."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.fixtures.replay import replaying
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.store.lake.lakes import delete_moved, move_to_lake
from tests.web.conftest import ILL, Visiting
from tests.web.test_run import DRAWN, PANELS

pytestmark = pytest.mark.server("chromium")

PATH = f"/runs/math/{ILL.name}"


@pytest.fixture(scope="module")
def moved_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with an ill run that has ended and is only in the lake."""
    folder = tmp_path_factory.mktemp("lake-page")
    lake_url = str(folder / "lake")
    service = ThreadedService(folder / "data", lake_url=lake_url)
    with service.client() as client:
        with replaying(client, ILL):
            pass
        eventually(lambda: client.get(f"/api/v1{PATH}").json()["state"], lambda state: state == "finished")
    move_to_lake(service.app.state.components.store, lake_url, now=time.time() + 3600)
    delete_moved(service.app.state.components.store)
    yield service
    service.stop()


def test_a_run_that_is_only_in_the_lake_has_everything(moved_run: ThreadedService, visiting: Visiting) -> None:
    page = visiting(moved_run.url).go(f"{PATH}?step=30")
    page.wait_for_function(DRAWN, arg=len(PANELS))
    expect(page.get_by_label("Diagnosis")).to_contain_text("For the next run: Reduce the lag")
    expect(page.get_by_role("img", name=re.compile(r"\d+ sequences of 40 steps"))).to_be_visible()
    expect(page.locator(".step h2")).to_have_text("Step 30")
    expect(page.locator(".step tbody tr")).to_have_count(96)
