"""Looking at part of the fleet: keys scroll, filter and quit."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from trmon.cli.command import console
from trmon.cli.top import KEYS, split_keys
from trmon.domain.health.judgement import Backlog, Urgency, VerdictKind
from trmon.terminal.fleet import MAX_FILTER, WHOLE_FLEET, FleetView, fleet_frame, fleet_summary_line, urgency_order
from trmon_client.api import RunStatus, VerdictInfo
from trmon_client.api.answers import decode_answer, encode_answer
from trmon_client.api.diagnosis import BehindInfo
from trmon_client.api.runs import SparklineInfo

NOW = 1_000.0


def a_run(
    kind: VerdictKind | str = VerdictKind.HEALTHY, *, name: str = "grpo", need: Urgency | None = None, **changed: Any
) -> RunStatus:
    urgency = need or VerdictKind(kind).urgency
    kind = kind.value if isinstance(kind, VerdictKind) else kind
    verdict = VerdictInfo(kind=kind, need=urgency.value, why="because", since_step=3, todo=None)
    line = SparklineInfo(first_step=1197, last_step=1204, values=(1, 2, 3, 4, 5, 6, 7, 8))
    fields: dict[str, Any] = {
        "project": "math",
        "run": name,
        "state": "running",
        "owner": "ana",
        "tags": [],
        "archived": False,
        "step": 1204,
        "last_report_at": NOW - 42,
        "expected_step_seconds": 30.0,
        "end_phrase": None,
        "warnings": [],
        "verdict": verdict,
        "alerts": [],
        "mask_rate": 0.25,
        "reward": line,
        "kl": line,
    }
    return RunStatus(**fields | changed)


def shown(
    runs: list[RunStatus], *, width: int = 140, height: int | None = None, view: FleetView = WHOLE_FLEET, **options: Any
) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, **options)
    console.print(fleet_frame(runs, console=console, now=NOW, height=height, view=view))
    return out.getvalue()


ANSWERS = [
    ("nobody reports yet", [], "no runs yet: a trainer's first report creates one"),
    ("all is well", [a_run(), a_run()], "no run needs you, 2 healthy"),
    (
        "one is ill",
        [a_run(VerdictKind.ACT), a_run(VerdictKind.WATCH), a_run()],
        "1 run needs you, 1 to watch, 1 healthy",
    ),
    ("two are gone", [a_run(VerdictKind.CRASHED), a_run(VerdictKind.STALLED)], "2 runs need you"),
    ("an acknowledged run", [a_run(VerdictKind.ACT, need=Urgency.NONE)], "no run needs you, 1 acknowledged"),
    (
        "what is over or not known",
        [a_run(VerdictKind.FINISHED), a_run(VerdictKind.UNKNOWN)],
        "no run needs you, 1 unknown, 1 finished",
    ),
    (
        "runs that ended ill, today and long ago",
        [a_run(VerdictKind.ENDED_ILL), a_run(VerdictKind.ENDED_ILL, need=Urgency.NONE)],
        "no run needs you, 2 ended ill",
    ),
    (
        "a value outside its range, also in the first steps",
        [a_run(VerdictKind.OUTSIDE), a_run(VerdictKind.OUTSIDE, need=Urgency.NONE)],
        "no run needs you, 1 to watch, 1 outside the healthy range",
    ),
    (
        "what could be measured is clean",
        [a_run(VerdictKind.NO_DRIFT_FOUND), a_run(VerdictKind.TRAINING_HEALTHY)],
        "no run needs you, 1 no drift found, 1 training healthy",
    ),
    (
        "kinds of a newer service",
        [a_run("needs_a_nap", need=Urgency.NOW), a_run("sleeps_well", need=Urgency.NONE)],
        "1 run needs you, 1 sleeps well",
    ),
]


@pytest.mark.parametrize(("runs", "said"), [case[1:] for case in ANSWERS], ids=[case[0] for case in ANSWERS])
def test_the_answer(runs: list[RunStatus], said: str) -> None:
    assert fleet_summary_line(runs) == said
    assert shown(runs).splitlines()[0] == said


LONG = [
    a_run(
        name=f"qwen3-8b-grpo-gsm8k-async-{what}-seed{i}",
        verdict=msgspec.structs.replace(a_run().verdict, why="because " * 20),
    )
    for what in ("fp8", "bf16")
    for i in range(2)
]
HEADS = ["verdict", "run", "step", "masked", "alerts", "reward", "KL", "seen"]


def columns_of(text: str) -> tuple[dict[str, int], list[str]]:
    """Return how wide each column of a table is, and the names of runs in it."""
    lines = text.splitlines()
    head = next(line for line in lines if line.startswith(" verdict"))
    begins = [(name, head.index(f" {name}") + 1) for name in HEADS if f" {name}" in head]
    ends = [begin - 3 for _, begin in begins[1:]] + [len(head)]
    widths = {name: end - begin for (name, begin), end in zip(begins, ends, strict=True)}
    run = dict(begins)["run"]
    return widths, [line[run : run + widths["run"]].strip() for line in lines if "Healthy: " in line]


def test_a_wider_terminal_never_shows_less_and_no_two_names_alike() -> None:
    before: dict[str, int] = {}
    for width in range(60, 260):
        text = shown(LONG, width=width)
        assert all(len(line) <= width for line in text.splitlines())
        found, names = columns_of(text)
        assert before.keys() <= found.keys()
        assert found["verdict"] >= before.get("verdict", 0)
        assert found["run"] >= before.get("run", 0)
        assert len(set(names)) == len(LONG)
        before = found
    assert list(before) == HEADS
    assert columns_of(shown(LONG, width=120))[0]["verdict"] > columns_of(shown(LONG, width=80))[0]["verdict"] > 30


def test_an_output_that_is_no_terminal_has_everything_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(LONG, width=console().width)
    assert "…" not in text
    assert all(f" {run.name} " in text and run.verdict.why.strip() in text for run in LONG)
    assert [name for name in HEADS if f" {name} " in text] == HEADS


def test_a_low_terminal_shows_the_first_and_counts_the_others() -> None:
    text = shown([a_run(name=f"run-{i}") for i in range(30)], height=15)
    assert len(text.splitlines()) <= 15
    assert "run-7" in text
    assert "and 22 more" in text


def test_a_kind_of_a_newer_service_is_shown_as_text_after_the_known_ones_of_its_urgency() -> None:
    run = decode_answer(encode_answer(a_run("needs_a_nap", name="new", need=Urgency.NOW)), RunStatus)
    assert "Needs a nap: because" in shown([run])
    runs = [run, a_run(VerdictKind.ACT, name="ill"), a_run(name="well")]
    assert [one.run for one in sorted(runs, key=urgency_order)] == ["ill", "new", "well"]


def test_names_are_said_as_they_are() -> None:
    assert "math/[bold]x" in shown([a_run(name="[bold]x")])


def test_color_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    red = "\x1b[1;31m"
    run = [a_run(VerdictKind.ACT)]
    assert red in shown(run, force_terminal=True, color_system="standard")
    assert red not in shown(run, force_terminal=True, color_system="standard", no_color=True)
    assert "\x1b" not in shown(run)


RUNS = [a_run(name=f"run-{i}") for i in range(30)]


def after(keys: list[str], view: FleetView | None = None) -> FleetView | None:
    view = view or FleetView()
    for key in keys:
        found = view.after(key, n_rows=10, n_runs=30)
        if found is None:
            return None
        view = found
    return view


@pytest.mark.parametrize(
    ("keys", "first"),
    [
        (["down"], 1),
        (["down", "down", "up"], 1),
        (["up"], 0),
        (["page down"], 10),
        (["end"], 20),
        (["end", "down"], 20),
        (["end", "home"], 0),
        (["x"], 0),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_arrows_scroll_within_the_runs(keys: list[str], first: int) -> None:
    assert after(keys) == FleetView(first=first)


def test_q_quits_unless_it_is_typed_into_the_filter() -> None:
    assert after(["q"]) is None
    assert after(["/", "q"]) == FleetView(words="q", is_typing=True)
    assert after(["/", "q", "enter", "q"]) is None


def test_a_filter_is_typed_corrected_kept_and_left() -> None:
    assert after(["/", *"run-1", "backspace", "7", "enter"]) == FleetView(words="run-7")
    assert after(["/", *"run-1", "enter", "escape"]) == FleetView()
    assert after(["/", *("x" * (MAX_FILTER + 9))]) == FleetView(words="x" * MAX_FILTER, is_typing=True)


def test_a_filter_finds_words_of_the_name_owner_tags_state_and_verdict() -> None:
    runs = [a_run(name="a", tags=["DAPO"]), a_run(VerdictKind.STALLED, name="b", owner="bo")]
    found = {
        words: [run.run for run in FleetView(words=words).of(runs)] for words in ("dapo", "bo stalled", "math", "")
    }
    assert found == {"dapo": ["a"], "bo stalled": ["b"], "math": ["a", "b"], "": ["a", "b"]}


def test_the_frame_shows_what_is_scrolled_to_and_what_the_filter_found() -> None:
    text = shown(RUNS, height=18, view=FleetView(first=20))
    assert ["run-19" in text, "run-20" in text, "run-29" in text, "more" in text] == [False, True, True, False]
    assert "/run-2_  11 of 30 runs" in shown(RUNS, view=FleetView(words="run-2", is_typing=True))
    assert "/nothing  none of 30 runs (/ changes it, Esc shows all)" in shown(RUNS, view=FleetView(words="nothing"))


def test_a_verdict_that_is_behind_what_was_received_says_how_far() -> None:
    words = Backlog(newest_step=1240, waiting_since=NOW - 37).words(1200, now=NOW)
    behind = BehindInfo(judged_step=1200, newest_step=1240, seconds=37.0, words=words)
    text = shown([a_run(behind=behind)], width=140)
    assert "Healthy (judged to step 1,200 of 1,240, 37 s behind): because" in text
    assert "Healthy: because" in shown([a_run(judged_step=1200, step=1203)])


@pytest.mark.parametrize("width", [80, 100, 130])
def test_numbers_are_whole_and_names_keep_both_ends(width: int) -> None:
    behind = BehindInfo(judged_step=5, newest_step=9, seconds=37.0, words="judged to step 5 of 9, 37 s behind")
    run = a_run(name=f"first-{'n' * 60}-last", step=123_456_789, behind=behind)
    [line] = [line for line in shown([run], width=width).splitlines() if "math/" in line]
    assert line.strip().startswith("Healthy (judged")
    for whole in ("math/f", "last", " 123,456,789 ", " 42 s ago"):
        assert whole in f"{line} "
    assert len(line) <= width


def test_keys_are_told_apart_and_unknown_sequences_are_left_out() -> None:
    assert list(split_keys("\x1b[A\x1b[6~q\x1b[15~/é\r\x7f\x1b")) == [
        *("up", "page down", "q", "/", "é", "enter", "backspace", "escape")
    ]


@settings(max_examples=30)
@given(st.text())
def test_whatever_a_terminal_sends_is_characters_and_known_keys(text: str) -> None:
    assert all(key in KEYS.values() or len(key) == 1 for key in split_keys(text))
