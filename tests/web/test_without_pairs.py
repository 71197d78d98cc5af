"""The page of a run with nothing to compare: its rewards and lengths, and no error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from playwright.sync_api import expect

from tests.client.trainer import settings
from tests.fixtures.running_service import Serve
from tests.web.conftest import Visiting
from trmon_client.monitor import Monitor


def test_a_run_without_log_probs_is_shown_with_its_rewards(serve: Serve, visiting: Visiting, tmp_path: Path) -> None:
    service = serve()
    with Monitor(settings(tmp_path, url=service.url)) as monitor:
        for step in range(30):
            rewards = np.arange(8) % 2 * 1.0
            monitor.log_batch(step=step, mask=np.ones((8, 6)), rewards=rewards, scalars={"entropy": 0.5}, chunks=1)
    tab = visiting(service.url)
    page = tab.go("/runs/math/grpo")
    for title in ("Reward", "Response length"):
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.get_by_role("figure").filter(has=page.get_by_role("heading", name="KL", exact=True))).to_have_count(0)
    page.goto(f"{service.url}/")
    expect(page.locator("main")).to_contain_text("grpo")
