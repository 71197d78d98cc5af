"""Restarts and jumps of the learning rate as marks on the charts of a run."""

from __future__ import annotations

import msgspec
import pytest
from playwright.sync_api import expect

from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, send, step_report
from tests.web.conftest import Visiting
from trmon_client.core import wire

pytestmark = pytest.mark.server("chromium")


def test_the_legend_and_the_events_name_what_changed(service: ThreadedService, visiting: Visiting) -> None:
    again = {"attempt": "second", "launch": "launch-2"}
    with service.client() as client:
        send(client, MATH, wire.Start(**ORIGIN), *(step_report(step) for step in range(4)))
        saved = wire.SavedCheckpoint(2, "/c/<b>2</b>")
        send(client, MATH, wire.Pause(**ORIGIN, sequence=2, checkpoint=saved), wire.Start(**again))
        for step in range(3, 9):
            scalars = {"lr": 1e-3 if step < 6 else 2e-3}
            send(client, MATH, msgspec.structs.replace(step_report(step), scalars=scalars, **again))
        await_batches(client, n=8)
    page = visiting(service.url).go(f"/runs/{MATH}")
    legend = page.get_by_role("list", name="Marks on the charts")
    expect(legend).to_contain_text("restart")
    expect(legend).to_contain_text("configuration or learning rate")
    expect(legend).to_contain_text("checkpoint")
    page.locator(".eventlist summary").click()
    expect(page.locator(".eventlist")).to_contain_text("checkpoint /c/<b>2</b>")
    expect(page.locator(".eventlist")).to_contain_text("learning rate 0.001 → 0.002")
    expect(page.locator(".eventlist")).to_contain_text("restart of the trainer")
