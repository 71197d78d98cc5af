"""The page in a browser: what axe finds in each view, the words of each, and pictures on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.fixtures import browser
from tests.guards.golden_files import lines
from tests.guards.recorded_service import CRASHED, DRIFTING, ENFORCED, HEALTHY, SCALARS

STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
VIEWS = {
    "fleet": "/",
    "alerts": "/alerts",
    "drifting": f"/runs/{DRIFTING}?step=30",
    "healthy": f"/runs/{HEALTHY}",
    "scalars": f"/runs/{SCALARS}",
    "enforced": f"/runs/{ENFORCED}",
    "crashed": f"/runs/{CRASHED}",
    "compare": f"/compare?runs={HEALTHY},{DRIFTING}",
    "rule": "/rules/stale_rollouts",
    "docs": "/docs",
}


def views(url: str, pictures: Path | None = None) -> dict[str, Any]:
    """Return by view the violations that axe finds in light and dark, what the console says, and the headings."""
    found: dict[str, Any] = {}
    with browser.chromium() as chromium:
        for name, path in VIEWS.items():
            tab = browser.visit(chromium, url)
            page = tab.go(path)
            if "/runs/" in path or "/compare" in path:
                expect(page.locator("main .bone")).to_have_count(0, timeout=30_000)
            headings = page.locator("h1:visible, h2:visible, h3:visible").all_inner_texts()
            found[name] = {"headings": lines("\n".join(headings))}
            for theme in THEMES:
                page.emulate_media(color_scheme=theme)
                violations = (
                    Axe().run(page, options={"runOnly": {"type": "tag", "values": STANDARDS}}).response["violations"]
                )
                found[name][theme] = {
                    "axe": sorted(one["id"] for one in violations),
                    "console": tab.complaints,
                    "other hosts": tab.strangers,
                }
                if pictures is not None:
                    page.screenshot(path=pictures / f"{name}-{theme}.png", full_page=True)
            browser.leave(tab)
    return found
