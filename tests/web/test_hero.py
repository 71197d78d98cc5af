"""What a run's page says first: what was found, when it began, the time line, the charts, the remedy and the risk."""

from __future__ import annotations

import math
import re
from itertools import combinations
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.fixtures.browser import PHONE, Visit
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train_until_risk
from tests.fixtures.waiting import eventually
from tests.web.conftest import Evaluate, Reading, Visiting, box_of, diagnosis, evidence, finding, violations
from trmon_client.core.signals.catalogue import signal_words

PATH = "/runs/math/stale-8b"


def test_the_finding_has_its_evidence_its_first_step_its_time_and_the_last_good_step(reading: Reading) -> None:
    page = reading(PATH).page
    card = page.get_by_label("Diagnosis")
    expect(card).to_contain_text(re.compile(r"Watch: stale rollouts since step \d\d"))
    expect(card).to_contain_text("What to do: Reduce the lag")
    expect(page.locator("main > header")).to_contain_text("tags dapo")
    expect(page.locator("#live")).to_contain_text("live")
    expect(card).to_contain_text("Rollouts are sampled with weights that are too old.")
    expect(card.get_by_role("list", name="Evidence of stale rollouts").locator("li")).to_contain_text(
        ["agreement of token probabilities is 0.", "versions behind at the engine is 16"]
    )
    expect(card).to_contain_text(re.compile(r"Began at step \d+, .+ ago; found at step \d+; last good step \d+\."))
    expect(card).to_contain_text("nobody has acknowledged it; owner: ana")
    assert page.locator("time").first.get_attribute("datetime").startswith("20")
    last_good = card.get_by_role("button", name="last good step")
    step = last_good.inner_text().removeprefix("last good step ")
    last_good.click()
    expect(page.locator(".step h2")).to_have_text(f"Step {step}")


def test_a_log_without_times_shows_none_of_its_import(visiting: Visiting) -> None:
    page = card_of(visiting(), config={"imported": {"format": "csv", "framework": None, "timed": False}})
    card = page.get_by_label("Diagnosis")
    expect(card).to_contain_text(re.compile(r"Began at step \d+; found at step"))
    expect(card.locator("time")).to_have_count(0)
    expect(page.get_by_role("button", name="Time", exact=True)).to_be_hidden()
    page.locator(".panel .u-over").first.hover()
    expect(page.locator(".panel .tip").first).to_contain_text(re.compile(r"^step \d+(?!,)"))


def test_the_time_line_has_the_reward_over_the_cause_and_shades_where_it_began(reading: Reading) -> None:
    page = reading(PATH).page
    line = page.get_by_role(
        "img", name=re.compile(r"last good step \d+, began at step \d+, found at step \d+, reward now")
    )
    expect(line.locator(".name")).to_have_text([re.compile(r"^Reward 0\.\d+"), "Versions behind at the engine 16"])
    expect(line.locator(".mark.began text")).to_have_text(re.compile(r"began \d+"))
    expect(line.locator("path.course")).to_have_count(2)
    good, _, found = map(int, re.findall(r"step (\d+)", line.get_attribute("aria-label") or ""))
    box = box_of(line)
    shaded = line.locator(".ill")
    assert float(shaded.get_attribute("x") or 0) == pytest.approx(good / 39 * box["width"], abs=2)
    assert float(shaded.get_attribute("width") or 0) == pytest.approx((found - good) / 39 * box["width"], abs=2)
    line.click(position={"x": box["width"] * 0.5, "y": 40})
    expect(page.locator(".step h2")).to_have_text(re.compile(r"Step (19|20)"))


FALL = finding(finding="reward_collapse", title="reward collapse", chart="reward_mean", since_step=77, found_step=80)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            diagnosis(finding(), FALL),
            "Began at step 62, 15 steps before the reward fell (step 77); found at step 66; last good step 61.",
        ),
        (
            diagnosis(finding(beyond_step=64), FALL, since_step=77),
            "Began at step 77, as the reward fell; last good step 61.",
        ),
        (
            diagnosis(finding(beyond_step=64)),
            "Began at step 62; beyond the limit at step 64; found at step 66; last good step 61.",
        ),
        (diagnosis(FALL), "Began at step 77; found at step 80; last good step 61."),
        (
            diagnosis(finding(since_step=0, found_step=4, from_start=True, last_good_step=None)),
            "Began at step 0; found at step 4; from the start, so no step was good.",
        ),
        (
            diagnosis(finding(since_step=3, last_good_step=None)),
            "Began at step 3; found at step 66; the last good step is not known.",
        ),
        (diagnosis(finding(severity="info"), word="healthy", since_step=None), None),
        (diagnosis(finding(finding="collapse_risk")), None),
    ],
)
def test_the_steps_of_an_illness_in_words(evaluate: Evaluate, given: dict[str, Any], words: str | None) -> None:
    told = evaluate(
        """async (diagnosis) => {
            const { storyLine } = await import("/assets/any/diagnosis.js");
            const { storyOf } = await import("/assets/any/chartdata.js");
            const { h } = await import("/assets/any/dom.js");
            const story = storyOf({ diagnosis });
            return story && h("p", {}, storyLine(story, { open() {}, when: null })).textContent;
        }""",
        given,
    )
    assert told == words


def test_limits_are_drawn_on_the_scale_of_their_signal_alone(evaluate: Evaluate) -> None:
    seen = (
        evidence("kl_k3", "total_kl_k3", value=0.2, limit=0.05),
        evidence("kl_k3.over_start", "total_kl_k3", value=40, limit=20, now=0.2),
        evidence("kl_k3.average", "total_kl_k3", value=0.1, limit=0.06, now=0.2),
        evidence("pearson_gap", "total_prob_pearson", value=0.3, limit=0.15, now=0.7),
    )
    given = diagnosis(finding(severity="page", evidence=seen))
    drawn = evaluate(
        """async (diagnosis) => {
            const { limitsOf } = await import("/assets/any/chartdata.js");
            return ["total_kl_k3", "total_prob_pearson", "reward_mean"].map((name) => limitsOf(diagnosis, [name]));
        }""",
        given,
    )
    assert drawn == [[{"at": 0.05, "kind": "act"}, {"at": 0.06, "kind": "act"}], [], []]


REMEDY = {
    "first": "Lower the limit.",
    "then": "Look at the rewards.",
    "options": {"algorithm.limit": "0.5"},
    "options_in_words": {"actor.optim.lr": "half of what it is"},
    "then_options": {"algorithm.clip": "0.1"},
    "then_options_in_words": {},
    "not_known": "Not in the configuration: actor.optim.lr.",
    "release": "verl 0.9.1",
    "to_paste": [f"algorithm.{'long.' * 20}limit=0.5"],
}


def card_of(tab: Visit, given: dict[str, Any] | None = None, **changed: Any) -> Page:
    """Show the page of a run with another diagnosis, or with other fields."""

    def answer(route: Route) -> None:
        run = route.fetch().json()
        route.fulfill(json=run | changed | ({} if given is None else {"diagnosis": given}))

    tab.page.route(re.compile(r"/runs/math/stale-8b\?include"), answer)
    return tab.go(PATH)


def test_the_checkpoint_to_go_back_to_is_in_the_card_and_on_the_time_line(visiting: Visiting) -> None:
    said = "Checkpoint to go back to: /c/<b>12</b> (step 12)."
    remedy = REMEDY | {"checkpoint": said, "checkpoint_step": 12, "checkpoint_path": "/c/<b>12</b>"}
    given = finding(chart="version_lag_mean", since_step=20, found_step=22, last_good_step=19)
    page = card_of(visiting(), diagnosis(given, remedy=remedy))
    expect(page.get_by_label("Diagnosis")).to_contain_text(said)
    line = page.get_by_role("img", name=re.compile("last good step 19, checkpoint of step 12, began at step 20"))
    expect(line.locator(".mark.saved text")).to_have_text("checkpoint 12")
    expect(line.locator(".mark.began text")).to_have_text("began 20")


def test_the_options_of_the_remedy_are_shown_whole_and_copied_where_their_value_is_known(visiting: Visiting) -> None:
    tab = visiting()
    page = card_of(tab, diagnosis(finding(), remedy=REMEDY))
    card = page.get_by_label("Diagnosis")
    expect(card).to_contain_text("What to do: Lower the limit.Options of verl 0.9.1")
    expect(card.get_by_role("list", name="Options to set by hand")).to_have_text("actor.optim.lr: half of what it is")
    expect(card).to_contain_text("Not in the configuration: actor.optim.lr.")
    card.locator("summary", has_text="If it persists").click()
    expect(card.get_by_role("list", name="Options to set if it persists")).to_have_text("algorithm.clip: 0.1")
    lines = card.locator("pre")
    for width in (360, 768, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        hidden = lines.evaluate("(e) => [e.scrollHeight - e.clientHeight, e.scrollWidth - e.clientWidth]")
        assert (width, hidden, tab.overflow_pixels) == (width, [0, 0], 0)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy the options")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == REMEDY["to_paste"][0]
    expect(button).to_have_text("Copy")


def test_what_is_also_found_over_outside_and_not_measured_is_told_beside_the_lead(visiting: Visiting) -> None:
    tab = visiting(size=PHONE)
    seen = (evidence("fall", "reward_mean", value=1, limit=0.85),)
    over = finding(headline="length surge at 3 to 9, over", ended_step=9)
    given = diagnosis(
        finding(),
        finding(
            finding="reward_collapse", title="reward collapse", headline="reward collapse since step 77", evidence=seen
        ),
        over=[over],
        outside=[{"signal": "mismatch_kl_k3", "words": "KL per token", "value": 0.21, "range": "< 0.005"}],
        notes=["60% of the groups solve nothing"],
        unmeasured=[{"what": "reward", "how": "pass rewards to log_batch"}],
    )
    page = card_of(tab, given)
    card = page.get_by_label("Diagnosis")
    expect(card).to_contain_text("Engine mismatch since step 62 (last good step 61). They differ.")
    expect(card).to_contain_text("Outside the healthy range: KL per token 0.21 (healthy < 0.005).")
    expect(card).to_contain_text("60% of the groups solve nothing.")
    for summary, words in (
        ("Also found: reward collapse", "Reward collapse since step 77. They differ.fall is 1 (limit 0.85)"),
        ("1 finding that is over", "Length surge at 3 to 9, over"),
        ("Not measured: 1 check", "Reward: pass rewards to log_batch"),
    ):
        expect(card.get_by_text(words)).to_be_hidden()
        card.locator("summary", has_text=summary).click()
        expect(card.locator("li", has_text=words)).to_be_visible()
    assert tab.overflow_pixels == 0
    assert violations(page) == []


def test_the_chart_of_the_finding_comes_first_with_the_limit_and_the_run_s_healthy_range(visiting: Visiting) -> None:
    seen = (evidence("grad_norm", "grad_norm", value=2.0, limit=1.5),)
    given = diagnosis(
        finding(chart="grad_norm", evidence=seen),
        outside=[{"signal": "grad_norm", "words": "gradient norm", "value": 1.03, "range": "< 0.5"}],
    )
    page = card_of(visiting(), given)
    first = page.locator(".charts figure").first
    expect(first.locator("h2")).to_have_text("Gradient norm")
    expect(first).to_contain_text("healthy < 0.5")
    expect(first).to_have_attribute("data-evidence", "watch")
    expect(page.locator(".charts [data-evidence=watch]")).to_have_count(1)


def test_labels_of_a_narrow_time_line_do_not_overlap(reading: Reading) -> None:
    page = reading(PATH).page
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    boxes = page.evaluate(
        """async () => {
            const { Timeline } = await import("/assets/any/timeline.js");
            const names = new Set(["reward_mean"]);
            const chartData = { path: "/runs/math/stale-8b", names, panels: [], series: { step: [39] } };
            const line = new Timeline(chartData, () => {});
            document.body.append(line.element);
            const lead = { chart: "lr", evidence: [] };
            const story = { began: 22, found: 25, interval: [21, 25], rewardFell: 30, lastGood: 21, lead };
            const boxes = [];
            for (const checkpoint of [null, 3, 20]) {
                await line.show({ ...story, checkpoint });
                const texts = [...line.element.querySelectorAll(".mark text")].filter((text) => text.textContent);
                boxes.push(texts.map((text) => text.getBoundingClientRect()));
            }
            line.element.remove();
            return boxes;
        }"""
    )
    assert [len(labels) for labels in boxes] == [2, 3, 3]
    for labels in boxes:
        for first, second in combinations(labels, 2):
            apart = second["left"] >= first["right"] or first["left"] >= second["right"]
            assert apart or abs(second["top"] - first["top"]) >= first["height"] - 3


def test_disclosures_and_selected_text_survive_updates(evaluate: Evaluate) -> None:
    found = evaluate(
        """async () => {
            const { h, refill } = await import("/assets/any/dom.js");
            const box = h("div", {});
            document.body.append(box);
            const draw = (text) => refill(box, h("p", {}, text),
                h("details", { "data-name": "a" }, h("summary", {}, text)),
                h("details", { "data-name": "b", open: true }, h("summary", {}, text)));
            const opened = () => [...box.querySelectorAll("details")].map((one) => one.open);
            const drawn = [];
            draw("one");
            const [first, second] = box.querySelectorAll("details");
            first.open = true;
            second.open = false;
            draw("two");
            drawn.push(box.firstChild.textContent, ...opened());
            document.getSelection().selectAllChildren(box.firstChild);
            draw("three");
            drawn.push(box.firstChild.textContent, String(document.getSelection()));
            document.getSelection().removeAllRanges();
            await new Promise((done) => setTimeout(done, 100));
            drawn.push(box.firstChild.textContent, ...opened());
            box.remove();
            return drawn;
        }"""
    )
    assert found == ["two", True, False, "two", "two", "three", True, False]


def test_charts_are_drawn_over_time_on_request_and_the_address_keeps_it(reading: Reading) -> None:
    page = reading(PATH).page
    axes = page.get_by_role("group", name="Horizontal axis")
    expect(axes.get_by_role("button", name="Steps")).to_have_attribute("aria-pressed", "true")
    axes.get_by_role("button", name="Time").click()
    page.wait_for_url(re.compile(r"\?by=time$"))
    page.reload()
    expect(axes.get_by_role("button", name="Time")).to_have_attribute("aria-pressed", "true")
    over = page.locator(".charts .u-over").first
    expect(over).to_be_visible()
    box = box_of(over)
    over.click(position={"x": box["width"] - 2, "y": box["height"] / 2})
    expect(page.locator(".step h2")).to_have_text(re.compile(r"Step \d+"))
    axes.get_by_role("button", name="Steps").click()
    page.wait_for_url(lambda url: "by=time" not in url)


def test_hovering_names_lines_units_and_events(reading: Reading) -> None:
    page = reading(PATH).page
    figure = page.locator("figure", has=page.get_by_role("heading", name="KL", exact=True))
    over = figure.locator(".u-over")
    expect(over).to_be_visible()
    over.scroll_into_view_if_needed()
    box = box_of(over)
    card = page.get_by_label("Diagnosis").get_by_role("button", name="Began at step")
    since = int(card.inner_text().removeprefix("Began at step "))
    over.hover(position={"x": box["width"] * since / 39, "y": 30})
    tip = figure.locator(".tip")
    expect(tip).to_contain_text(re.compile(r"step \d+, .+\nengines \S+ nats\nstaleness \S+ nats\ntotal \S+ nats\n"))
    expect(tip).to_contain_text(f"{since}: stale rollouts")
    expect(figure.locator("figcaption .strong .at")).to_have_text(re.compile(r"^\S+ · \S+ · \S+$"))
    page.get_by_role("heading", name="stale-8b").hover()
    expect(tip).to_be_hidden()


def test_events_are_listed_with_their_steps_and_a_legend_of_their_kinds(reading: Reading) -> None:
    page = reading(PATH).page
    events = page.get_by_label("Events")
    words = {"act": "page alert", "watch": "warning", "policy": "policy change", "note": "note"}
    expect(events.locator("ol span").first).to_be_attached()
    kinds = events.locator("ol span").evaluate_all("(all) => [...new Set(all.map((one) => one.className))]")
    expected = [text for kind, text in words.items() if f"kind-{kind}" in kinds]
    assert "warning" in expected
    expect(events.get_by_role("list", name="Marks on the charts").locator("li")).to_have_text(expected)
    events.get_by_text(re.compile(r"^\d+ events$")).click()
    expect(events.locator("li").filter(has_text="stale rollouts").first).to_be_visible()
    events.locator("ol li button").first.click()
    expect(page.locator(".step h2")).to_have_text(re.compile(r"Step \d+"))


SHOWN = 6


def risk_of(service: ThreadedService) -> dict[str, Any]:
    """Return the risk of a run that has one, and leave the run as it is."""
    with service.client() as client:
        newest_step = train_until_risk(client)
        path = f"/api/v1/runs/{MATH}/diagnosis"
        found = eventually(lambda: client.get(path).json(), lambda answer: answer.get("step") == newest_step)
        risk: dict[str, Any] = found["collapse_risk"]
        return risk


def percent(share: float) -> str:
    """Return a share as the page writes it: halves are rounded up, where Python rounds them to even."""
    return f"{math.floor(share * 100 + 0.5)}%"


def test_the_chart_has_its_thresholds_and_what_drives_it(serve: Serve, port: int, visiting: Visiting) -> None:
    service = serve(port=port, grace_seconds=2.0)
    risk = risk_of(service)
    tab = visiting(service.url, size=PHONE)
    figure = tab.go(f"/runs/{MATH}").locator("figure", has_text="Risk of collapse")
    expect(figure).to_contain_text(f"warns at {percent(risk['warn_at'])}; {risk['calibration']}")
    largest = sorted(risk["drivers"], key=lambda driver: -abs(driver["log_odds"]))[:SHOWN]
    lines = sorted(largest, key=lambda driver: -driver["log_odds"])
    expect(figure.locator("li")).to_have_text(
        [re.compile(f"^{re.escape(driver['words'])}[+−]{abs(driver['log_odds']):.2f}$") for driver in lines]
    )
    if risk["missing"]:
        expect(figure).to_contain_text(f"Not sent: {', '.join(map(signal_words, risk['missing']))}.")
    assert tab.overflow_pixels == 0


def test_a_line_and_a_badge_say_it_while_it_is_at_a_threshold_alone(evaluate: Evaluate) -> None:
    said = evaluate(
        """async () => {
            const { riskLine } = await import("/assets/any/diagnosis.js");
            const { riskBadge } = await import("/assets/any/fleetrows.js");
            const driven_by = ["gradient norm", "reward"];
            const calibration = "not calibrated for your trainer";
            const risk = (level) => ({ probability: 0.634, level, horizon_steps: 200, driven_by, calibration });
            const text = (element) => element?.textContent ?? null;
            return ["low", "warn", "page", "past"].map((level) => [
                text(riskLine({ diagnosis: { collapse_risk: risk(level) } })),
                text(riskBadge({ collapse_risk: risk(level) })),
            ]).concat([[text(riskLine({ diagnosis: null })), text(riskBadge({ collapse_risk: null }))]]);
        }"""
    )
    within = "63% risk of collapse within 200 steps (not calibrated for your trainer)"
    told = [f"{within}, driven by gradient norm and reward", "63% risk"]
    assert said == [[None, None], told, told, [None, None], [None, None]]
