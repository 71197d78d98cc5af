"""Turns as the trainer uses them: the tokens of rejected turns leave the loss, in every form of the log-probs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.trainer import settings, spooled
from trmon_client.batch_decision import BatchDecision
from trmon_client.core import wire
from trmon_client.core.acceptance import decide
from trmon_client.core.policies.policy import Policy
from trmon_client.monitor import Monitor
from trmon_client.turns import turn_ids_of_mask

LENGTHS = (12, 7)
MASK = np.array([[1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0]], bool)
"""Two traces whose tool tokens are masked out: three turns and two."""
IDS = np.array([[0, 0, 0, -1, -1, 1, 1, -1, 2, 2, 2, 2], [0, 0, -1, 1, 1, 1, 1, -1, -1, -1, -1, -1]])
STARTS = [[0, 5, 8], [0, 3]]
KEPT = MASK & (IDS != [[1], [0]])
"""Without the second turn of the first trace and the first of the second."""
POLICY: dict[str, Any] = {
    "name": "turns",
    "criteria": [],
    "turns": [{"statistic": "turn_max_abs_d", "upper": 0.5}, {"statistic": "turn_mean_k3", "upper": 0.1}],
}


def traces() -> dict[str, Any]:
    """Return log-probs in which one turn of each trace is off-policy; those of tool tokens mean nothing."""
    mu = np.where(MASK, -1.0, np.nan)
    pi = mu + 0.01
    pi[0, 5] = -0.2
    pi[1, :2] = -1.6
    return {"rollout_logprobs": mu, "logprobs": pi, "mask": MASK}


def log(tmp_path: Path, *, mode: str = "enforce", policy: Any = POLICY, **arguments: Any) -> BatchDecision:
    with Monitor(settings(tmp_path, mode=mode, policy=policy)) as monitor:
        return monitor.log_batch(step=0, **arguments)


def test_the_runs_of_a_response_mask_are_turns() -> None:
    assert turn_ids_of_mask(MASK).tolist() == IDS.tolist()
    found = turn_ids_of_mask(torch.from_numpy(MASK).float())
    assert (found.dtype, found.tolist()) == (torch.int64, IDS.tolist())
    assert turn_ids_of_mask(np.zeros((2, 0))).shape == (2, 0)


@pytest.mark.parametrize("turns", [{"turn_ids": IDS}, {"turn_offsets": STARTS}])
def test_tokens_of_rejected_turns_leave_the_loss(tmp_path: Path, turns: dict[str, Any]) -> None:
    decision = log(tmp_path, **traces(), **turns)
    assert decision.mask.tolist() == [True, True]
    assert decision.token_mask.tolist() == KEPT.tolist()
    assert decision.weights.tolist() == KEPT.astype(float).tolist()
    assert [part.tolist() for part in decision.turns.by_sequence()] == [[True, False, True], [False, True]]
    assert decision.turns.reasons == [None, "turn_max_abs_d", None, "turn_max_abs_d", None]
    assert decision.turns.mask_rate == 0.4


def test_tensors_lists_and_packed_tokens_are_masked_alike(tmp_path: Path) -> None:
    given = traces()
    tensors = {name: torch.from_numpy(array) for name, array in given.items()}
    masked = log(tmp_path / "a", **tensors, turn_ids=torch.from_numpy(IDS)).token_mask
    assert isinstance(masked, torch.Tensor)
    assert masked.tolist() == KEPT.tolist()

    rows = {name: [row[:n] for row, n in zip(array, LENGTHS, strict=True)] for name, array in given.items()}
    ragged = log(tmp_path / "b", **rows, turn_offsets=STARTS).token_mask
    assert [row.tolist() for row in ragged or ()] == [row[:n].tolist() for row, n in zip(KEPT, LENGTHS, strict=True)]

    flat = {name: np.concatenate(array) for name, array in rows.items()}
    packed = log(tmp_path / "c", **flat, cu_seqlens=np.cumsum([0, *LENGTHS]), turn_offsets=STARTS).token_mask
    assert packed.tolist() == np.concatenate([row[:n] for row, n in zip(KEPT, LENGTHS, strict=True)]).tolist()


def test_token_rules_and_turns_both_mask(tmp_path: Path) -> None:
    rules = {"tokens": [{"rule": "token_k1", "lower": 0.9, "upper": 1.1}]}
    given = traces()
    given["logprobs"][0, 0] = -0.7
    decision = log(tmp_path, **given, turn_ids=IDS, policy=POLICY | rules)
    kept = KEPT.copy()
    kept[0, 0] = False
    assert decision.token_mask.tolist() == kept.tolist()


def test_in_observe_mode_and_without_turn_criteria_nothing_is_masked(tmp_path: Path) -> None:
    decision = log(tmp_path, **traces(), turn_ids=IDS, mode="observe")
    assert decision.token_mask.tolist() == MASK.tolist()
    assert decision.turns.mask_rate == 0.4
    loose = {"name": "loose", "criteria": [{"statistic": "max_abs_d", "upper": 10.0}]}
    without = log(tmp_path, **traces(), turn_ids=IDS, policy=loose)
    assert without.turns is None
    assert without.token_mask.tolist() == MASK.tolist()


def test_the_report_holds_the_turns_and_what_was_decided(tmp_path: Path) -> None:
    decision = log(tmp_path, **traces(), turn_ids=IDS)
    report = next(message for message in spooled(tmp_path) if isinstance(message, wire.Report))
    columns = wire.unpack_columns(report)
    assert isinstance(report.turns, wire.PackedTurns)
    replayed = decide(columns, Policy.parse(POLICY)).turns
    assert replayed.codes.tolist() == decision.turns.codes.tolist()
    assert wire.unpack_bits(report.turns.accepted, 5).tolist() == decision.turns.accepted.tolist()


def test_a_soft_policy_weights_the_turns_that_are_kept_of_a_sequence_beyond_its_bounds(tmp_path: Path) -> None:
    policy = POLICY | {"criteria": [{"statistic": "max_abs_d", "upper": 0.7}], "soft_tau": 0.5}
    decision = log(tmp_path, **traces(), turn_ids=IDS, policy=policy)
    assert decision.mask.tolist() == [False, True]
    weight = np.exp(-(0.8 / 0.7 - 1) / 0.5)
    assert decision.sequence_weights.tolist() == pytest.approx([weight, 1.0], rel=1e-5)
    assert decision.token_mask.tolist() == KEPT.tolist()
    np.testing.assert_allclose(decision.weights, KEPT * np.array([[weight], [1.0]]), rtol=1e-5)  # type: ignore[arg-type]
