"""Every text that trainers, rules and people write is hostile; no view and no exported report runs any of it."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import send, send_step
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting
from trmon.domain.identity import RunKey
from trmon_client.core import wire

KEY, OTHER = RunKey("math", "hostile"), RunKey("math", "other")
TAKE = "window.taken=1"
MARKUP = f"\"'><img src=x onerror={TAKE}><svg onload={TAKE}></svg></script><script>{TAKE}</script>${{{TAKE}}}"
LINK = f"javascript:{TAKE}//"
NAMED = f"<img src=x onerror={TAKE}>"
RULES = f"""
- name: hostile
  severity: page
  immune_steps: 0
  when: {{signal: mask_rate, above: -1, clear: -2}}
  labels: {{team: "{NAMED}"}}
  summary: '{{run}} {NAMED}'
  runbook: '{LINK} {NAMED}'
  meaning: '{NAMED}'
"""
UNKNOWN = {f"/rules/{NAMED}": "404", f"/compare?runs={NAMED},{LINK}": "400"}
"""What the browser says of addresses of nothing."""
VIEWS = (
    *("/", f"/?search={NAMED}", "/alerts", f"/alerts?search={NAMED}", "/rules/hostile", f"/compare?runs={KEY},{OTHER}"),
    *(f"/runs/{KEY}", f"/runs/{KEY}?step=2", f"/runs/{KEY}?tab={NAMED}&step={NAMED}", *UNKNOWN),
)


def hostile_messages() -> list[wire.Message]:
    """Return messages with markup in every field that takes text."""
    origin = {"attempt": NAMED, "launch": NAMED}
    lost = wire.Losses(dropped={NAMED: 3}, refused_policies={NAMED: MARKUP}, warnings={NAMED: MARKUP, LINK: LINK})
    start = wire.Start(
        **origin,
        owner=NAMED,
        tags=[NAMED, LINK],
        config={MARKUP: MARKUP, "nested": {NAMED: [MARKUP, LINK]}, "model": LINK, "framework": NAMED},
        client=MARKUP,
        ranks_unverified=True,
    )
    steps = [
        report(
            columns(seed=step, n_invalid=[1, 0, 0, 0]),
            **origin,
            step=step,
            finished=[wire.ChunkCount(step - 1, None, 1)] if step else [],
            scalars={NAMED: 1.0 + step, LINK: 2.0, f"reward/{NAMED}": 0.5},
            losses=lost,
        )
        for step in range(6)
    ]
    pause = wire.Pause(**origin, sequence=1, reason=MARKUP)
    end = {"reason": "exception", "error": MARKUP, "traceback": MARKUP, "signal": NAMED, "outcome": "crashed"}
    finish = wire.Finish(**origin, sequence=2, finished=[wire.ChunkCount(5, None, 1)], **end, losses=lost)
    return [start, *steps, pause, finish]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with a run whose texts are all markup, and what people wrote about it."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "rules.yaml").write_text(RULES)
    service = ThreadedService(folder / "data", rules_file=folder / "rules.yaml")
    with ExitStack() as stack:
        stack.callback(service.stop)
        client = stack.enter_context(service.client())
        send(client, KEY, *hostile_messages())
        send(client, OTHER, wire.Start(**ORIGIN, owner=NAMED, config={NAMED: LINK}))
        for step in range(6):
            send_step(client, OTHER, step=step)
        path = f"/api/v1/runs/{KEY}"
        eventually(lambda: client.get(path).json(), lambda run: run["state"] == "crashed")
        eventually(
            lambda: _alerts(client), lambda rules: {"hostile", "corrupt_logprobs"} <= rules, timeout_seconds=30.0
        )
        policy = {"name": MARKUP[:60], "criteria": [{"statistic": "mean_k3", "upper": 0.5}]}
        answers = [
            client.put(f"{path}/policy", json={"policy": policy, "shadows": [policy], "reason": MARKUP}),
            client.post(f"{path}/notes", json={"text": MARKUP, "author": NAMED}),
            client.post(f"{path}/notes", json={"text": f"{LINK}\n[x]({LINK})", "step": 2, "author": LINK}),
            client.patch(path, json={"owner": NAMED * 2}),
            client.post("/api/v1/silences", json=_silence()),
        ]
        assert {answer.status_code for answer in answers} <= {200, 201}, [answer.text for answer in answers]
        for alert in client.get("/api/v1/alerts", params={"limit": 100}).json()["items"]:
            client.post(f"/api/v1/alerts/{alert['identity']}/ack", json={"author": NAMED, "note": MARKUP})
        yield service


def _silence() -> dict[str, object]:
    return {"matchers": [{"label": "team", "value": NAMED}], "seconds": 600, "note": MARKUP, "author": NAMED}


def _alerts(client: httpx.Client) -> set[str]:
    found = client.get("/api/v1/alerts", params={"project": KEY.project, "limit": 100}).json()["items"]
    return {alert["rule"] for alert in found}


def open_everything(page: Page) -> None:
    """Open what a person can open, hover over charts, and follow each tab of the view."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    for chart in page.locator("canvas").all()[:4]:
        if chart.is_visible():
            chart.hover(force=True)
    page.wait_for_timeout(150)


def assert_inert(page: Page) -> None:
    """Assert that nothing ran, and that no text became an element, a handler or a link that runs something."""
    assert page.evaluate("window.taken") is None
    found = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((one) =>
            [...one.attributes].some(({ name, value }) =>
                name.startsWith("on") || (/^(href|src|action|formaction|xlink:href)$/.test(name)
                    && /^\\s*(javascript|data:text)/i.test(value)))
            || (one.localName === "img" && one.getAttribute("src") === "x")
            || (one.localName === "script" && one.textContent.includes("taken"))).map((one) => one.outerHTML)"""
    )
    assert found == []


@pytest.mark.parametrize("path", VIEWS)
def test_no_view_runs_a_text(hostile: ThreadedService, visiting: Visiting, path: str) -> None:
    tab = visiting(hostile.url)
    page = tab.go(path)
    expect(page.locator("main")).not_to_be_empty()
    page.wait_for_timeout(300)
    open_everything(page)
    assert_inert(page)
    if path in UNKNOWN:
        tab.expect_complaints(UNKNOWN[path])


def test_every_hostile_text_is_shown_as_text(hostile: ThreadedService, visiting: Visiting) -> None:
    page = visiting(hostile.url).go(f"/runs/{KEY}")
    expect(page.locator("main > header")).to_contain_text(NAMED)
    open_everything(page)
    shown = page.locator("body").inner_text()
    assert MARKUP in shown
    assert shown.count(NAMED) > 5


def test_a_shared_report_runs_no_text(hostile: ThreadedService, visiting: Visiting, tmp_path: Path) -> None:
    with hostile.client() as client:
        exported = client.get(f"/api/v1/runs/{KEY}/report.html")
    assert exported.status_code == 200
    assert html.escape(NAMED) in exported.text or html.escape(NAMED, quote=False) in exported.text
    file = tmp_path / "report.html"
    file.write_bytes(exported.content)
    page = visiting(hostile.url).page.context.new_page()
    page.goto(f"file://{file}")
    open_everything(page)
    assert_inert(page)
    page.close()


def test_answers_that_a_browser_opens_are_not_pages(hostile: ThreadedService) -> None:
    with hostile.client() as client:
        for path in (f"runs/{KEY}", f"runs/{KEY}/signals?names={NAMED}&format=csv", "alerts", f"runs/{NAMED}"):
            answer = client.get(f"/api/v1/{path}", headers={"Accept": "text/html"})
            assert not answer.headers["content-type"].startswith("text/html"), path
            assert answer.headers["x-content-type-options"] == "nosniff"
        metrics = client.get("/metrics", headers={"Accept": "text/html"})
        assert metrics.headers["content-type"].startswith(("text/plain", "application/openmetrics-text"))
