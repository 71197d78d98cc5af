"""The head of a run's page: how the run ended, and what its trainer's calls get wrong."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.client.trainer import batch, settings
from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import MATH, corrupt, finish
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting
from trmon_client.monitor import Monitor


def test_a_crashed_run_shows_its_error_its_frames_and_its_warnings(
    serve: Serve, visiting: Visiting, tmp_path: Path
) -> None:
    service = serve()
    given = settings(tmp_path, url=service.url)
    try:
        with Monitor(given) as monitor:
            for step in (0, 1, 2, 1):
                monitor.log_batch(step=step, **batch(seed=step))
            raise RuntimeError("loss is NaN")
    except RuntimeError:
        pass
    with service.client() as client:
        eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run.get("state") == "crashed")
    page = visiting(service.url).go("/runs/math/grpo")
    expect(page.locator(".ending")).to_contain_text("RuntimeError: loss is NaN")
    expect(page.locator("#live")).to_have_text("up to date")
    expect(page.locator(".misuse")).to_contain_text("step 1 after step 2")
    page.get_by_text("innermost frames", exact=True).click()
    expect(page.get_by_text("in test_a_crashed_run_shows")).to_be_visible()


def test_beside_a_run_that_has_ended_nothing_is_live_and_the_fix_is_for_the_next(
    serve: Serve, visiting: Visiting
) -> None:
    service = serve()
    with service.client() as client:
        corrupt(client, MATH)
        finish(client, steps=range(6))
    page = visiting(service.url).go(f"/runs/{MATH}")
    expect(page.get_by_label("Diagnosis")).to_contain_text("For the next run: Check the log-prob stream first")
    expect(page.get_by_label("Diagnosis")).not_to_contain_text("Do this")
    expect(page.locator("#live")).to_have_text("up to date")
    page.get_by_role("link", name="Fleet").click()
    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator(".todo")).to_contain_text("For the next run: Check")
