"""The trainer's decisions on turns against the replay, and their mask rates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.pipeline.stages.closings import closing, pass_context
from tests.domain.trainer import made, report
from trmon.domain.pipeline.merge import merge_reports
from trmon.domain.pipeline.replay import ReplayedDecisions, replay_decisions
from trmon.domain.policies import PolicyRegistry, PolicyVersion
from trmon_client.core import statistics, wire
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy

TURNS = Policy.parse({"name": "turns", "criteria": [], "turns": [{"statistic": "turn_max_abs_d", "upper": 0.5}]})
REGISTRY = PolicyRegistry.of(PolicyVersion(policy=TURNS, shadows=(), author="me", reason="", created_at=0.0))


def traces(seed: int = 0, *, n: int = 4) -> Columns:
    """Return sequences of three turns, of 4, 0 and 8 tokens."""
    random = np.random.default_rng(seed)
    old = -random.exponential(1.0, (n, 12))
    rollout = np.minimum(old + random.normal(0, 0.25, old.shape), 0)
    return statistics.columns(
        rollout_logprobs=rollout, old_logprobs=old, mask=np.ones(old.shape, bool), turn_offsets=[[0, 4, 4]] * n
    )


def sent(step: int = 0, *, content: Columns, flipped: tuple[int, ...] = (), **fields: Any) -> wire.Report:
    """Return a report with its turns; the decision on those of `flipped` is not the policy's."""
    decided = decide(content, TURNS).turns
    assert content.turns is not None
    assert decided is not None
    accepted = decided.accepted.copy()
    accepted[list(flipped)] ^= True
    turns = wire.pack_turns(content.turns, accepted=accepted)
    return report(step, content=content, policy=TURNS, **{"turns": turns} | fields)


def replayed(*reports: wire.Report) -> ReplayedDecisions:
    batch = closing(*reports, context=replace(pass_context(), policies=REGISTRY))
    return replay_decisions(batch, merge_reports(batch))


def test_the_replay_of_turns_agrees() -> None:
    found = replayed(sent(content=traces()), sent(content=traces(1), rank=1, world_size=2))
    assert (found.mismatches, found.unreplayed) == (0, 0)
    assert 0 < found.signals["turn_mask_rate"] < 1
    assert found.signals["mask_rate"] == 0


@pytest.mark.parametrize(("flipped", "mismatches"), [((0,), 1), ((0, 2), 1), ((0, 11), 2)])
def test_a_sequence_with_a_turn_decided_otherwise_is_a_mismatch(flipped: tuple[int, ...], mismatches: int) -> None:
    found = replayed(sent(content=traces(), flipped=flipped))
    assert found.mismatches == mismatches
    assert found.decisions[0].counts["accepted"] == 4


def test_the_mask_rates_of_turns_are_of_turns_with_tokens() -> None:
    content = traces()
    decided = decide(content, TURNS).turns
    assert decided is not None
    rejected = np.array([not accepted for accepted in decided.accepted])
    tokens = np.tile([4, 0, 8], 4)
    found = replayed(sent(content=content)).signals
    assert found["turn_mask_rate"] == rejected.sum() / 8 == decided.mask_rate
    assert found["turn_mask_rate_tokens"] == tokens[rejected].sum() / 48


def test_without_a_turn_with_tokens_the_rates_are_nan() -> None:
    content = statistics.columns(
        rollout_logprobs=np.full((2, 4), -1.0),
        old_logprobs=np.full((2, 4), -1.0),
        mask=np.ones((2, 4), bool),
        turn_offsets=[[9], []],
    )
    found = replayed(sent(content=content)).signals
    assert math.isnan(found["turn_mask_rate"])
    assert math.isnan(found["turn_mask_rate_tokens"])


def test_a_rank_without_turns_leaves_the_batch_without_their_rates() -> None:
    other = report(0, content=made(n=4, length=12), policy=Policy.parse("trm"), rank=1, world_size=2)
    found = replayed(sent(content=traces()), other)
    assert "turn_mask_rate" not in found.signals
    assert (found.mismatches, found.unreplayed) == (0, 0)


def test_a_rank_that_lacks_a_pair_keeps_its_turns_without_tokens() -> None:
    content = traces()
    short = statistics.columns(mask=np.ones((2, 12), bool), turn_offsets=[[0], [0, 6]])
    assert short.turns is not None
    other = report(0, content=short, policy=None, turns=wire.pack_turns(short.turns), rank=1, world_size=2)
    merged = merge_reports(closing(sent(content=content), other, context=replace(pass_context(), policies=REGISTRY)))
    assert merged.columns.turns is not None
    assert merged.columns.turns.n_turns.tolist() == [3] * 4 + [1, 2]
    assert merged.columns.turns.n_tokens.tolist()[12:] == [0, 0, 0]


def test_turns_that_the_trainer_did_not_decide_are_not_compared() -> None:
    content = traces()
    assert content.turns is not None
    found = replayed(sent(content=content, turns=wire.pack_turns(content.turns)))
    assert found.mismatches == 0
    assert "turn_mask_rate" not in found.signals
