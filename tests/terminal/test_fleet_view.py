"""Looking at part of the fleet: keys scroll, filter and quit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.terminal.test_fleet_table import a_run, shown
from trmon.cli.top import KEYS, split_keys
from trmon.domain.health.judgement import VerdictKind
from trmon.terminal.fleet import MAX_FILTER, FleetView
from trmon_client.api.runs import SparklineInfo

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


def test_a_verdict_that_has_not_reached_the_newest_step_says_how_far_it_goes() -> None:
    line = SparklineInfo(first_step=0, last_step=1200, values=(1.0,))
    assert "Healthy (to step 1,200): because" in shown([a_run(reward=line, step=1204)])
    assert "Healthy: because" in shown([a_run(reward=line, step=1201)])  # the newest step is not closed yet
    assert "Healthy (to step 1,200): because" in shown([a_run(reward=line, step=1201, state="finished")])
    assert "Healthy: because" in shown([a_run(reward=line, step=1200, state="finished")])
    assert "Unknown (not judged yet): because" in shown([a_run(VerdictKind.UNKNOWN, reward=None, step=3)])
    assert "Unknown: because" in shown([a_run(VerdictKind.UNKNOWN, reward=None, step=None)])


@pytest.mark.parametrize("width", [80, 100, 130])
def test_numbers_are_whole_and_names_keep_both_ends(width: int) -> None:
    run = a_run(name=f"first-{'n' * 60}-last", step=123_456_789, reward=None)
    [line] = [line for line in shown([run], width=width).splitlines() if "math/" in line]
    assert line.strip().startswith("Healthy (not judged yet)")
    for whole in ("math/f", "last", " 123,456,789 ", " 42 s ago"):
        assert whole in f"{line} "
    assert len(line) <= width


def test_keys_are_told_apart_and_unknown_sequences_are_left_out() -> None:
    assert list(split_keys("\x1b[A\x1b[6~q\x1b[15~/é\r\x7f\x1b")) == [
        *("up", "page down", "q", "/", "é", "enter", "backspace", "escape")
    ]


@given(st.text())
def test_whatever_a_terminal_sends_is_characters_and_known_keys(text: str) -> None:
    assert all(key in KEYS.values() or len(key) == 1 for key in split_keys(text))
