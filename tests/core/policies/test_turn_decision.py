"""The decision on turns: every small case against plain Python, and the same after the wire as before it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.core.examples import batch
from trmon_client.core import statistics
from trmon_client.core.acceptance import Policy, PolicyError, decide, preset
from trmon_client.core.column_schema import PAIRS, TURN_COLUMNS
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.core.inputs.checked_inputs import check_inputs
from trmon_client.core.policies.criteria import TURN_STATISTICS
from trmon_client.core.policies.decision import TurnDecision

NUMBERS = (0.0, 0.05, -0.1, math.nan, math.inf)


def policy(*turns: dict[str, Any], criteria: tuple[dict[str, Any], ...] = ()) -> Policy:
    return Policy.parse({"name": "turns", "criteria": list(criteria), "turns": list(turns)})


def table(**columns: list[float]) -> Columns:
    """Return one sequence with a turn for each number; columns that are not given are 0."""
    n = len(next(iter(columns.values())))
    values = {
        name: np.array(
            columns.get(name.removeprefix("total_"), [4.0] * n if name == "n_tokens" else [0.0] * n), spec.dtype
        )
        for name, spec in TURN_COLUMNS.items()
    }
    sequence = {name: np.ones(1) for name in (f"{pair}_sum_d" for pair in PAIRS)}
    whole = {"n_tokens": np.array([4 * n]), "n_invalid": np.array([0]), **sequence}
    return Columns(whole, turns=TurnColumns(np.array([n]), values))


def of(columns: Columns, policy: Policy) -> Any:
    return decide(columns, policy).turns


def plain(statistic: str, column: float, n: int) -> float:
    """Return a statistic of a turn from the column that it reads."""
    if statistic == "turn_max_abs_d":
        return float(np.float32(column))
    return (-column if statistic == "turn_mean_k1" else column) / n


COLUMN_OF = {
    "turn_max_abs_d": "max_abs_d",
    "turn_mean_k1": "sum_d",
    "turn_mean_k3": "sum_k3",
    "turn_mean_binary_kl": "sum_binary_kl",
}


@pytest.mark.parametrize("statistic", TURN_STATISTICS)
@pytest.mark.parametrize(("lower", "upper"), [*itertools.combinations((-0.1, 0.0, 0.05), 2), (None, 0.05), (0.0, None)])
def test_every_case_is_decided_as_in_plain_python(statistic: str, lower: float | None, upper: float | None) -> None:
    cases = [*itertools.product((0, 1, 3), NUMBERS)]
    columns = table(n_tokens=[n for n, _ in cases], **{COLUMN_OF[statistic]: [column for _, column in cases]})
    found = of(columns, policy({"statistic": statistic, "lower": lower, "upper": upper}))
    for (n, column), accepted, reason, value in zip(
        cases, found.accepted.tolist(), found.reasons, found.compared[0].tolist(), strict=True
    ):
        if not n:
            assert (accepted, reason) == (True, "empty")
            continue
        expected = plain(statistic, column, n)
        is_met = (lower is None or expected >= lower) and (upper is None or expected <= upper)
        assert value == expected or math.isnan(expected)
        assert (accepted, reason) == (is_met, None if is_met else statistic)


def test_the_first_criterion_that_fails_is_the_reason_and_empty_turns_count_in_no_rate() -> None:
    columns = table(max_abs_d=[0.1, 1.0, 0.1, 1.0], sum_k3=[0.0, 0.0, 4.0, 4.0])
    found = of(
        columns, policy({"statistic": "turn_max_abs_d", "upper": 0.5}, {"statistic": "turn_mean_k3", "upper": 0.5})
    )
    assert found.reasons == [None, "turn_max_abs_d", "turn_mean_k3", "turn_max_abs_d"]
    assert found.mask_rate == 0.75
    rejecting = policy({"statistic": "turn_max_abs_d", "upper": 0.5})
    assert of(table(n_tokens=[0, 4], max_abs_d=[0.0, 9.0]), rejecting).mask_rate == 1.0
    assert math.isnan(of(table(n_tokens=[0]), rejecting).mask_rate)


def test_criteria_of_sequences_and_turns_decide_apart() -> None:
    inputs = batch(seed=1, noise=0.3)
    columns = statistics.columns(**inputs, turn_offsets=[[0, 4, 8]] * 6)
    turns = {"statistic": "turn_max_abs_d", "upper": 0.5}
    both = decide(columns, policy(turns, criteria=({"statistic": "max_abs_d", "upper": 0.5},)))
    alone = decide(columns, policy(turns))
    assert both.turns.accepted.tolist() == alone.turns.accepted.tolist()
    # A sequence is within the bound if all its turns are.
    assert both.accepted.tolist() == [bool(turn.all()) for turn in both.turns.by_sequence()]
    assert alone.accepted.all()


@pytest.mark.parametrize("pair", [*PAIRS, "primary", "mismatch_or_primary"])
def test_a_criterion_reads_its_pair(pair: str) -> None:
    columns = statistics.columns(**batch(seed=2, noise=0.3), turn_offsets=[[0, 6]] * 6)
    read = {"primary": "total", "mismatch_or_primary": "mismatch"}.get(pair, pair)
    found = of(columns, policy({"statistic": "turn_mean_k3", "pair": pair, "upper": 1.0}))
    by_name = columns.turns.by_name
    assert found.compared[0].tolist() == (by_name[f"{read}_sum_k3"] / by_name["n_tokens"]).tolist()


def test_tensors_are_decided_alike_and_never_read() -> None:
    columns = statistics.columns(**batch(seed=3, noise=0.3, odd=0.1), turn_offsets=[[0, 4, 99]] * 6)
    asked = policy(
        {"statistic": "turn_mean_k3", "upper": 0.05}, {"statistic": "turn_mean_k1", "lower": -0.1, "upper": 0.1}
    )
    expected = of(columns, asked)
    found = of(columns.with_arrays([torch.from_numpy(np.array(array)) for array in columns.arrays]), asked)
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.mask_rate == expected.mask_rate
    on_device = of(columns.with_arrays([torch.empty(array.shape, device="meta") for array in columns.arrays]), asked)
    assert on_device.accepted.device.type == "meta"
    assert [part.shape[0] for part in on_device.by_sequence()] == [3] * 6


def test_tokens_of_rejected_turns_are_masked_and_no_others() -> None:
    inputs = batch(seed=4, noise=0.3)
    inputs["mask"][:] = True
    ids = np.tile(np.repeat([-1, 0, 1, 2], 3), (6, 1))
    decided = of(statistics.columns(**inputs, turn_ids=ids), policy({"statistic": "turn_max_abs_d", "upper": 0.4}))
    turns = check_inputs(**inputs, turn_ids=ids).turns
    kept = decided.kept_tokens(turns.rows())
    expected = [
        [turn < 0 or bool(of_sequence[turn]) for turn in row]
        for row, of_sequence in zip(ids, decided.by_sequence(), strict=True)
    ]
    assert kept.tolist() == expected
    assert 0 < kept.mean() < 1
    on_torch = TurnDecision(decided.criteria, decided.turns, torch.from_numpy(decided.accepted), decided.codes, ())
    assert on_torch.kept_tokens(torch.from_numpy(turns.rows())).tolist() == expected


def test_a_batch_without_turns_is_refused_by_the_name_of_the_argument() -> None:
    with pytest.raises(PolicyError, match="turn_ids or turn_offsets, which were not given"):
        decide(statistics.columns(**batch(0)), policy({"statistic": "turn_mean_k3", "upper": 0.05}))


def test_without_a_pair_no_turn_is_rejected() -> None:
    turns = policy({"statistic": "turn_mean_k3", "upper": 0.0})
    mask = np.ones((2, 4), bool)
    assert decide(statistics.columns(mask=mask), turns).turns is None
    assert of(statistics.columns(mask=mask, turn_offsets=[[0], [0, 2]]), turns).accepted.tolist() == [True] * 3


def test_a_spec_survives_parsing_and_those_without_turns_keep_theirs() -> None:
    assert "turns" not in preset("trm").spec()
    assert preset("trm_max").hash == "96b91bb8cbaf119e189daf3f8b5e3b94"
    given = policy({"statistic": "turn_mean_k3", "upper": 0.05}, criteria=({"statistic": "mean_k3", "upper": 1},))
    assert Policy.parse(given.spec()) == given
    assert given.needs == ("turn_ids",)
    assert given.reads_pair
    assert policy({"statistic": "turn_mean_k1", "pair": "mismatch", "upper": 1}).needs == (
        *("old_logprobs", "rollout_logprobs", "turn_ids"),
    )


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ({"statistic": "turn_sum_k3", "upper": 1}, r"turns\[0\]: statistic must be one of turn_max_abs_d"),
        ({"statistic": "turn_mean_k3"}, "needs lower, upper or both"),
        ({"statistic": "turn_mean_k3", "upper": 1, "where": "kl_exact"}, "unknown key where"),
        ("turn_mean_k3", "a turn criterion must be a mapping"),
    ],
)
def test_wrong_criteria_are_named(turn: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        policy(turn)
    with pytest.raises(PolicyError, match="8 turns"):
        policy(*[{"statistic": "turn_mean_k3", "upper": 1.0}] * 9)
