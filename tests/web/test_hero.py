"""What a run's page says first: when it broke, what that means, the time line, and the fix."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.fixtures.browser import PHONE
from tests.web.conftest import Evaluate, Reading

pytestmark = pytest.mark.server("chromium")

PATH = "/runs/math/stale-8b"


def test_the_story_names_the_first_step_its_time_and_the_last_good_step(reading: Reading) -> None:
    page = reading(PATH).page
    card = page.get_by_label("Diagnosis")
    expect(card).to_contain_text(re.compile(r"Broke at step \d+, .+ ago; last good step \d+\."))
    expect(card).to_contain_text("Rollouts are sampled or scored with weights that are too old.")
    expect(card).to_contain_text(re.compile(r"Versions behind at the engine 16 \(at most 0\), agreement of token"))
    expect(card).not_to_contain_text("estimator")
    expect(card).to_contain_text("nobody has acknowledged it; owner: ana")
    since = card.get_by_role("button", name="Broke at step").inner_text().removeprefix("Broke at step ")
    assert page.locator("time").first.get_attribute("datetime").startswith("20")
    card.get_by_role("button", name="last good step").click()
    expect(page.locator(".step h2")).to_have_text(f"Step {int(since) - 1}")


def test_the_time_line_has_the_reward_over_the_cause_and_marks_where_it_broke(reading: Reading) -> None:
    page = reading(PATH).page
    line = page.get_by_role("img", name=re.compile(r"last good step \d+, broke at step \d+, reward now"))
    expect(line.locator(".name")).to_have_text([re.compile(r"^Reward 0\.\d+"), "Versions behind at the engine 16"])
    expect(line.locator(".mark.broke text")).to_have_text(re.compile(r"broke \d+"))
    expect(line.locator("path.course")).to_have_count(2)
    box = line.bounding_box()
    assert box is not None
    line.click(position={"x": box["width"] * 0.5, "y": 40})
    expect(page.locator(".step h2")).to_have_text(re.compile(r"Step (19|20)"))


def test_the_time_line_tells_how_long_before_the_reward_fell(evaluate: Evaluate) -> None:
    texts = evaluate(
        """async () => {
            const { storyLines, storyOf } = await import("/assets/any/diagnosis.js");
            const { catalogueOfSignals } = await import("/assets/any/panels.js");
            await catalogueOfSignals();
            const told = (facts) => {
                const story = storyOf(facts);
                return story && storyLines(story, { open() {}, closedAt: null })
                    .filter(Boolean).map((one) => one.textContent);
            };
            const cause = { finding: "A", since_step: 62, evidence: [
                { signal: "engine_lag", value: 0, bound: "below", threshold: 1, away_from: null, rules_out: true },
                { signal: "total_ppl_ratio", value: 1.4, bound: "above", threshold: 0.01, away_from: 1 },
            ] };
            const fall = { finding: "R", since_step: 77, evidence: [] };
            const diagnosis = { since_step: 62, last_good_step: 61, primary: "A", meaning: "They differ.",
                                observed: [cause, fall] };
            const alert = { rule: "reward_collapse", step: 63 };
            const none = { items: [] };
            return [
                told({ diagnosis, alerts: none }),
                told({ diagnosis: { ...diagnosis, observed: [cause] }, alerts: { items: [alert] } }),
                told({ diagnosis: { ...diagnosis, primary: "R", observed: [fall] }, alerts: none }),
                told({ diagnosis: { ...diagnosis, since_step: null }, alerts: none }),
            ];
        }"""
    )
    assert texts == [
        [
            "Broke at step 62, 15 steps before the reward fell (step 77); last good step 61.",
            "They differ. Ratio of perplexities 1.4 (usual: 1 ± 0.01).",
        ],
        [
            "Broke at step 62, 1 step before the reward fell (step 63); last good step 61.",
            "They differ. Ratio of perplexities 1.4 (usual: 1 ± 0.01).",
        ],
        ["Broke at step 62; last good step 61.", "They differ. "],
        None,
    ]


def test_evidence_that_rules_out_another_cause_shows_no_limit(evaluate: Evaluate) -> None:
    rows = evaluate(
        """async () => {
            const { evidenceTable } = await import("/assets/any/diagnosis.js");
            const evidence = [
                { signal: "engine_lag", value: 0, bound: "below", threshold: 1, away_from: null, rules_out: true },
                { signal: "mismatch_prob_pearson", value: 0.9, bound: "below", threshold: 0.95, away_from: null },
            ].map((one) => ({ since_step: 1, ...one }));
            const table = evidenceTable([{ evidence }], { catalogue: new Map(), open() {} });
            return [...table.querySelectorAll("tbody tr")].map((row) => row.cells[2].textContent);
        }"""
    )
    assert rows == ["usual", "≥ 0.95"]


def test_the_configuration_of_the_remedy_is_shown_whole(reading: Reading) -> None:
    tab = reading(PATH)
    lines = tab.page.locator(".snippet pre")
    expect(lines).to_contain_text('algorithm.rollout_correction.rollout_rs_threshold="0.99_1.01"')
    for width in (360, 768, 1440):
        tab.page.set_viewport_size({"width": width, "height": 900})
        hidden = lines.evaluate("(e) => [e.scrollHeight - e.clientHeight, e.scrollWidth - e.clientWidth]")
        assert (width, hidden, tab.overflow_pixels) == (width, [0, 0], 0)


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
            await line.show({ began: 22, rewardFell: 30, lastGood: 21, cause: null });
            const boxes = [...line.element.querySelectorAll(".mark text")].map((text) => text.getBoundingClientRect());
            line.element.remove();
            return boxes;
        }"""
    )
    first, second = boxes
    assert second["left"] >= first["right"] or second["top"] >= first["bottom"] - 3


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
    box = over.bounding_box()
    assert box is not None
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
    box = over.bounding_box()
    assert box is not None
    card = page.get_by_label("Diagnosis").get_by_role("button", name="Broke at step")
    since = int(card.inner_text().removeprefix("Broke at step "))
    over.hover(position={"x": box["width"] * since / 39, "y": 30})
    tip = figure.locator(".tip")
    expect(tip).to_contain_text(re.compile(r"step \d+, .+\nengines \S+ nats\nstaleness \S+ nats\ntotal \S+ nats\n"))
    expect(tip).to_contain_text(f"{since}: staleness")
    expect(figure.locator("figcaption .strong")).to_have_text(re.compile(r"^\S+ · \S+ · \S+$"))
    page.get_by_role("heading", name="stale-8b").hover()
    expect(tip).to_be_hidden()


def test_the_configuration_of_the_remedy_is_copied_without_what_has_no_known_value(reading: Reading) -> None:
    page = reading(PATH).page
    card = page.get_by_label("Diagnosis")
    expect(card.locator(".snippet li")).to_have_text(
        ["trainer.v1.sampler.max_off_policy_threshold: half of what it is"]
    )
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy the configuration")
    button.click()
    expect(button).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "actor_rollout_ref.actor.ppo_epochs=1" in copied
    assert "what it is" not in copied
    expect(button).to_have_text("Copy")
    card.get_by_role("tab", name="TRL").click()
    expect(card.locator(".snippet li")).to_have_text(["steps_per_generation: half of what it is"])


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
    expect(events.locator("li").filter(has_text="staleness").first).to_be_visible()
    events.locator("ol li button").first.click()
    expect(page.locator(".step h2")).to_have_text(re.compile(r"Step \d+"))
