"""The stored pairs of soft and hard masking, and the table that the docs quote of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from trmon_research.soft_masking.__main__ import read_pairs
from trmon_research.soft_masking.differences import table
from trmon_research.soft_masking.pair_arms import ARMS, ArmOutcome, PairOutcome

DOCS = Path(__file__).parents[2] / "README.md"


def pair(run: str, *, hard: float, soft: float) -> PairOutcome:
    arm = ArmOutcome(end_reward=hard, mean_reward=hard, beyond_bound=0.25, mean_weight=0.75, cpu_seconds=1.0)
    arms = dict.fromkeys(ARMS, structs.replace(arm, end_reward=soft)) | {"hard": arm}
    return PairOutcome(run=run, mechanism="staleness", bound=0.01, prefix_reward=0.5, prefix_cpu_seconds=1.0, arms=arms)


def test_the_docs_quote_the_table_of_the_stored_pairs() -> None:
    pairs = read_pairs()
    assert len(pairs) == len({each.run for each in pairs}) >= 10
    assert all(each.arms.keys() == ARMS.keys() for each in pairs)
    assert table(pairs) in DOCS.read_text()


def test_every_arm_of_a_pair_starts_at_the_same_bound_and_hard_masking_weighs_what_it_keeps() -> None:
    for each in read_pairs():
        hard = each.arms["hard"]
        assert hard.mean_weight == pytest.approx(1 - hard.beyond_bound, abs=1e-3)
        assert each.arms["unmasked"].mean_weight == 1.0
        for name in ("soft_0.25", "soft_1", "soft_4"):
            arm = each.arms[name]
            assert 1 - arm.beyond_bound < arm.mean_weight < 1


def test_intervals_are_of_differences_within_pairs() -> None:
    pairs = [pair("a", hard=0.2, soft=0.3), pair("b", hard=0.8, soft=0.9)]
    row = next(line for line in table(pairs).splitlines() if line.startswith("| soft_1 "))
    assert "+0.1000 (+0.1000 to +0.1000) | +0.0000 (+0.0000 to +0.0000)" in row
