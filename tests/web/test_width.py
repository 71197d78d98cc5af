"""At every width nothing scrolls sideways, axe finds nothing and no two names are alike; wide ones have two panes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.browser import PHONE, Visit
from tests.fixtures.service import ThreadedService
from tests.web.conftest import (
    Evaluate,
    Reading,
    Visiting,
    diagnosis,
    service_of_started_runs,
    violations,
    wait_until_drawn,
)

THEME_AT: dict[int, Literal["light", "dark"]] = {
    360: "light",
    390: "dark",
    768: "light",
    1360: "dark",
    1920: "light",
    2560: "light",
    3840: "dark",
}
TWO_PANES = (1920, 1000)
RUN, OTHER = "/runs/math/stale-8b", "/runs/math/healthy-8b"
CUT = """() => [...document.querySelectorAll("main *")].filter((one) => {
    const { overflowX, textOverflow } = getComputedStyle(one);
    const isCut = one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1 && one.checkVisibility();
    const isAllowed = one.closest(".sr, .fleet thead, .list thead, pre, canvas, .uplot, .sequences");
    if (!isCut || overflowX === "visible" || isAllowed) return false;
    return !(overflowX === "hidden" && textOverflow === "ellipsis" && one.closest("[title]"));
}).map((one) => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 80)}`)"""


STRAYED = """() => [...document.querySelectorAll(".fleet .tag, .fleet .run")].filter((one) => {
    const [inner, outer] = [one, one.closest("td")].map((each) => each.getBoundingClientRect());
    return inner.top < outer.top - 4 || inner.bottom > outer.bottom + 4 || inner.left < outer.left;
}).map((one) => one.textContent)"""


@pytest.mark.parametrize(
    "path",
    ["/", f"{RUN}?step=30", "/alerts", "/compare?runs=math/stale-8b,math/healthy-8b", "/rules/moe_routing", "/docs"],
)
def test_at_every_width_nothing_scrolls_sideways_and_axe_finds_nothing(path: str, visiting: Visiting) -> None:
    tab = visiting()
    tab.go(path)
    for width, theme in THEME_AT.items():
        tab.page.set_viewport_size({"width": width, "height": 1000})
        tab.page.emulate_media(color_scheme=theme)
        if width >= 1900 and (path == "/" or RUN in path):
            expect(tab.page.locator(".pane h1")).to_have_count(2)
            expect(tab.page.locator(".pane .charts canvas").first).to_be_visible()
        wait_until_drawn(tab.page)
        assert (width, tab.overflow_pixels, tab.page.evaluate(CUT)) == (width, 0, [])
        assert tab.page.evaluate(STRAYED) == []
        # Other tests hold this of phones and of 1,360 pixels; a run beside the fleet is the fleet beside its run.
        if width in (1920, 3840) and path != "/":
            assert violations(tab.page) == []


def test_no_words_of_the_badge_are_too_wide_for_a_phone(visiting: Visiting) -> None:
    badge = visiting(size=(360, 780)).go("/alerts").locator("#live")
    for words in ("live · 20 s ago", "live · 59 min ago", "reconnecting"):
        beyond, room = badge.evaluate(
            """(one, words) => {
                one.textContent = words;
                return [document.documentElement.scrollWidth - innerWidth, one.clientWidth];
            }""",
            words,
        )
        assert (beyond, room > 90) == (0, True), words


LONG = [
    *(
        ("math", f"qwen3-8b-grpo-gsm8k-async-lr1e-6-kl0.001-{engine}-seed{i}")
        for engine in ("fp8", "bf16")
        for i in range(2)
    ),
    *(
        ("team-reasoning-code", f"results-{way}-logs-rho{rho}-seed42")
        for way in ("pilot2_adq", "gates_1_2")
        for rho in (1, 3)
    ),
    *(("team-reasoning-maths", name) for name in ("x" * 60 + "1", "x" * 60 + "2", "grpo")),
]


# One look for the wait and the reading: the list is drawn again when a second pane appears.
FITTING_NAMES = """(count) => {
    const isCut = [...document.querySelectorAll("a.run")].some((one) => one.scrollWidth > one.clientWidth + 1);
    const cells = [...document.querySelectorAll('tbody td[data-name="run"] .oneline')];
    return !isCut && cells.length === count && cells.map((one) => [one.innerText, one.title]);
}"""


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service whose runs have long names that share much."""
    service = service_of_started_runs(tmp_path_factory.mktemp("long"), *LONG)
    yield service
    service.stop()


def test_no_two_runs_are_shown_alike_at_any_width(long_names: ThreadedService, visiting: Visiting) -> None:
    page = visiting(long_names.url).go("/")
    for width in THEME_AT:
        page.set_viewport_size({"width": width, "height": 1000})
        shown = page.wait_for_function(FITTING_NAMES, arg=len(LONG)).json_value()
        assert {title for _, title in shown} == {f"{project} / {run}" for project, run in LONG}
        assert len({text for text, _ in shown}) == len(LONG), shown


def test_the_page_folds_names_as_the_terminal_does(evaluate: Evaluate) -> None:
    cases = json.loads((Path(__file__).parents[1] / "terminal/names.json").read_text())
    shown = evaluate(
        """async (cases) => {
            const { foldNames } = await import("/assets/any/names.js");
            return cases.map(({ shown, width }) =>
                Object.fromEntries(foldNames(Object.keys(shown), (text) => text.length <= width)));
        }""",
        cases,
    )
    assert shown == [case["shown"] for case in cases]


def run_of(page: Page, name: str) -> None:
    """Expect a run in the right pane, marked in the left one, with the tab's title."""
    expect(page.locator(".pane").nth(1).locator("h1")).to_have_text(name)
    expect(page.locator(".pane a.run[aria-current]")).to_have_text(name)


def test_keys_move_through_the_fleet_and_show_the_run_beside_it(visiting: Visiting) -> None:
    tab = visiting(size=TWO_PANES)
    page = tab.go("/")
    run_of(page, "stale-8b")
    expect(page).to_have_title(re.compile("Fleet"))
    page.keyboard.press("j")
    run_of(page, "healthy-8b")
    expect(page).to_have_url(re.compile(rf"{OTHER}$"))
    expect(page).to_have_title(re.compile("healthy-8b"))
    expect(page.locator("a.run").nth(1)).to_be_focused()
    page.keyboard.press("k")
    run_of(page, "stale-8b")
    expect(page).to_have_url(re.compile(RUN))
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Run", exact=True)).to_be_focused()
    page.locator("a.run").nth(1).click()
    run_of(page, "healthy-8b")
    for name, path in (("stale-8b", RUN), ("stale-8b", "/")):
        page.go_back()
        run_of(page, name)
        expect(page).to_have_url(re.compile(path))
    expect(page).to_have_url(f"{tab.url}/")


def test_the_filters_stay_while_runs_are_looked_at_and_their_address_is_restored(visiting: Visiting) -> None:
    tab = visiting(size=TWO_PANES)
    page = tab.go("/")
    page.get_by_placeholder("Filter runs").fill("stale")
    expect(page.locator("a.run")).to_have_count(1)
    page.locator("a.run").click()
    expect(page).to_have_url(re.compile(RUN))
    expect(page.locator("a.run")).to_have_count(1)
    page.go_back()
    expect(page).to_have_url(f"{tab.url}/?q=stale")
    expect(page.locator("a.run")).to_have_count(1)


def test_below_1900_pixels_a_view_has_the_page(visiting: Visiting) -> None:
    tab = visiting(size=TWO_PANES)
    page = tab.go(OTHER)
    run_of(page, "healthy-8b")
    page.set_viewport_size({"width": 1899, "height": 1000})
    expect(page.locator("main > header h1")).to_have_text("healthy-8b")
    expect(page.locator(".pane")).to_have_count(0)
    page.set_viewport_size({"width": 1900, "height": 1000})
    run_of(page, "healthy-8b")
    page.get_by_role("link", name="Alerts").click()
    expect(page.locator("main > header h1")).to_contain_text("alert")


def test_what_a_person_does_with_the_most_urgent_run_takes_its_address(visiting: Visiting) -> None:
    tab = visiting(size=TWO_PANES)
    page = tab.go("/")
    run_of(page, "stale-8b")
    page.get_by_role("button", name="Time", exact=True).click()
    expect(page).to_have_url(f"{tab.url}{RUN}?by=time")
    expect(page).to_have_title(re.compile("stale-8b"))
    page.go_back()
    expect(page).to_have_url(f"{tab.url}/")
    expect(page).to_have_title(re.compile("Fleet"))


def test_a_run_that_is_not_found_is_said_beside_the_fleet(visiting: Visiting) -> None:
    tab: Visit = visiting(size=TWO_PANES)
    page = tab.go("/runs/math/nosuch")
    expect(page.locator(".pane").nth(1).locator("h1")).to_have_text("Run not found.")
    expect(page.locator("a.run")).to_have_count(2)
    page.locator("a.run").first.click()
    run_of(page, "stale-8b")
    tab.expect_complaints("404")


def test_what_is_shown_is_as_old_as_the_older_of_both_views(visiting: Visiting) -> None:
    tab = visiting(size=TWO_PANES)
    tab.page.clock.install()
    page = tab.go("/")
    run_of(page, "stale-8b")
    expect(page.locator(".pane .charts canvas").first).to_be_visible()
    page.route(f"**/api/v1{RUN}?*", lambda route: route.abort())
    for _ in range(9):
        page.clock.run_for(5_000)
        page.wait_for_timeout(100)
    expect(page.locator("#stale")).to_contain_text("No answer for")
    page.unroute_all()
    for _ in range(3):
        page.clock.run_for(5_000)
        page.wait_for_timeout(100)
    expect(page.locator("#stale")).to_be_hidden()
    tab.expect_complaints("ERR_FAILED")


def test_wide_screens_have_more_columns_of_charts(visiting: Visiting) -> None:
    page = visiting().go(RUN)
    for width, columns in ((1360, 3), (1920, 4), (2560, 4), (3840, 6)):
        page.set_viewport_size({"width": width, "height": 1000})
        expect(page.locator(".pane")).to_have_count(2 if width >= 1900 else 0)
        expect(page.locator(".charts canvas").first).to_be_visible()
        tracks = page.locator(".charts").first.evaluate(
            "(one) => getComputedStyle(one).gridTemplateColumns.split(' ').length"
        )
        assert columns <= tracks <= 6, width


def test_a_wide_screen_shows_no_run_beside_a_filter_that_matches_none(visiting: Visiting) -> None:
    page = visiting(size=TWO_PANES).go("/?q=nosuch")
    expect(page.get_by_text("No run matches these filters.")).to_be_visible()
    page.get_by_placeholder("Filter runs").fill("healthy")
    page.locator("a.run").click()
    run_of(page, "healthy-8b")


@pytest.mark.parametrize("path", ["/", "/runs/math/stale-8b"])
def test_axe_finds_nothing_on_a_phone_and_paper_has_no_controls(reading: Reading, path: str) -> None:
    page = reading(path).page
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    wait_until_drawn(page)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark", media="print")
    expect(page.locator(".top")).to_be_hidden()
    expect(page.locator("main button:not(.link)").locator("visible=true")).to_have_count(0)
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    if "runs" in path:
        expect(page.locator(".charts canvas").first).to_be_visible()
        expect(page.locator(".config").first).to_have_css("white-space", "pre-wrap")
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_axe_finds_a_planted_violation(reading: Reading) -> None:
    page = reading("/").page
    page.evaluate("document.querySelector('h1').style.color = '#f2f2f2'")
    expect(page.locator("h1")).to_be_visible()
    assert [one for one in violations(page) if one.startswith("color-contrast")]
    page.evaluate("document.querySelector('h1').style.color = ''")


def test_the_borders_of_controls_have_a_contrast_of_three(reading: Reading) -> None:
    page = reading("/alerts").page
    contrast = """() => {
            const probe = document.body.appendChild(document.createElement("span"));
            const channel = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
            const luminance = (name) => {
                probe.style.color = `var(${name})`;
                const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map((value) => channel(value / 255));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            const control = luminance("--control");
            return ["--card", "--ground", "--act-soft", "--watch-soft"].map((name) => ratio(control, luminance(name)));
        }"""
    contrasts = page.evaluate(contrast)
    page.emulate_media(color_scheme="dark")
    assert min(contrasts + page.evaluate(contrast)) >= 3
    border = page.get_by_role("button", name="New silence").evaluate("(one) => getComputedStyle(one).borderTopStyle")
    assert border == "solid"


def test_a_change_of_the_verdict_is_announced_and_new_numbers_are_not(evaluate: Evaluate) -> None:
    said = evaluate(
        """async (diagnosis) => {
            const { DiagnosisCard } = await import("/assets/any/diagnosis.js");
            const card = new DiagnosisCard({ catalogue: new Map() }, {});
            const show = (kind, why) => card.show({
                judged: { verdict: { kind, why } }, alerts: [], run: {}, diagnosis,
            });
            const heard = [];
            for (const [kind, why] of [["healthy", "a"], ["healthy", "b"], ["act", "c"], ["act", "d"]]) {
                await show(kind, why);
                heard.push(card.announcement.textContent);
            }
            return heard;
        }""",
        diagnosis(),
    )
    assert said == ["", "", "Act: c", "Act: c"]
