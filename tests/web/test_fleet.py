"""The fleet in a real browser: urgency, filters, sorting, navigation, and actions on many runs at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.fixtures.waiting import eventually
from tests.web.conftest import Evaluate, Reading, Visiting, service_of_started_runs
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey


def test_the_title_counts_the_runs_and_the_ill_one_comes_first(reading: Reading) -> None:
    page = reading("/").page
    expect(page.locator("h1")).to_have_text("No run needs you, 1 to watch, 1 healthy")
    expect(page).to_have_title("Fleet · trmon")
    first = page.locator("tbody tr").first
    expect(first.locator('[data-name="verdict"]')).to_contain_text(
        re.compile(r"^Watch (\d+% risk)?stale rollouts since step \d\d")
    )
    expect(first.locator(".todo")).to_contain_text("Reduce the lag")
    expect(first.locator("a.run")).to_have_text("stale-8b")
    expect(first.locator("svg path")).to_have_count(2)
    expect(page.locator("tbody tr").nth(1).locator('[data-name="verdict"]')).to_contain_text("Healthy")


def test_every_control_is_reachable_by_tab_with_visible_focus(reading: Reading) -> None:
    page = reading("/").page
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent || document.activeElement.ariaLabel"))
    assert {"Skip to the content", "Alerts", "◐", "Filter runs", "verdict", "stale-8b", "healthy-8b"} <= set(reached)
    page.get_by_label("Filter runs").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.evaluate("document.activeElement.blur()")


def test_runs_are_filtered_by_words_owner_and_tag_and_the_address_keeps_it(reading: Reading) -> None:
    page = reading("/").page
    page.keyboard.press("/")
    page.keyboard.type("healthy")
    expect(page.locator("tbody a.run")).to_have_text(["healthy-8b"])
    page.get_by_label("Filter runs").fill("")
    page.get_by_label("owner").select_option("ana")
    expect(page.locator("tbody a.run")).to_have_text(["stale-8b"])
    page.reload()
    expect(page.locator("tbody a.run")).to_have_text(["stale-8b"])
    page.get_by_label("owner").select_option("")
    page.get_by_label("tag").select_option("grpo")
    expect(page.locator("tbody a.run")).to_have_text(["healthy-8b"])


def test_the_keyboard_lists_its_shortcuts_opens_a_run_and_returns(reading: Reading) -> None:
    page = reading("/").page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("j")
    expect(page.locator("tbody a.run", has_text="stale-8b")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("stale-8b")
    assert "/runs/math/stale-8b?step=" in page.url
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.locator("h1")).to_contain_text("needs you")
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page.locator("h1")).to_contain_text("unacknowledged")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("needs you")


def test_the_theme_follows_the_system_until_the_user_chooses(visiting: Visiting) -> None:
    page = visiting(theme="dark").go("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.keyboard.press("t")
    light = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector("main h1")
    assert page.evaluate(ground) == light


RUNS = 300
LONG = "qwen3-8b-grpo-with-a-very-long-name-that-no-phone-has-room-for-seed-3"


def names(page: Page) -> list[str]:
    """Return the names of the runs whose lines are in the document, in order."""
    return page.locator("tbody a.run").all_text_contents()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with 300 runs in two projects."""
    keys = [("math" if i % 3 else "code", f"run-{i:03}") for i in range(RUNS)]
    service = service_of_started_runs(tmp_path_factory.mktemp("large") / "data", *keys)
    yield service
    service.stop()


def test_twenty_lines_of_one_height_fit_on_a_screen(large: ThreadedService, reading: Reading) -> None:
    page = reading("/", large.url).page
    expect(page.locator("tbody tr").nth(24)).to_be_attached()
    shown = page.evaluate(
        """[...document.querySelectorAll("tbody tr")].filter((row) =>
            row.getBoundingClientRect().bottom <= innerHeight && row.scrollHeight <= row.clientHeight + 1).length"""
    )
    assert shown >= 20


def test_a_filter_finds_a_run_out_of_view_and_says_when_there_is_none(large: ThreadedService, reading: Reading) -> None:
    page = reading("/", large.url).page
    page.get_by_label("Filter runs").fill("run-007")
    expect(page.locator("tbody a.run")).to_have_text(["run-007"])
    page.get_by_label("Filter runs").fill("no such run")
    expect(page.get_by_text("No run matches these filters.")).to_be_visible()
    page.get_by_role("button", name="Show all runs").click()
    expect(page.get_by_text("No run matches these filters.")).to_be_hidden()
    expect(page.get_by_role("table", name="Runs")).to_have_attribute("aria-rowcount", str(RUNS + 1))


def test_the_arrow_of_a_column_tells_the_order(large: ThreadedService, reading: Reading) -> None:
    page = reading("/", large.url).page
    expect(page.get_by_role("table", name="Runs")).to_have_attribute("aria-rowcount", str(RUNS + 1))
    head = page.locator('th[data-name="run"]')
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert names(page) == sorted(names(page))
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names(page) == sorted(names(page), reverse=True)


def test_only_the_lines_in_view_are_in_the_document(large: ThreadedService, reading: Reading) -> None:
    page = reading("/?sort=run", large.url).page
    table = page.get_by_role("table", name="Runs")
    expect(table).to_have_attribute("aria-rowcount", str(RUNS + 1))
    assert 20 <= page.locator("tbody tr").count() < 60
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(page.locator("tbody tr").last).to_have_attribute("aria-rowindex", str(RUNS + 1))
    assert page.locator("tbody tr").count() < 60
    expect(page.get_by_role("button", name="verdict")).to_be_in_viewport()


def test_the_keyboard_walks_beyond_what_is_in_view(large: ThreadedService, reading: Reading) -> None:
    page = reading("/?sort=run", large.url).page
    expect(page.get_by_role("table", name="Runs")).to_have_attribute("aria-rowcount", str(RUNS + 1))
    for _ in range(60):
        page.keyboard.press("j")
    focused = page.locator("tbody tr", has=page.locator("a.run:focus"))
    expect(focused).to_be_in_viewport(ratio=1)
    expect(focused).to_have_attribute("aria-rowindex", "61")
    page.keyboard.press("k")
    expect(focused).to_have_attribute("aria-rowindex", "60")


def test_groups_count_their_runs_and_close(large: ThreadedService, reading: Reading) -> None:
    page = reading("/?sort=run", large.url).page
    page.get_by_label("group").select_option("project")
    head = page.locator("tr.head button").first
    expect(head).to_contain_text("code 100 runs")
    head.click()
    expect(head).to_have_attribute("aria-expanded", "false")
    expect(page.locator("tr.head button")).to_have_count(2)
    expect(page.locator("tr.head button").nth(1)).to_contain_text("math 200 runs")
    assert "group=project" in page.url


def test_runs_that_stalled_together_are_one_line(evaluate: Evaluate) -> None:
    closed, opened, acknowledged = evaluate(
        """async () => {
            const { linesOf } = await import("/assets/any/fleetrows.js");
            const runs = [...Array(300).keys()].map((i) => ({
                project: "math", run: `run-${i}`, tags: [], last_report_at: 1000 + i / 10,
                verdict: { kind: "stalled", need: "now", why: "" },
            }));
            const apart = { ...runs[0], run: "apart", last_report_at: 5000 };
            const given = { group: "", isByVerdict: true };
            const [head, other] = linesOf([...runs, apart], { ...given, turned: new Set() });
            const open = linesOf([...runs, apart], { ...given, turned: new Set([head.key]) });
            const acked = runs.map((run) => ({ ...run, verdict: { ...run.verdict, need: "none" } }));
            return [
                [head.members.length, head.text.split(",")[0], other.run.run],
                open.length,
                linesOf(acked, { ...given, turned: new Set() }).length,
            ];
        }"""
    )
    assert closed == [300, "300 runs stopped reporting together", "apart"]
    assert opened == 302
    assert acknowledged == 300


def test_a_fleet_of_archived_runs_says_so(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, MATH)
        client.patch(f"/api/v1/runs/{MATH}", json={"archived": True})
    page = visiting(service.url).go("/")
    expect(page.locator("h1")).to_have_text("Every run is archived")
    page.get_by_role("link", name="Show archived runs").click()
    expect(page.locator("tbody a.run")).to_have_text(["grpo"])


def test_names_keep_their_ends_and_move_nothing_out(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, RunKey("a-project-with-a-long-name-of-its-own", LONG))
        train(client, RunKey("math", "qwen3-8b-grpo-5"))
    tab = visiting(service.url)
    page = tab.go("/?sort=run")
    for width in (360, 768, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator("a.run")).to_have_text([re.compile("^qw.*….*3$"), re.compile("^qw.*5$")])
        for part in ("a.run", 'td[data-name="alerts"]'):
            for line in page.locator(part).all():
                expect(line).to_be_in_viewport(ratio=1)
        assert tab.overflow_pixels <= 0


FEW = 24


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with 24 runs in two projects; tests that archive and delete some stand last."""
    keys = [("math" if i % 2 else "code", f"run-{i:02}") for i in range(FEW)]
    service = service_of_started_runs(tmp_path_factory.mktemp("many") / "data", *keys)
    yield service
    service.stop()


@pytest.fixture
def client_of_many(many: ThreadedService) -> Iterator[httpx.Client]:
    with many.client() as client_of_many:
        yield client_of_many


Opening = Callable[[], Page]


def expect_rows(page: Page, n: int) -> None:
    """Expect so many runs in the table, the lines out of view included."""
    expect(page.get_by_role("table", name="Runs")).to_have_attribute("aria-rowcount", str(n + 1))


@pytest.fixture
def opening(many: ThreadedService, client_of_many: httpx.Client, visiting: Visiting) -> Opening:
    """Return a function that opens the fleet, sorted by name, once every run is listed."""

    def go() -> Page:
        page = visiting(many.url).go("/?sort=run")
        expect_rows(page, len(client_of_many.get("/api/v1/fleet").json()["items"]))
        return page

    return go


def select(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_label(f"Select {name}", exact=True).check()


def said(page: Page) -> str:
    return page.get_by_role("region", name="Selected runs").get_by_role("status").inner_text()


def press(page: Page, name: str) -> None:
    page.get_by_role("region", name="Selected runs").get_by_role("button", name=name).click()


def run_of(client_of_many: httpx.Client, name: str) -> dict[str, object]:
    run: dict[str, object] = client_of_many.get(f"/api/v1/runs/{name}").json()
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


def test_a_selection_survives_sorting_and_updates(opening: Opening, client_of_many: httpx.Client) -> None:
    page = opening()
    select(page, "code/run-00", "math/run-01")
    page.get_by_role("button", name="run", exact=True).click()
    train(client_of_many, RunKey("code", "run-00"), steps=range(8), end=False)
    page.get_by_label("Filter runs").fill("run-00")
    expect(page.locator('tbody td[data-name="step"]')).to_have_text("7")
    expect(page.get_by_label("Select code/run-00")).to_be_checked()
    assert said(page) == "2 runs selected, 1 not shown"


def test_owner_tags_and_a_note_are_given_to_each(opening: Opening, client_of_many: httpx.Client) -> None:
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
        eventually(lambda name=name: client_of_many.get(f"/api/v1/runs/{name}/notes").json()["items"])
        assert (run_of(client_of_many, name)["owner"], "ablation" in run_of(client_of_many, name)["tags"]) == (
            "ana",
            True,
        )
    press(page, "Remove tag")
    dialog.get_by_label("Tag").select_option("ablation")
    dialog.get_by_role("button", name="Remove tag").click()
    for name in names:
        eventually(lambda name=name: run_of(client_of_many, name)["tags"], lambda tags: "ablation" not in tags)


def test_archived_runs_leave_and_come_back(opening: Opening, client_of_many: httpx.Client) -> None:
    page = opening()
    select(page, "code/run-00", "code/run-02")
    press(page, "Archive")
    expect_rows(page, FEW - 2)
    expect(page.get_by_role("region", name="Selected runs")).to_be_hidden()
    assert run_of(client_of_many, "code/run-00")["archived"] is True
    page.goto(page.url.replace("?", "?archived=1&"))
    select(page, "code/run-02")
    press(page, "Unarchive")
    expect_rows(page, 1)
    assert run_of(client_of_many, "code/run-02")["archived"] is False
    client_of_many.patch("/api/v1/runs/code/run-00", json={"archived": False}).raise_for_status()


def test_several_runs_are_deleted_after_their_number_is_typed(opening: Opening, client_of_many: httpx.Client) -> None:
    page = opening()
    select(page, "code/run-00", "code/run-02")
    press(page, "Delete")
    dialog = page.get_by_role("dialog", name="Delete: 2 runs")
    confirmed = dialog.get_by_role("button", name="Delete 2 runs")
    dialog.get_by_label("Type the number of runs").fill("20")
    confirmed.click()
    expect(dialog).to_contain_text("Type 2 to delete the 2 runs.")
    assert client_of_many.get("/api/v1/runs/code/run-00").status_code == 200
    dialog.get_by_label("Type the number of runs").fill("2")
    confirmed.click()
    expect_rows(page, FEW - 2)
    assert client_of_many.get("/api/v1/runs/code/run-00").status_code == 404
    select(page, "code/run-04")
    press(page, "Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 run").click()
    expect_rows(page, FEW - 3)


def test_a_run_that_fails_is_named(many: ThreadedService, client_of_many: httpx.Client, visiting: Visiting) -> None:
    tab = visiting(many.url)
    page = tab.go("/?sort=run")
    select(page, "code/run-06", "math/run-01", "code/run-08")
    client_of_many.delete("/api/v1/runs/math/run-01")
    press(page, "Archive")
    alert = page.get_by_role("region", name="Selected runs").get_by_role("alert")
    expect(alert).to_contain_text("2 of 3 runs archived. Not archived:")
    expect(alert.get_by_role("listitem")).to_have_text(["math/run-01: no run 'math/run-01'"])
    assert [run_of(client_of_many, name)["archived"] for name in ("code/run-06", "code/run-08")] == [True, True]
    tab.expect_complaints("status of 404")
    press(page, "Close")
    expect(page.get_by_role("region", name="Selected runs")).to_be_hidden()


def test_read_only_tokens_change_no_run(
    many: ThreadedService, client_of_many: httpx.Client, visiting: Visiting
) -> None:
    secret = make_token(client_of_many, "reader", Scope.READ)
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
