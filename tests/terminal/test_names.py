"""Names are cut to what tells them apart, and no two are shown alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmon.terminal.names import fold_names, fold_run_names

CASES = json.loads(Path(__file__).with_name("names.json").read_text())
NAME = st.lists(st.sampled_from(["a", "ab", "seed1", "seed2", "x" * 9]), min_size=1, max_size=6).map("-".join)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_names_lose_what_tells_nothing(case: dict[str, object]) -> None:
    shown, width = case["shown"], case["width"]
    assert isinstance(shown, dict)
    assert fold_names(shown, lambda text: len(text) <= int(str(width))) == shown


@given(st.sets(NAME | st.text("ab-_", min_size=1, max_size=20), min_size=1, max_size=12), st.integers(1, 30))
def test_no_two_names_are_shown_alike_and_a_folded_one_matches_its_name(names: set[str], width: int) -> None:
    shown = fold_names(names, lambda text: len(text) <= width)
    assert shown.keys() == names
    assert len(set(shown.values())) == len(names)
    for name, text in shown.items():
        rest = name
        for part in text.split("…"):
            assert part in rest
            rest = rest[rest.index(part) + len(part) :]


def test_projects_are_told_apart_too() -> None:
    runs = (("team-reasoning-math", "grpo-seed0"), ("team-reasoning-code", "grpo-seed0"))
    assert [*fold_run_names(runs, 40).values()] == ["team-reasoning-math/grpo-seed0", "team-reasoning-code/grpo-seed0"]
    assert [*fold_run_names(runs, 20).values()] == ["…math/grpo-seed0", "…code/grpo-seed0"]
