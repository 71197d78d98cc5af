"""Take the pictures of the page that the documentation shows, of a fleet trained for them: `make screenshots`."""

from __future__ import annotations

import io
import runpy
import tempfile
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser

from tests.fixtures.browser import PHONE, chromium, leave, visit
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually

HERE = Path(__file__).parent
FLEET = runpy.run_path(str(HERE / "fleet.py"), run_name="fleet")
PROJECT, STALE, SILENT = FLEET["PROJECT"], FLEET["STALE"].name, FLEET["SILENT"]
STALL_SECONDS = 15.0
WIDE = (1360, 860)
DRAWN_MS = 2500
"""Charts are drawn after the words, and the heat map after the charts."""
LARGEST_BYTES = 180_000
COLOURS = 256
"""A picture that would be larger gets a palette of so many; not every one, for a palette loses what is rare."""


def main() -> None:
    """Train the fleet and take every picture."""
    with tempfile.TemporaryDirectory() as folder:
        service = ThreadedService(Path(folder) / "data", stall_floor_seconds=STALL_SECONDS)
        fleet = FLEET["Fleet"](service.url)
        fleet.train()
        with service.client() as client, chromium() as browser:
            eventually(
                lambda: _kinds(client), lambda kinds: kinds[STALE] in ("act", "watch") and kinds[SILENT] == "stalled"
            )
            for size, word in ((WIDE, "wide"), (PHONE, "phone")):
                for theme in ("light", "dark"):
                    _take(browser, client, size=size, theme=theme, word=word)
        fleet.end()
        service.stop()


def _kinds(client: httpx.Client) -> dict[str, str]:
    return {run["run"]: run["verdict"]["kind"] for run in client.get("/api/v1/fleet").json()["items"]}


def _take(browser: Browser, client: httpx.Client, *, size: tuple[int, int], theme: str, word: str) -> None:
    since = client.get(f"/api/v1/runs/{PROJECT}/{STALE}").json()["status"]["verdict"]["since_step"]
    run = f"/runs/{PROJECT}/{STALE}"
    for name, path in {"fleet": "/", "run": run, "step": f"{run}?step={since}", "alerts": "/alerts"}.items():
        tab = visit(browser, str(client.base_url).rstrip("/"), size=size, theme=theme)
        page = tab.go(path)
        page.wait_for_timeout(DRAWN_MS)
        shot = page.locator(".step").screenshot() if name == "step" else page.screenshot()
        _write(HERE / f"{name}-{theme}-{word}.png", shot)
        leave(tab)


def _write(path: Path, shot: bytes) -> None:
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size > LARGEST_BYTES:
        picture.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name} {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
