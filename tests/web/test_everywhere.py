"""What every view offers: an honest page for unknown addresses, charts and runs that can be saved and shared."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import httpx
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from tests.fixtures.browser import Visit
from tests.fixtures.service import ThreadedService
from tests.web.conftest import Evaluate, Reading, Visiting

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


def test_the_page_names_an_openapi_document_that_is_there(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    (link,) = re.findall(r'href="([^"]*openapi[^"]*)"', page.text)
    document = client.get(link).json()
    assert "/api/v1/runs" in document["paths"]
