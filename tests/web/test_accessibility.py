"""axe finds nothing on a phone; the goldens of the page hold this of every wide view, light and dark."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.fixtures.browser import PHONE
from tests.guards.page import STANDARDS
from tests.web.conftest import Evaluate, Reading
from tests.web.diagnoses import diagnosis


def violations(page: Page) -> list[str]:
    """Return each violation with the elements that have it."""
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": STANDARDS}}).response["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


def wait_until_drawn(page: Page) -> None:
    """Charts are drawn after the words, and what is read later takes the place of its shape."""
    if any(part in page.url for part in ("/runs/", "/compare")):
        expect(page.locator(".charts canvas").first).to_be_visible()
        expect(page.locator("main .bone")).to_have_count(0)


@pytest.mark.parametrize("path", ["/", "/runs/math/stale-8b"])
def test_axe_finds_nothing_on_a_phone_and_paper_has_words_and_charts_without_controls(
    reading: Reading, path: str
) -> None:
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
