"""What every view offers: an honest page for unknown addresses, charts and runs that can be saved and shared."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.fixtures.service import ThreadedService
from tests.web.conftest import Evaluate, Visiting

pytestmark = pytest.mark.server("chromium")

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


def test_a_chart_is_saved_as_csv_in_full_precision(visiting: Visiting, replayed: ThreadedService) -> None:
    page = visiting().go(PATH)
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


def test_a_chart_is_saved_as_png_with_its_title(visiting: Visiting) -> None:
    page = visiting().go(PATH)
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


def test_a_run_is_shared_as_one_file(visiting: Visiting, tmp_path: Path) -> None:
    page = visiting().go(PATH)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Share report").click()
    assert saved.value.suggested_filename == "math-stale-8b.html"
    shared = tmp_path / "shared.html"
    saved.value.save_as(shared)
    assert "<h1>math/stale-8b</h1>" in shared.read_text()
    page.goto(f"file://{shared}")
    expect(page.locator("svg").first).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("staleness since step")


def test_an_error_of_the_service_is_said_instead_of_saved(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go(PATH)
    page.route("**/report.html", lambda route: route.fulfill(status=503, json={"detail": "The database is away."}))
    page.get_by_role("button", name="Share report").click()
    expect(page.locator("header [role=alert]").filter(has_text="The database is away.")).to_be_visible()
    tab.expect_complaints("503")
