"""Take the pictures of the page that the documentation shows, of a fleet trained for them: `make screenshots`.

With words as arguments, only pictures whose names begin with one of them are written: `take.py oncall`.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from email.message import EmailMessage
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser

from docs.screenshots.fleet import PROJECT, SILENT, STALE, Fleet
from tests.fixtures.browser import PHONE, chromium, leave, visit
from tests.fixtures.mail_server import MailServer
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually

HERE = Path(__file__).parent
STALL_SECONDS = 15.0
WIDE, TWO_PANES = (1360, 860), (1920, 1000)
PUBLIC = "http://127.0.0.1:8642"
DRAWN_MS = 2500
"""Charts are drawn after the words, and the heat map after the charts."""
LARGEST_BYTES = 180_000
COLOURS = 256
"""A picture that would be larger gets a palette of so many; not every one, for a palette loses what is rare."""


def main() -> None:
    """Train the fleet and take every picture."""
    with tempfile.TemporaryDirectory() as folder, MailServer(security="none") as mailbox:
        service = ThreadedService(Path(folder) / "data", stall_floor_seconds=STALL_SECONDS, **_mail(mailbox))
        fleet = Fleet(service.url)
        fleet.train()
        with service.client() as client, chromium() as browser:
            eventually(
                lambda: _kinds(client),
                lambda kinds: kinds[STALE.name] in ("act", "watch") and kinds[SILENT] == "stalled",
            )
            for size, word in ((WIDE, "wide"), (PHONE, "phone")):
                for theme in ("light", "dark"):
                    _take(browser, client, size=size, theme=theme, word=word)
            tab = visit(browser, service.url, size=TWO_PANES)
            page = tab.go("/")
            page.wait_for_timeout(DRAWN_MS)
            _write(HERE / "panes-light-wide.png", page.screenshot())
            leave(tab)
            _take_on_call(browser, service.url, mailbox)
        fleet.end()
        service.stop()


def _kinds(client: httpx.Client) -> dict[str, str]:
    return {run["run"]: run["verdict"]["kind"] for run in client.get("/api/v1/fleet").json()["items"]}


def _take(browser: Browser, client: httpx.Client, *, size: tuple[int, int], theme: str, word: str) -> None:
    since = client.get(f"/api/v1/runs/{PROJECT}/{STALE.name}").json()["status"]["verdict"]["since_step"]
    run = f"/runs/{PROJECT}/{STALE.name}"
    for name, path in {"fleet": "/", "run": run, "step": f"{run}?step={since}", "alerts": "/alerts"}.items():
        tab = visit(browser, str(client.base_url).rstrip("/"), size=size, theme=theme)
        page = tab.go(path)
        page.wait_for_timeout(DRAWN_MS)
        shot = page.locator(".step").screenshot() if name == "step" else page.screenshot()
        _write(HERE / f"{name}-{theme}-{word}.png", shot)
        leave(tab)


def _mail(mailbox: MailServer) -> dict[str, object]:
    return {
        "smtp_host": "127.0.0.1",
        "smtp_port": mailbox.port,
        "smtp_security": "none",
        "webhook_allow_hosts": "127.0.0.1",
        "email_from": "trmon@example.org",
        "email_to": "oncall@example.org",
        "public_url": PUBLIC,
    }


def _take_on_call(browser: Browser, url: str, mailbox: MailServer) -> None:
    """Take the on-call pictures of a phone: the mail, then the page that its buttons open."""
    subject = f"] {PROJECT}/{STALE.name}: "
    sent = next(one.message for one in mailbox.received if subject in one.message["Subject"])
    tab = visit(browser, url, size=PHONE)
    page = tab.page
    page.set_content(_as_shown(sent))
    _write(HERE / "oncall-message.png", page.screenshot())
    tab.go(page.get_by_role("link", name="Acknowledge").get_attribute("href").removeprefix(PUBLIC))
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Who").fill("ana")
    page.wait_for_timeout(DRAWN_MS)
    _write(HERE / "oncall-acknowledge.png", page.screenshot())
    dialog.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("acknowledged by ana").scroll_into_view_if_needed()
    page.wait_for_timeout(DRAWN_MS)
    _write(HERE / "oncall-acknowledged.png", page.screenshot())
    page.locator(".actions").get_by_role("button", name="Silence").click()
    page.wait_for_timeout(DRAWN_MS)
    _write(HERE / "oncall-silence.png", page.screenshot())
    leave(tab)


def _as_shown(message: EmailMessage) -> str:
    """Return the HTML of a mail with its picture in place."""
    parts = {part.get_content_type(): part for part in message.walk()}
    html, picture = parts["text/html"].get_content(), parts["image/png"]
    data = base64.b64encode(picture.get_content()).decode()
    return html.replace(f"cid:{picture['Content-ID'][1:-1]}", f"data:image/png;base64,{data}")


def _write(path: Path, shot: bytes) -> None:
    if not path.name.startswith(tuple(sys.argv[1:]) or ""):
        return
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size > LARGEST_BYTES:
        picture.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name} {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
