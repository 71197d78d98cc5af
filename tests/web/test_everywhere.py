"""What every view offers: honest addresses, things to save and share, shapes before data, and no text that runs."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Route, expect

from tests.fixtures.browser import PHONE, WIDE, Visit
from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import send, send_step
from tests.fixtures.waiting import eventually
from tests.web.conftest import Evaluate, Reading, Visiting
from trmon.domain.identity import RunKey
from trmon_client.core import wire

PATH = "/runs/math/stale-8b"


def test_an_unknown_address_says_so_and_leads_back(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/unknown/address")
    expect(page.locator("h1")).to_have_text("Nothing is at this address.")
    expect(page.get_by_role("alert")).to_contain_text("/unknown/address")
    page.get_by_role("link", name="All runs").click()
    expect(page.locator("tbody a.run").first).to_be_visible()
    tab.expect_complaints("404")


def test_programs_get_problem_details_at_an_unknown_address(replayed: ThreadedService) -> None:
    with replayed.client() as client:
        for_person = client.get("/unknown", headers={"Accept": "text/html"})
        assert (for_person.status_code, for_person.headers["content-type"]) == (404, "text/html; charset=utf-8")
        for path, accept in (
            ("/unknown", "*/*"),
            ("/api/v1/unknown", "text/html"),
            ("/assets/any/none.js", "text/html"),
        ):
            found = client.get(path, headers={"Accept": accept})
            assert (found.status_code, found.headers["content-type"]) == (404, "application/problem+json")
        assert client.post("/unknown", headers={"Accept": "text/html"}).json()["status"] == 404


def test_a_chart_is_saved_as_csv_in_full_precision(reading: Reading, replayed: ThreadedService) -> None:
    page = reading(PATH).page
    figure = page.locator("figure", has=page.get_by_role("heading", name="Reward", exact=True))
    figure.get_by_label("Save the chart Reward").click()
    with page.expect_download() as saved:
        figure.get_by_role("button", name="CSV").click()
    assert saved.value.suggested_filename == "math-stale-8b-reward.csv"
    rows = list(csv.reader(Path(saved.value.path()).read_text().splitlines()))
    assert rows[0] == ["step", "closed at (UTC)", "reward_mean (reward)"]
    with replayed.client() as client:
        query = {"names": "reward_mean", "digits": 5}
        series = client.get(f"/api/v1{PATH}/signals", params=query).json()
    assert [int(row[0]) for row in rows[1:]] == series["step"]
    assert [float(row[2]) for row in rows[1:]] == series["signals"]["reward_mean"]["mean"]
    assert all(row[1].endswith("Z") for row in rows[1:])
    expect(figure.locator("details.export")).not_to_have_attribute("open", "")


def test_a_chart_is_saved_as_png_with_its_title(reading: Reading) -> None:
    page = reading(PATH).page
    figure = page.locator("figure", has=page.get_by_role("heading", name="Masked, by reason", exact=True))
    figure.get_by_label("Save the chart Masked, by reason").click()
    with page.expect_download() as saved:
        figure.get_by_role("button", name="PNG").click()
    assert saved.value.suggested_filename == "math-stale-8b-masked-by-reason.png"
    picture = Image.open(io.BytesIO(Path(saved.value.path()).read_bytes()))
    assert picture.width > 250
    colours = picture.convert("RGB").getcolors(maxcolors=1 << 20)
    assert colours is not None
    assert len(colours) > 10


def test_cells_of_csv_are_no_formulas(evaluate: Evaluate) -> None:
    cells = evaluate(
        """async () => {
            const { cell } = await import("/assets/any/chart.js");
            return ["=1+1", "-1.5", "@x", 'a "b", c', null, -2.5, "inf"].map(cell);
        }"""
    )
    assert cells == ["'=1+1", "-1.5", "'@x", '"a ""b"", c"', "", "-2.5", "inf"]


def test_a_run_is_shared_as_one_file(reading: Reading, tmp_path: Path) -> None:
    page = reading(PATH).page
    with page.expect_download() as saved:
        page.get_by_role("button", name="Share report").click()
    assert saved.value.suggested_filename == "math-stale-8b.html"
    shared = tmp_path / "shared.html"
    saved.value.save_as(shared)
    assert "<h1>math/stale-8b</h1>" in shared.read_text()
    opened = page.context.new_page()
    opened.goto(f"file://{shared}")
    expect(opened.locator("svg").first).to_be_visible()
    expect(opened.locator(".verdict")).to_contain_text("stale rollouts since step")
    opened.close()


def test_an_error_of_the_service_is_said_instead_of_saved(reading: Reading) -> None:
    tab = reading(PATH)
    page = tab.page
    page.route("**/report.html", lambda route: route.fulfill(status=503, json={"detail": "The database is away."}))
    page.get_by_role("button", name="Share report").click()
    expect(page.locator("header [role=alert]").filter(has_text="The database is away.")).to_be_visible()
    page.unroute_all()
    tab.expect_complaints("503")


TIME = re.compile(r"\d{1,2}:\d{2}(?!\d)")
ZONED = re.compile(r"\d{1,2}:\d{2}(?::\d{2})? (?:GMT[+-]\d+(?::\d+)?|UTC)")


@pytest.mark.parametrize("path", [PATH, "/alerts", "/"])
def test_every_time_in_a_view_has_its_zone(reading: Reading, path: str) -> None:
    page = reading(path).page
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    if path == PATH:
        expect(page.locator(".charts canvas").first).to_be_visible()
    titles = page.evaluate("[...document.querySelectorAll('[title]')].map((one) => one.title).join(' | ')")
    text = re.sub(r"--steps \d+:\d+", "", f"{page.locator('body').inner_text()} {titles}")  # of a command
    assert len(TIME.findall(text)) == len(ZONED.findall(text)), TIME.findall(text)
    if path == PATH:
        assert ZONED.search(text)


def test_the_zone_is_the_browser_s(chromium: Browser, visiting: Visiting) -> None:
    context = chromium.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    tab = Visit(context.new_page(), visiting().url)
    page = tab.go("/")
    said = page.evaluate(
        """async () => {
            const { clock, hour, zone } = await import("/assets/any/words.js");
            return [clock(1_700_000_000), hour(Date.now() / 1000), zone(1_700_000_000)];
        }"""
    )
    assert said[0] == "15 Nov 2023, 03:43 GMT+5:30"
    assert re.fullmatch(r"\d\d:\d\d GMT\+5:30", said[1])
    assert said[2] == "GMT+5:30"
    context.close()


def test_an_axis_of_times_names_its_zone(visiting: Visiting) -> None:
    tab = visiting()
    tab.page.add_init_script(
        """const filled = CanvasRenderingContext2D.prototype.fillText;
        window.written = new Set();
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.written.add(text);
            return filled.call(this, text, ...rest);
        };"""
    )
    page = tab.go("/runs/math/healthy-8b")
    expect(page.locator(".charts canvas").first).to_be_visible()
    assert not page.evaluate("[...window.written].filter((text) => /UTC|GMT/.test(text))")
    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_function("[...window.written].some((text) => /^(UTC|GMT)/.test(text))")


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


def test_a_rule_has_its_meaning_what_to_do_and_when_it_fires(reading: Reading) -> None:
    page = reading("/rules/reference_kl").page
    expect(page.locator("h1")).to_have_text("far from the reference model")
    card = page.locator("section.rule")
    for said in ("The policy has moved far from", "Raise the KL coefficient", "more than 3 over 20 rows"):
        expect(card).to_contain_text(said)
    expect(card.locator("code").first).to_have_text("level")


def test_a_rule_that_is_not_active_is_not_found(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/rules/none")
    expect(page.locator("h1")).to_have_text("Rule not found.")
    tab.expect_complaints("404")


def test_the_page_names_an_openapi_document_that_is_there(replayed: ThreadedService) -> None:
    with replayed.client() as client:
        page = client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        (link,) = re.findall(r'href="([^"]*openapi[^"]*)"', page.text)
        assert "/api/v1/runs" in client.get(link).json()["paths"]


VIEWS = ["/", "/alerts", "/runs/math/stale-8b", "/compare?runs=math/healthy-8b,math/stale-8b", "/rules/moe_routing"]
SLOW = """(() => {
    const fetched = window.fetch;
    const released = new Promise((done) => (window.release = done));
    window.fetch = async (url, options) => {
        const answer = await fetched(url, options);
        if (!String(url).includes("/events")) await released;
        return answer;
    };
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const { value, sources } of list.getEntries())
            window.shifts.push([value, sources.map(({ node }) => node?.id)]);
    }).observe({ type: "layout-shift" });
})()"""
FIRST = "(selector) => document.querySelector(selector).getBoundingClientRect().top"
NEAR_PIXELS = 6


def slowly(tab: Visit, path: str) -> Page:
    """Open a view whose answers wait for `window.release()`."""
    tab.page.add_init_script(SLOW)
    tab.page.goto(f"{tab.url}{path}")
    expect(tab.page.locator(".skeleton")).to_be_visible()
    return tab.page


def test_a_step_has_a_skeleton_too(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go("/runs/math/stale-8b")
    expect(page.locator(".editor")).to_be_attached()
    tab.hold_back("/batches/", seconds=0.5)
    page.get_by_role("spinbutton", name="Step").fill("30")
    page.get_by_role("button", name="Open step").click()
    panel = page.get_by_role("region", name="Step")
    expect(panel.locator(".bone").first).to_be_visible()
    expect(panel.get_by_role("table")).to_be_visible()
    expect(panel.locator(".bone")).to_have_count(0)


def test_shapes_stand_still_where_motion_is_unwanted(visiting: Visiting) -> None:
    page = slowly(visiting(), "/")
    shape = page.locator(".skeleton .bone").first
    expect(shape).to_have_css("animation-name", "breathe")
    page.emulate_media(reduced_motion="reduce")
    expect(shape).to_have_css("animation-name", "none")


def test_the_verdict_does_not_wait_for_the_charts(visiting: Visiting) -> None:
    tab = visiting(size=WIDE)
    page = tab.page
    held: list[Route] = []
    page.route(re.compile(r"/signals\?"), lambda route: held.append(route))
    page.goto(f"{tab.url}/runs/math/stale-8b")
    expect(page.locator("[aria-label='Diagnosis'] .headline")).to_be_visible()
    expect(page.locator(".charts .bone.plot").first).to_be_visible()
    assert held
    # Requests that are held continue.
    page.unroute_all()
    expect(page.locator(".charts canvas").first).to_be_visible()


@pytest.mark.parametrize(("path", "size"), [*((path, WIDE) for path in VIEWS), (VIEWS[2], PHONE)])
def test_the_skeleton_gives_way_without_a_jump(visiting: Visiting, path: str, size: tuple[int, int]) -> None:
    page = slowly(visiting(size=size), path)
    expect(page.locator("main")).to_have_attribute("aria-busy", "true")
    expect(page.get_by_text("Loading …")).to_be_attached()
    title, card = (page.evaluate(FIRST, selector) for selector in (".bone.title", ".skeleton .card"))
    page.evaluate("window.release()")
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
    if size == WIDE:
        assert page.evaluate(FIRST, "main h1") == pytest.approx(title, abs=NEAR_PIXELS)
        assert page.evaluate(FIRST, "main .card") == pytest.approx(card, abs=NEAR_PIXELS)
    if any(part in path for part in ("/runs/", "/compare")):
        expect(page.locator(".charts canvas").first).to_be_visible()
    page.wait_for_timeout(1000)
    moved = [value for value, names in page.evaluate("window.shifts") if set(names) != {"live"}]
    assert sum(moved) < 0.01


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
HOSTILE_VIEWS = (
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


@pytest.mark.parametrize("path", HOSTILE_VIEWS)
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
