"""A run in a real browser: its charts and their marks, its sequences and turns, notes, end and budget."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from playwright.sync_api import expect

from tests.client.test_turn_masks import IDS, POLICY, traces
from tests.client.trainer import batch, settings
from tests.fixtures.browser import PHONE, WIDE
from tests.fixtures.messages import ORIGIN
from tests.fixtures.running_service import OwnRun
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, corrupt, finish, send, step_report, train
from tests.fixtures.waiting import eventually
from tests.web.conftest import Evaluate, Reading, Visiting, box_of, diagnosis, violations
from trmon_client.core import wire
from trmon_client.monitor import Monitor

PATH = "/runs/math/stale-8b"
PANELS = [
    *("Version lag", "Engines agree", "Effective samples", "χ²", "Reward", "KL", "Masked, by reason"),
    *("Response length", "How responses end", "Gradient norm", "Gradient noise", "Entropy"),
    *("Entropy by advantage", "Pull on the entropy", "Router flips", "Distinct prompts", "Ratio by advantage"),
]
DRAWN = """(n) => {
    const canvases = [...document.querySelectorAll(".charts figure canvas")].map((canvas) => {
        const pixels = (top) => canvas.getContext("2d").getImageData(0, top, canvas.width, canvas.height - top).data;
        const [all, axis] = [pixels(0), pixels(canvas.height - Math.round(20 * devicePixelRatio))];
        let [blue, darkest] = [0, 0];
        for (let i = 0; i < all.length; i += 4) blue += all[i + 3] > 128 && all[i + 2] > all[i] + 60;
        for (let i = 3; i < axis.length; i += 4) darkest = Math.max(darkest, axis[i]);
        return blue > 20 && darkest > 200;
    });
    return canvases.length === n && canvases.every(Boolean);
}"""
"""Whether each of n charts has a line and readable labels of its axis."""


FIRES = {
    "rule": "two_trainers",
    "severity": "warn",
    "since_step": 3,
    "summary": "m/r: two trainers live: a & <b>",
    "fix": "End one.",
}


def test_alerts_on_the_run_itself_are_shown_with_their_fix(evaluate: Evaluate) -> None:
    text = evaluate(
        """async (diagnosis) => {
            const { DiagnosisCard } = await import("/assets/any/diagnosis.js");
            const judged = { verdict: { kind: "watch", why: "two trainers since step 3" } };
            const card = new DiagnosisCard({ catalogue: new Map() }, {});
            await card.show({ judged, diagnosis, alerts: [], run: {} });
            return card.element.textContent;
        }""",
        diagnosis(circumstances=[FIRES]),
    )
    assert "Watch: two trainers since step 3" in text
    assert "m/r: two trainers live: a & <b>. End one." in text


def test_every_healthy_range_of_the_catalogue_can_be_drawn(evaluate: Evaluate) -> None:
    found = evaluate(
        """async () => {
            const { range } = await import("/assets/any/panels.js");
            const specs = await (await fetch("/api/v1/signals")).json();
            const ranges = specs.filter((spec) => spec.healthy);
            return [ranges.length, ranges.filter((spec) => range(spec.healthy) === null).map((spec) => spec.name)];
        }"""
    )
    assert found[0] > 10
    assert found[1] == []


def test_a_click_on_a_chart_opens_the_sequences_of_its_step(reading: Reading) -> None:
    page = reading(PATH).page
    over = page.locator(".charts .u-over").first
    box = box_of(over)
    over.click(position={"x": box["width"] * 0.8, "y": box["height"] / 2})
    expect(page.locator(".step h2")).to_have_text(re.compile(r"Step 3\d"))
    assert re.search(r"step=3\d", page.url)
    expect(page.locator(".step tbody tr")).to_have_count(96)


def test_a_healthy_run_says_so_with_its_reward_and_nothing_more(reading: Reading) -> None:
    card = reading("/runs/math/healthy-8b").page.get_by_label("Diagnosis")
    expect(card).to_have_text(
        re.compile(r"^Healthy: reward 0\.\d+ to 0\.\d+\s*Judged to step 19 of 19, \d+ \w+ ago\s*Copy link$"),
        use_inner_text=True,
    )


def test_the_reason_of_a_verdict_may_be_a_remark_in_parentheses(evaluate: Evaluate) -> None:
    told = evaluate(
        """async () => {
            const { verdictWords } = await import("/assets/any/words.js");
            const of = (why) => verdictWords({ kind: "too_few_rows_to_judge", why }).join("");
            return [of("(7 of 20); reward 1 to 2"), of("paused"), of("")];
        }"""
    )
    assert told == [
        "Too few rows to judge (7 of 20); reward 1 to 2",
        "Too few rows to judge: paused",
        "Too few rows to judge",
    ]


def test_a_missing_step_shows_an_error(visiting: Visiting) -> None:
    tab = visiting()
    page = tab.go(f"{PATH}?step=9999")
    expect(page.locator(".step")).to_contain_text("step 9999")
    tab.expect_complaints("404")


def test_an_isolated_value_is_drawn_as_a_point(evaluate: Evaluate) -> None:
    blue = evaluate(
        """async () => {
            const { opts, plot } = await import("/assets/any/plot.js");
            const uPlot = await plot();
            const chartData = { markers: [], chosen: null };
            const hooks = { cursor: () => {} };
            const form = { n: 1, banded: false, log: false, width: 300, height: 130, chartData, hooks };
            const where = document.createElement("div");
            document.body.append(where);
            const drawn = new uPlot(opts(form), [[0, 1, 2, 3], [1, null, 2, null]], where);
            await new Promise((done) => setTimeout(done, 200));
            const { data } = drawn.ctx.getImageData(0, 0, drawn.ctx.canvas.width, drawn.ctx.canvas.height);
            let found = 0;
            for (let i = 0; i < data.length; i += 4) found += data[i + 3] > 128 && data[i + 2] > data[i] + 60;
            return found;
        }"""
    )
    assert blue > 10


def test_every_chart_is_drawn_with_its_axis_and_those_of_evidence_are_first_and_outlined(reading: Reading) -> None:
    page = reading(PATH).page
    expect(page.get_by_label("Charts").locator("h2")).to_have_text(PANELS)
    page.wait_for_function(DRAWN, arg=len(PANELS))
    outlined = page.locator('.charts [data-evidence="watch"]')
    expect(outlined.locator("h2")).to_have_text(PANELS[:4])
    expect(outlined.locator(".tag")).to_have_text(
        ["stale rollouts", "stale rollouts", "variance blow-up", "moderate drift"]
    )
    expect(page.locator("figure", has_text="Engines agree")).to_contain_text("healthy > 0.97")
    for words in (
        r"^Reward, chart: newest 0\.\d+, from 0\.\d+ to 0\.\d+; steps 0 to 39$",
        r"^KL, chart: engines newest \S+, from \S+ to \S+; .*total newest",
    ):
        expect(page.get_by_role("group", name=re.compile(words))).to_be_visible()


def test_the_heat_map_shows_the_threshold_and_the_card_what_each_policy_masks(reading: Reading) -> None:
    page = reading(PATH).page
    heat = page.get_by_role("img", name=re.compile(r"\d+ sequences of 40 steps"))
    expect(heat).to_have_attribute("aria-label", re.compile(r"^3840 .* 0% of the first .* ([5-9]\d|100)% of the last"))
    page.get_by_label("Criterion").select_option("max_abs_d")
    expect(page.locator("figure", has_text="against the threshold")).to_contain_text("at most 5")
    for name in ("trm_auto · decides, uncalibrated", "trm_max · shadow", "geo_mask · shadow", "token_veto · shadow"):
        expect(page.get_by_label("Policies")).to_contain_text(name)
    drawn = "document.querySelector('.heat canvas').toDataURL()"
    light = page.evaluate(drawn)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"(light) => {drawn} !== light", arg=light)


def test_a_link_opens_a_step_whose_sequences_sort_and_keys_move_on(reading: Reading) -> None:
    page = reading(f"{PATH}?step=30&from=10&to=35").page
    expect(page.locator(".step h2")).to_have_text("Step 30")
    expect(page.locator(".rangebar")).to_contain_text("steps 10 to 35")
    expect(page.locator(".step .pill").first).to_contain_text("trm_auto decides · masks")
    expect(page.get_by_role("img", name=re.compile("against length of 96 sequences"))).to_be_visible()
    expect(page.locator(".step .position").first).to_be_visible()
    rewards = page.locator(".step tbody tr td:nth-child(3)")
    page.get_by_role("button", name="reward", exact=True).click()
    first = float(rewards.first.inner_text())
    page.get_by_role("button", name="reward", exact=True).click()
    assert float(rewards.first.inner_text()) < first
    page.keyboard.press("]")
    expect(page.locator(".step h2")).to_have_text("Step 31")
    page.keyboard.press("[")
    expect(page.locator(".step h2")).to_have_text("Step 30")
    page.get_by_label("Close the step").click()
    expect(page.locator(".step")).to_be_hidden()
    assert "step=" not in page.url


def test_charts_zoom_by_keys_and_by_dragging_and_show_their_own_values(reading: Reading) -> None:
    page = reading(f"{PATH}?from=0&to=10").page
    lag = page.locator("figure", has_text="Version lag").locator("figcaption")
    expect(lag).to_contain_text("step 10")
    expect(page.get_by_label("Policies")).to_contain_text("mean of the last 20 steps")
    page.get_by_role("button", name="All steps").click()
    expect(lag).to_contain_text("initially 0")
    page.locator(".plot").first.focus()
    page.keyboard.press("+")
    expect(page.locator(".rangebar")).to_contain_text("steps 10 to 29")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".rangebar")).to_contain_text("steps 12 to 31")
    page.wait_for_url(re.compile("from=12&to=31"))
    page.keyboard.press("0")
    expect(page.locator(".rangebar")).to_contain_text("steps 0 to 39")
    over = page.locator(".charts .u-over").first
    over.scroll_into_view_if_needed()
    box = box_of(over)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=5)
    page.mouse.up()
    expect(page.locator(".rangebar")).to_contain_text(re.compile(r"steps \d\d to 3\d"))
    expect(page.locator(".step")).to_be_hidden()


MARKUP = '<img src=x onerror="window.taken=1">'


def test_notes_are_text_and_lead_to_their_steps(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        train(client, steps=range(4))
        for text, step in (*((f"note {number}", None) for number in range(6)), (MARKUP, 2)):
            client.post(f"/api/v1/runs/{MATH}/notes", json={"text": text, "step": step}).raise_for_status()
    page = visiting(service.url).go(f"/runs/{MATH}")
    notes = page.get_by_label("Notes")
    expect(notes.locator("> ul > li")).to_have_count(5)
    expect(notes.locator("li").first).to_contain_text(f"step 2{MARKUP}")
    expect(notes.locator("li").first).to_contain_text("local,")
    notes.locator("summary", has_text="2 older notes").click()
    expect(notes.locator("details")).to_contain_text("note 0")
    assert page.locator("main img").count() == 0
    notes.get_by_role("button", name="step 2").click()
    expect(page).to_have_url(re.compile(r"step=2"))


def test_a_crash_has_its_error_and_frames(service: ThreadedService, visiting: Visiting, tmp_path: Path) -> None:
    given = settings(tmp_path, url=service.url)
    try:
        with Monitor(given) as monitor:
            for step in (0, 1, 2, 1):
                monitor.log_batch(step=step, **batch(seed=step))
            raise RuntimeError("loss is NaN")
    except RuntimeError:
        pass
    with service.client() as client:
        eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run.get("state") == "crashed")
    page = visiting(service.url).go("/runs/math/grpo")
    expect(page.locator(".ending")).to_contain_text("RuntimeError: loss is NaN")
    expect(page.locator("#live")).to_have_text("up to date")
    expect(page.locator(".misuse")).to_contain_text("step 1 after step 2")
    page.get_by_text("innermost frames", exact=True).click()
    expect(page.get_by_text("in test_a_crash_has_its_error")).to_be_visible()


def test_the_fix_of_a_run_that_has_ended_is_for_the_next(service: ThreadedService, visiting: Visiting) -> None:
    with service.client() as client:
        corrupt(client, MATH)
        finish(client, steps=range(6))
    page = visiting(service.url).go(f"/runs/{MATH}")
    expect(page.get_by_label("Diagnosis")).to_contain_text(re.compile("What to do: In the next run, "))
    expect(page.locator("#live")).to_have_text("up to date")
    page.get_by_role("link", name="Fleet").click()
    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator(".todo")).to_contain_text("In the next run, ")


def test_the_legend_and_the_events_name_what_changed(service: ThreadedService, visiting: Visiting) -> None:
    again = {"attempt": "second", "launch": "launch-2"}
    with service.client() as client:
        send(client, MATH, wire.Start(**ORIGIN), *(step_report(step) for step in range(4)))
        saved = wire.SavedCheckpoint(2, "/c/<b>2</b>")
        send(client, MATH, wire.Pause(**ORIGIN, sequence=2, checkpoint=saved), wire.Start(**again))
        for step in range(3, 9):
            scalars = {"lr": 1e-3 if step < 6 else 2e-3}
            send(client, MATH, msgspec.structs.replace(step_report(step), scalars=scalars, **again))
        await_batches(client, n=8)
    page = visiting(service.url).go(f"/runs/{MATH}")
    legend = page.get_by_role("list", name="Marks on the charts")
    expect(legend).to_contain_text("restart")
    expect(legend).to_contain_text("configuration or learning rate")
    expect(legend).to_contain_text("checkpoint")
    page.locator(".eventlist summary").click()
    expect(page.locator(".eventlist")).to_contain_text("checkpoint /c/<b>2</b>")
    expect(page.locator(".eventlist")).to_contain_text("learning rate 0.001 → 0.002")
    expect(page.locator(".eventlist")).to_contain_text("restart of the trainer")


def test_the_budget_is_read_when_it_is_opened(visiting: Visiting) -> None:
    tab = visiting(size=PHONE)
    page = tab.go(PATH)
    section = page.get_by_label("Budget", exact=True)
    expect(section).to_contain_text("Budget: mismatch, lag, advice by pipeline")
    expect(page.locator(".charts canvas").first).to_be_visible()
    assert not [url for url in tab.asked if url.endswith("/budget")]
    section.locator("summary").click()
    expect(section.locator("h2")).to_have_text(
        [
            *("Mismatch budget", "Lag and learning rate", "Where the drift comes from", "Kinds of off-policyness"),
            *("Advice by pipeline", "Advice to the trainer"),
        ]
    )
    assert len({url for url in tab.asked if url.endswith("/budget")}) == 1
    expect(section).to_contain_text("A conjecture for this run")
    expect(section).to_contain_text(re.compile(r"conjectured ceiling of 50 ess_seq, [\d.]+"))
    expect(section.locator("ol li")).to_have_count(5)
    expect(section).to_contain_text(re.compile(r"Asynchronous: Bound the staleness.*version_lag_max \d"))
    expect(section).to_contain_text(re.compile(r"staleness.*\(version_lag_max \d+\).*has it"))
    for size in (PHONE, WIDE):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert tab.overflow_pixels == 0
        assert violations(page) == []


STEPS = 3
SEQUENCES = f"/batches/{STEPS - 1}/sequences?names=n_tokens"


def report_turns(run: OwnRun, folder: Path, *, policy: Any = POLICY, **turns: Any) -> dict[str, Any]:
    """Report three steps of two traces, of which one turn each is off-policy; return the row of the last step."""
    given = settings(folder, url=str(run.client.base_url), project=run.key.project, mode="enforce", policy=policy)
    with Monitor(given) as monitor:
        for step in range(STEPS):
            monitor.log_batch(step=step, chunks=1, **traces(), **turns)
    row: dict[str, Any] = eventually(lambda: run.get(f"/batches/{STEPS - 1}"), lambda row: "signals" in row)
    return row


def test_turns_are_decided_replayed_and_shown(run: OwnRun, visiting: Visiting, tmp_path: Path) -> None:
    row = report_turns(run, tmp_path, turn_ids=IDS)
    assert (row["mismatches"], row["signals"]["mask_rate"]) == (0, 0.0)
    assert row["signals"]["turn_mask_rate"] == 0.4
    # Of the 9 and 6 tokens of the two traces, rejected turns have 2 and 2.
    assert row["signals"]["turn_mask_rate_tokens"] == 4 / 15

    brief = run.get(SEQUENCES)
    assert (brief["turn_counts"], brief["turns"]) == ({"n_turns": [3, 2], "n_rejected": [1, 1]}, None)
    first, second = run.get(f"{SEQUENCES}&turns=true")["turns"]
    assert first["columns"]["n_tokens"] == [3, 2, 4]
    assert first["accepted"] == [True, False, True]
    assert first["reasons"] == [None, "turn_max_abs_d", None]
    assert second["accepted"] == [False, True]
    assert [criterion["statistic"] for criterion in first["criteria"]] == ["turn_max_abs_d", "turn_mean_k3"]
    assert first["criteria"][0]["values"][1] == first["columns"]["total_max_abs_d"][1] > 0.5
    assert run.get(f"{SEQUENCES}&turns=true&first=1&limit=1")["turns"] == [second]

    tried, untried = (run.ask("POST", "/whatif", {"policy": policy}).json()["turns"] for policy in (POLICY, "trm"))
    assert (tried, untried) == ({"n_turns": 5 * STEPS, "mask_rate": 0.4}, None)

    page = visiting().go(f"/runs/{run.key}?step={STEPS - 1}")
    page.get_by_role("button", name="Turns of sequence 0").click()
    shown = page.get_by_label("Turns of sequence 0", exact=True).locator("table")
    expect(shown.locator("th")).to_have_text(["turn", "tokens", "turn_max_abs_d", "turn_mean_k3", "decision"])
    expect(shown.locator("tbody tr")).to_have_count(3)
    expect(shown.locator("tbody tr").nth(1)).to_contain_text("✕\u00a0turn_max_abs_d")
    expect(shown.locator("tbody tr").nth(2)).to_contain_text("accepted")
    page.get_by_label("Close the turns").click()
    expect(shown).to_have_count(0)


def test_turns_without_criteria_show_their_drift(run: OwnRun, visiting: Visiting, tmp_path: Path) -> None:
    assert "turn_mask_rate" not in report_turns(run, tmp_path, policy="trm_max", turn_ids=IDS)["signals"]
    found = run.get(f"{SEQUENCES}&turns=true")
    assert found["turn_counts"] == {"n_turns": [3, 2], "n_rejected": None}
    assert found["turns"][0]["accepted"] is None
    page = visiting().go(f"/runs/{run.key}?step={STEPS - 1}")
    page.get_by_role("button", name="Turns of sequence 1").click()
    heads = page.get_by_label("Turns of sequence 1", exact=True).locator("th")
    expect(heads).to_have_text(["turn", "tokens", "max |d|", "mean k3"])


def test_a_run_without_turns_has_no_column_of_them(run: OwnRun, visiting: Visiting, tmp_path: Path) -> None:
    report_turns(run, tmp_path, policy="trm_max")
    found = run.get(f"{SEQUENCES}&turns=true")
    assert (found["turn_counts"], found["turns"]) == (None, None)
    page = visiting().go(f"/runs/{run.key}?step={STEPS - 1}")
    expect(page.locator(".step tbody tr")).to_have_count(2)
    expect(page.get_by_role("button", name="turns", exact=True)).to_have_count(0)
