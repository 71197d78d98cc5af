"""The charts of a run: evidence first, quiet signals folded, smoothing, labels of axes, and what hovering moves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.client.trainer import settings
from tests.fixtures.browser import PHONE, WIDE
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.web.conftest import Evaluate, Reading, Visiting, box_of, diagnosis, evidence, finding, violations
from trmon_client.monitor import Monitor

ILL, WELL = "/runs/math/stale-8b", "/runs/math/healthy-8b"
LENGTH = (evidence("response_length.average_over_start", "response_length_mean", value=0.4, limit=0.5, now=124),)
SHORT = finding(finding="length_collapse", title="length collapse", chart="response_length_mean", evidence=LENGTH)
LOSS = finding(title="stuck", chart="grad_norm", evidence=(evidence("loss.same", "loss", value=20, limit=18, now=0),))
NOT_SENT = (evidence("lr.same", "lr", value=20, limit=18, now=0),)
FALL = finding(title="reward collapse", severity="page", chart="reward_mean")
SOLVED = finding(title="solved", severity="info", chart="reward_mean")
OUTSIDE = [{"signal": "grad_norm", "words": "gradient norm", "value": 2, "range": "< 1"}]


@pytest.mark.parametrize(
    ("given", "charts"),
    [
        (diagnosis(SHORT), [["Response length", "length collapse", "act"]]),
        (
            diagnosis(LOSS, FALL, SOLVED),
            [["Gradient norm", "stuck", "act"], ["Loss", "stuck", "act"], ["Reward", "reward collapse", "act"]],
        ),
        (
            diagnosis(finding(chart="entropy", evidence=NOT_SENT), finding(title="drift", chart="mismatch_kl_k3")),
            [["Entropy", "engine mismatch", "act"], ["KL", "drift", "watch"]],
        ),
        (
            diagnosis(word="outside the healthy range", outside=OUTSIDE),
            [["Gradient norm", "outside its healthy range", "watch"]],
        ),
        (diagnosis(SOLVED, word="healthy", since_step=None), []),
    ],
)
def test_charts_of_evidence_come_first(evaluate: Evaluate, given: dict[str, Any], charts: list[list[str]]) -> None:
    found = evaluate(
        """async (diagnosis) => {
            const { catalogueOfSignals, signalsOf } = await import("/assets/any/panels.js");
            const { evidenceOf } = await import("/assets/any/chartdata.js");
            await catalogueOfSignals();
            const own = ["reward_mean", "response_length_mean", "grad_norm", "loss", "entropy"];
            const names = new Set([...own, "mismatch_kl_k3", "total_kl_k3"]);
            const evidence = evidenceOf(diagnosis, "act");
            const panels = signalsOf(names, [...evidence.keys()]);
            return panels.map((panel) => {
                const [, of] = [...evidence].find(([name]) => panel.means.includes(name)) ?? [];
                return [panel.title, of?.title ?? "", of?.kind ?? ""];
            });
        }""",
        given,
    )
    assert found[: len(charts)] == charts
    assert all(title == "" for _, title, _ in found[len(charts) :])
    assert len({title for title, _, _ in found}) == len(found), "a signal is drawn twice"


SCALARS = [
    {"name": "actor/grad_norm", "part": "signal", "words": "actor/grad_norm", "signal": "grad_norm"},
    {
        "name": "eval_completions/mean_length",
        "part": "evaluation",
        "words": "evaluation",
        "signal": "response_length_mean",
    },
    {"name": "val-core/gsm8k/acc/mean@4", "part": "evaluation", "words": "gsm8k/acc/mean@4", "signal": None},
    {"name": "eval_loss", "part": "evaluation", "words": "evaluation", "signal": "loss"},
    *({"name": f"rewards/f{i}/mean", "part": "reward", "words": f"f{i}", "signal": None} for i in range(40)),
    {"name": "batch/termination_reason/env_done", "part": "finish", "words": "env_done", "signal": None},
]


def test_scalars_are_drawn_by_what_their_names_mean(evaluate: Evaluate) -> None:
    """A line each, six a chart, and no more charts of a part than a request has room for names."""
    found = evaluate(
        """async (scalars) => {
            const { catalogueOfSignals, signalsOf } = await import("/assets/any/panels.js");
            await catalogueOfSignals();
            const own = ["reward_mean", "response_length_mean", "length_limit_share", "repeated_share"];
            const names = new Set([...own, "distinct_prompts", ...scalars.map(({ name }) => name)]);
            const panels = signalsOf(names, ["grad_norm"], scalars);
            return panels.map(({ title, lines, names }) => [title, lines.map(({ label }) => label), names]);
        }""",
        SCALARS,
    )
    drawn = {title: labels for title, labels, _ in found}
    assert found[0][0] == "Gradient norm"
    assert found[0][2] == ["actor/grad_norm"]
    assert drawn["Evaluation"] == ["gsm8k/acc/mean@4"]
    assert drawn["Response length"] == ["mean", "evaluation"]
    assert drawn["How responses end"] == ["at the limit", "env_done"]
    assert drawn["Evaluation: loss"] == [""]
    rewards = ["Reward by function", "Reward by function, 2", "Reward by function, 3"]
    assert [title for title in drawn if title.startswith("Reward by")] == rewards
    assert [label for title in rewards for label in drawn[title]] == [f"f{i}" for i in range(18)]
    assert {"Repetition", "Distinct prompts"} <= drawn.keys()


def test_what_is_level_or_empty_is_one_line_which_opens_by_keys_and_stays_open(visiting: Visiting) -> None:
    page = visiting().go(WELL)
    fold = page.locator("details.silent > summary")
    expect(fold).to_have_text(re.compile(r"^6 quiet signals.*Masked, by reason.*Version lag"))
    lag = page.get_by_role("heading", name="Version lag")
    expect(lag).to_be_hidden()
    expect(page.get_by_role("heading", name="Reward", exact=True)).to_be_visible()
    fold.focus()
    page.keyboard.press("Enter")
    expect(lag).to_be_visible()
    expect(page.locator("figure", has=lag).locator("canvas")).to_be_visible()
    assert violations(page) == []
    page.reload()
    expect(lag).to_be_visible()
    fold.click()
    expect(lag).to_be_hidden()
    page.reload()
    expect(fold).to_be_visible()
    expect(lag).to_be_hidden()


def test_a_chart_whose_line_begins_to_move_leaves_the_fold_for_the_end(visiting: Visiting) -> None:
    tab = visiting()
    tab.page.clock.install()
    page = tab.go(WELL)
    fold = page.locator("details.silent > summary")
    expect(fold).to_contain_text("6 quiet signals")
    titles = page.locator("section.charts > figure h2").all_text_contents()

    def move(route: Route) -> None:
        answer = route.fetch().json()
        if "engine_lag" in answer["signals"]:
            answer["signals"]["engine_lag"]["mean"] = list(range(len(answer["step"])))
        route.fulfill(json=answer)

    page.route(re.compile(r"/signals\?"), move)
    page.clock.run_for(35_000)
    expect(fold).to_contain_text("5 quiet signals")
    expect(page.locator("section.charts > figure h2")).to_have_text([*titles, "Version lag"])


@pytest.mark.parametrize(
    ("values", "more", "is_quiet"),
    [
        ([5.0] * 20, {}, True),
        ([5.0] * 19, {}, False),
        ([None] * 3, {}, True),
        ([0.0] * 20, {}, True),
        ([0.9999, 0.985] * 10, {"healthy": "> 0.99"}, False),
        ([0.9999, 0.995] * 10, {"healthy": "> 0.99"}, True),
        ([*[5.0] * 30, 5.2], {}, False),
        ([5.0] * 20, {"stays": True}, False),
        ([*[5.0] * 20, "inf"], {}, False),
    ],
)
def test_which_charts_are_quiet(
    evaluate: Evaluate, values: list[float | None], more: dict[str, Any], is_quiet: bool
) -> None:
    found = evaluate(
        """async ([values, { healthy = "", stays }]) => {
            const { Chart } = await import("/assets/any/chart.js");
            const whole = { exact: true, step: values.map((_, i) => i), signals: { x: { mean: values } } };
            const chartData = { whole, catalogue: new Map([["x", { healthy }]]), evidence: new Map() };
            const lines = [{ name: "x", signal: "x", label: "" }];
            const chart = new Chart({ chartData, panel: { title: "X", names: ["x"], means: ["x"], lines, stays } });
            chart.mark();
            return chart.isQuiet;
        }""",
        [values, more],
    )
    assert found is is_quiet


def test_smoothing_draws_an_average_over_faint_lines_by_keys_and_is_remembered(visiting: Visiting) -> None:
    page = visiting().go(ILL)
    slider = page.get_by_role("slider", name="Smoothing")
    expect(slider).to_have_attribute("aria-valuetext", "off")
    canvas = page.locator("figure", has=page.get_by_role("heading", name="Reward", exact=True)).locator("canvas")
    expect(canvas).to_be_visible()
    drawn = "(e) => e.toDataURL()"
    raw = canvas.evaluate(drawn)
    slider.focus()
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "0.99")
    page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", "0.98")
    expect(page.locator(".smoothing output")).to_have_text("0.98")
    smoothed = canvas.evaluate(drawn)
    assert smoothed != raw
    assert violations(page) == []
    page.reload()
    expect(slider).to_have_attribute("aria-valuetext", "0.98")
    slider.focus()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "off")
    expect(canvas).to_be_visible()
    assert canvas.evaluate(drawn) not in (smoothed, "")


def test_an_average_has_no_bias_of_its_start_and_leaves_unknown_values_out(evaluate: Evaluate) -> None:
    found = evaluate(
        """async () => {
            const { averaged } = await import("/assets/any/chart.js");
            return [averaged([3, 3, 3], 0.9), averaged([null, 1, null, 2], 0.5), averaged([], 0.9)];
        }"""
    )
    assert found[0] == pytest.approx([3, 3, 3])
    assert found[1] == [None, 1, None, pytest.approx((0.25 * 1 + 0.5 * 2) / 0.75)]
    assert found[2] == []


def all_is_read(page: Page) -> None:
    """Wait until what is under the charts is there too."""
    expect(page.get_by_label("Policies").locator(".bars")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"\d+ sequences of \d+ steps"))).to_be_visible()
    expect(page.locator("main .bone")).to_have_count(0)


PLACES = """() => [
    [document.documentElement.scrollWidth, document.documentElement.scrollHeight],
    ...[...document.querySelectorAll("main *")]
        .filter((one) => !one.closest("details:not([open]) > :not(summary)"))
        .filter((one) => !one.closest(".uplot, .reading > *, svg, .judged, main > header"))
        .map((one) => [one.getBoundingClientRect(), `${one.tagName} ${one.className}`])
        .map(([{ x, y, width, height }, of]) => [of, ...[x, y + scrollY, width, height].map(Math.round)].join()),
]"""


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_hovering_over_a_chart_moves_nothing(reading: Reading, size: tuple[int, int]) -> None:
    page = reading(ILL).page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    all_is_read(page)
    overs = page.locator(".charts figure:visible .u-over")
    expect(overs.first).to_be_visible()
    for over in overs.all():
        over.scroll_into_view_if_needed()
        box = box_of(over)
        page.mouse.move(2, box["y"] + 40)
        places = page.evaluate(PLACES)
        for share in (0.02, 0.5, 0.98):
            page.mouse.move(box["x"] + box["width"] * share, box["y"] + 40)
            moved = [pair for pair in zip(places, page.evaluate(PLACES), strict=True) if pair[0] != pair[1]]
            assert moved == [], moved[:4]
    expect(page.locator(".reading .at", has_text="step").first).to_be_visible()
    page.mouse.move(2, 2)


AXES = [
    [0.99992, 0.99994, 0.99996, 0.99998, 1],
    [1000.25, 1000.5, 1000.75],
    [100, 100.25, 100.5],
    [1e-5, 1e-3, 0.1, 10],
    [-2e-4, 0, 2e-4],
    [123456.2, 123456.4, 1234567],
    [0.1 + 0.2, 0.4, 0.5],
    [1, None, 2],
    [7],
]


@pytest.mark.parametrize("values", AXES)
def test_labels_of_an_axis_are_distinct_and_near_their_values(evaluate: Evaluate, values: list[float | None]) -> None:
    labels = evaluate(
        """async (values) => {
            const { tickLabels } = await import("/assets/any/words.js");
            return tickLabels(values);
        }""",
        values,
    )
    known = [value for value in values if value is not None]
    said = [float(label.replace(",", "")) for label in labels if label]
    assert len(set(said)) == len(known)
    for value, label in zip(known, said, strict=True):
        gap = min((abs(value - other) for other in known if other != value), default=abs(value))
        assert label == pytest.approx(value, abs=gap / 10)
    assert all(len(label) <= 11 for label in labels)


def test_every_axis_of_the_page_has_distinct_labels(evaluate: Evaluate) -> None:
    """The labels that uPlot asks for, of ranges from a hair's breadth to many decades."""
    found = evaluate(
        """async () => {
            const { opts, plot } = await import("/assets/any/plot.js");
            const uPlot = await plot();
            const chartData = { markers: [], chosen: null };
            const hooks = { cursor: () => {} };
            const labels = [];
            for (const log of [false, true])
                for (const [least, most] of [[0.99995, 1], [1000.2, 1000.9], [0.02, 0.09], [1e-7, 10], [3, 3]]) {
                    const form = { n: 1, banded: false, log, width: 300, height: 132, chartData, hooks };
                    const where = document.createElement("div");
                    document.body.append(where);
                    const made = opts(form);
                    const u = new uPlot(made, [[0, 1, 2], [least, most, least]], where);
                    await new Promise((done) => setTimeout(done, 60));
                    labels.push(...u.axes.map(({ _values }) => _values.filter((value) => value)));
                    u.destroy();
                    where.remove();
                }
            return labels;
        }"""
    )
    assert all(len(labels) == len(set(labels)) >= 1 for labels in found), found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"judged_step": 98, "step": 99}, "Judged to step 98 of 99, 40 s ago"),
        ({"judged_step": 1200, "step": 1200}, "Judged to step 1,200 of 1,200, 40 s ago"),
        ({"judged_step": 98, "step": 3}, "Judged to step 98, 40 s ago"),
        ({"judged_step": 9, "step": 9, "judged_at": None}, "Judged to step 9 of 9"),
        ({"judged_step": 98, "step": 140, "behind": {"words": "judged to step 98 of 140"}}, "Judged to step 98 of 140"),
        ({"judged_step": None, "step": 0, "judged_at": None}, ""),
    ],
)
def test_how_far_the_verdict_goes_and_how_old_it_is(evaluate: Evaluate, given: dict[str, Any], words: str) -> None:
    told = evaluate(
        """async (given) => {
            const { judgedWords } = await import("/assets/any/diagnosis.js");
            const { now } = await import("/assets/any/words.js");
            return judgedWords({ behind: null, judged_at: now() - 40, ...given });
        }""",
        given,
    )
    assert told == words


def test_the_age_of_the_verdict_grows_in_its_line_and_moves_nothing(visiting: Visiting) -> None:
    tab = visiting()
    tab.page.clock.install()
    page = tab.go(ILL)
    line = page.locator(".diagnosis .judged")
    expect(line).to_have_text(re.compile(r"^Judged to step 39 of 39, \d+ \w+ ago$"))
    all_is_read(page)
    (before, said), height = (page.evaluate(PLACES), line.inner_text()), line.bounding_box()
    page.clock.run_for(4000)
    expect(line).not_to_have_text(said)
    assert line.bounding_box() == height
    assert page.evaluate(PLACES) == before


def test_a_run_of_scalars_has_no_sequences(service: ThreadedService, visiting: Visiting, tmp_path: Path) -> None:
    with Monitor(settings(tmp_path, url=service.url)) as monitor:
        for step in range(30):
            monitor.log_scalars(step, {"reward_mean": 0.5 + step / 100, "loss": 1.0})
    with service.client() as client:
        path = "/api/v1/runs/math/grpo"
        eventually(lambda: client.get(path).json(), lambda run: run["state"] == "finished")
    page = visiting(service.url).go("/runs/math/grpo")
    expect(page.get_by_text("No sequences: this run reports scalars alone.")).to_be_visible()
    expect(page.get_by_role("heading", name="Sequences against the threshold")).to_be_hidden()
    expect(page.get_by_role("heading", name="Masked, by reason")).to_have_count(0)
