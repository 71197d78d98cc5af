"""Actions on many runs of the fleet at once: what is selected, what is changed, and what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from tests.web.conftest import Visiting, service_of_started_runs
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey

RUNS = 24


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with 24 runs in two projects; tests that archive and delete some stand last."""
    keys = [("math" if i % 2 else "code", f"run-{i:02}") for i in range(RUNS)]
    service = service_of_started_runs(tmp_path_factory.mktemp("many") / "data", *keys)
    yield service
    service.stop()


@pytest.fixture
def client(many: ThreadedService) -> Iterator[httpx.Client]:
    with many.client() as client:
        yield client


Opening = Callable[[], Page]


def expect_rows(page: Page, n: int) -> None:
    """Expect so many runs in the table, the lines out of view included."""
    expect(page.get_by_role("table", name="Runs")).to_have_attribute("aria-rowcount", str(n + 1))


@pytest.fixture
def opening(many: ThreadedService, client: httpx.Client, visiting: Visiting) -> Opening:
    """Return a function that opens the fleet, sorted by name, once every run is listed."""

    def go() -> Page:
        page = visiting(many.url).go("/?sort=run")
        expect_rows(page, len(client.get("/api/v1/fleet").json()["items"]))
        return page

    return go


def select(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_label(f"Select {name}", exact=True).check()


def said(page: Page) -> str:
    return page.get_by_role("region", name="Selected runs").get_by_role("status").inner_text()


def press(page: Page, name: str) -> None:
    page.get_by_role("region", name="Selected runs").get_by_role("button", name=name).click()


def run_of(client: httpx.Client, name: str) -> dict[str, object]:
    run: dict[str, object] = client.get(f"/api/v1/runs/{name}").json()
    return run


def test_shift_selects_a_range_and_the_head_every_run_that_matches(opening: Opening) -> None:
    page = opening()
    expect(page.get_by_role("region", name="Selected runs")).to_be_hidden()
    select(page, "code/run-02")
    page.get_by_label("Select code/run-10").click(modifiers=["Shift"])
    assert said(page) == "5 runs selected"
    page.get_by_label("Select code/run-06").click()
    assert said(page) == "4 runs selected"
    page.get_by_label("Filter runs").fill("math")
    assert said(page) == "4 runs selected, 4 not shown"
    page.get_by_label("Select every run that matches").check()
    assert said(page) == "16 runs selected, 4 not shown"
    page.get_by_label("Filter runs").fill("")
    press(page, "Select all 24")
    assert said(page) == "24 runs selected"
    press(page, "Clear")
    expect(page.get_by_role("region", name="Selected runs")).to_be_hidden()


def test_the_keyboard_selects_two_to_eight_runs_are_compared_and_the_bar_fits_on_every_screen(opening: Opening) -> None:
    page = opening()
    bar = page.get_by_role("region", name="Selected runs")
    compare = bar.get_by_role("link", name="Compare")
    for key in ("j", "x", "j", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator("tbody [type=checkbox]:checked")).to_have_count(2)
    assert said(page) == "2 runs selected"
    for width, height in ((360, 740), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        for name in ("Archive", "Delete", "Clear"):
            expect(bar.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    press(page, "Clear")
    select(page, "code/run-00")
    expect(compare).to_have_count(0)
    select(page, "math/run-01")
    expect(compare).to_have_attribute("href", "/compare?runs=code/run-00,math/run-01")
    select(page, *(f"code/run-{number:02}" for number in range(2, 14, 2)))
    expect(compare).to_be_visible()
    select(page, "code/run-14")
    assert said(page) == "9 runs selected"
    expect(compare).to_have_count(0)


def test_a_selection_survives_sorting_and_updates(opening: Opening, client: httpx.Client) -> None:
    page = opening()
    select(page, "code/run-00", "math/run-01")
    page.get_by_role("button", name="run", exact=True).click()
    train(client, RunKey("code", "run-00"), steps=range(8), end=False)
    page.get_by_label("Filter runs").fill("run-00")
    expect(page.locator('tbody td[data-name="step"]')).to_have_text("7")
    expect(page.get_by_label("Select code/run-00")).to_be_checked()
    assert said(page) == "2 runs selected, 1 not shown"


def test_owner_tags_and_a_note_are_given_to_each(opening: Opening, client: httpx.Client) -> None:
    names = ("code/run-00", "math/run-01", "math/run-03")
    page = opening()
    select(page, *names)
    dialog = page.get_by_role("dialog")
    for button, label, value in (
        ("Owner", "Owner", "ana"),
        ("Add tag", "Tag", "ablation"),
        ("Note", "Note", "lr 2e-6"),
    ):
        press(page, button)
        expect(dialog.get_by_role("listitem")).to_have_text(list(names))
        dialog.get_by_label(label, exact=True).fill(value)
        dialog.get_by_role("button").first.click()
        expect(dialog).to_have_count(0)
    expect(page.locator("tbody tr", has_text="ana")).to_have_count(3)
    for name in names:
        eventually(lambda name=name: client.get(f"/api/v1/runs/{name}/notes").json()["items"])
        assert (run_of(client, name)["owner"], "ablation" in run_of(client, name)["tags"]) == ("ana", True)
    press(page, "Remove tag")
    dialog.get_by_label("Tag").select_option("ablation")
    dialog.get_by_role("button", name="Remove tag").click()
    for name in names:
        eventually(lambda name=name: run_of(client, name)["tags"], lambda tags: "ablation" not in tags)


def test_archived_runs_leave_and_come_back(opening: Opening, client: httpx.Client) -> None:
    page = opening()
    select(page, "code/run-00", "code/run-02")
    press(page, "Archive")
    expect_rows(page, RUNS - 2)
    expect(page.get_by_role("region", name="Selected runs")).to_be_hidden()
    assert run_of(client, "code/run-00")["archived"] is True
    page.goto(page.url.replace("?", "?archived=1&"))
    select(page, "code/run-02")
    press(page, "Unarchive")
    expect_rows(page, 1)
    assert run_of(client, "code/run-02")["archived"] is False
    client.patch("/api/v1/runs/code/run-00", json={"archived": False}).raise_for_status()


def test_several_runs_are_deleted_after_their_number_is_typed(opening: Opening, client: httpx.Client) -> None:
    page = opening()
    select(page, "code/run-00", "code/run-02")
    press(page, "Delete")
    dialog = page.get_by_role("dialog", name="Delete: 2 runs")
    confirmed = dialog.get_by_role("button", name="Delete 2 runs")
    dialog.get_by_label("Type the number of runs").fill("20")
    confirmed.click()
    expect(dialog).to_contain_text("Type 2 to delete the 2 runs.")
    assert client.get("/api/v1/runs/code/run-00").status_code == 200
    dialog.get_by_label("Type the number of runs").fill("2")
    confirmed.click()
    expect_rows(page, RUNS - 2)
    assert client.get("/api/v1/runs/code/run-00").status_code == 404
    select(page, "code/run-04")
    press(page, "Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 run").click()
    expect_rows(page, RUNS - 3)


def test_a_run_that_cannot_be_changed_is_named_and_the_others_are_changed(
    many: ThreadedService, client: httpx.Client, visiting: Visiting
) -> None:
    tab = visiting(many.url)
    page = tab.go("/?sort=run")
    select(page, "code/run-06", "math/run-01", "code/run-08")
    client.delete("/api/v1/runs/math/run-01")
    press(page, "Archive")
    alert = page.get_by_role("region", name="Selected runs").get_by_role("alert")
    expect(alert).to_contain_text("2 of 3 runs archived. Not archived:")
    expect(alert.get_by_role("listitem")).to_have_text(["math/run-01: no run 'math/run-01'"])
    assert [run_of(client, name)["archived"] for name in ("code/run-06", "code/run-08")] == [True, True]
    tab.expect_complaints("status of 404")
    press(page, "Close")
    expect(page.get_by_role("region", name="Selected runs")).to_be_hidden()


def test_a_read_only_token_changes_nothing_and_says_so(
    many: ThreadedService, client: httpx.Client, visiting: Visiting
) -> None:
    secret = make_token(client, "reader", Scope.READ)
    tab = visiting(many.url)
    page = tab.go("/?sort=run")
    page.get_by_label("Token").fill(secret)
    page.keyboard.press("Enter")
    select(page, "code/run-10", "code/run-12")
    press(page, "Archive")
    alert = page.get_by_role("region", name="Selected runs").get_by_role("alert")
    expect(alert.get_by_role("listitem")).to_have_text(["code/run-10, code/run-12: This token is read-only."])
    assert said(page) == "2 runs selected"
    tab.expect_complaints("401", "status of 403")
