"""The fleet in a real browser: urgency, filters, sorting and navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.web.conftest import Evaluate, Reading, Visiting, service_of_started_runs
from trmon.domain.identity import RunKey


def test_the_title_counts_the_runs_and_the_ill_one_comes_first_with_its_finding_first_step_and_fix(
    reading: Reading,
) -> None:
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


def test_a_long_name_and_a_short_one_keep_their_ends_and_move_nothing_out(
    service: ThreadedService, visiting: Visiting
) -> None:
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
