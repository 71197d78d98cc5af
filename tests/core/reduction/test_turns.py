"""The columns of turns: every small case against plain Python floats, in every form of the arguments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.core import reference
from tests.core.agreement import equal
from tests.core.examples import GIVES, batch
from trmon_client.core import statistics
from trmon_client.core.column_schema import TURN_COLUMNS
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.inputs.labels import TurnInputs
from trmon_client.core.reduction.sequences import BLOCK_TOKENS
from trmon_client.core.reduction.turns import turn_columns


def plain(given: dict[str, Any], mask: Any, ids: Any) -> dict[str, list[float]]:
    """Return the columns of the turns by the plain reference: each turn as a sequence of which nothing else counts."""
    counted = np.where(mask, ids, -1)
    turns = [(i, turn) for i, row in enumerate(counted) for turn in range(max(row, default=-1) + 1)]
    found: dict[str, list[float]] = {}
    for i, turn in turns:
        row = reference.columns({name: rows[i : i + 1] for name, rows in given.items()}, (counted == turn)[i : i + 1])
        for name in TURN_COLUMNS:
            if name == "n_tokens" or f"{name.partition('_')[0]}_sum_d" in row:
                found.setdefault(name, []).append(_of_turn(row, name))
    return found


def _of_turn(row: dict[str, list[float]], name: str) -> float:
    if not name.endswith("max_abs_d"):
        return row[name][0]
    pair = name.removesuffix("_max_abs_d")
    return max(row[f"{pair}_max_d"][0], -row[f"{pair}_min_d"][0])


def agree(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compare columns: counts exactly, sums to 1e-9, extremes to the precision of float32, binary KL to 1e-6."""
    for name, want in expected.items():
        relative = {"i8": 0.0, "f4": 1e-6, "f8": 1e-9}[TURN_COLUMNS[name].dtype]
        absolute = 1e-6 if name.endswith("binary_kl") else relative if TURN_COLUMNS[name].dtype == "f8" else 0.0
        np.testing.assert_allclose(found[name], want, rtol=relative, atol=absolute, err_msg=name)


def of(**arguments: Any) -> Any:
    return statistics.columns(**arguments).turns


def same(left: TurnColumns, right: TurnColumns) -> None:
    """Check that two tables are equal to the last bit."""
    assert left.n_turns.tolist() == right.n_turns.tolist()
    assert list(left.by_name) == list(right.by_name)
    for name, array in left.by_name.items():
        assert np.asarray(array).tobytes() == np.asarray(right.by_name[name]).tobytes(), name


@pytest.mark.parametrize("ids", [*itertools.product((-1, 0, 1, 2), repeat=3)])
def test_every_case_of_three_tokens_equals_the_plain_reference(ids: tuple[int, ...]) -> None:
    masks = np.array(list(itertools.product((False, True), repeat=3)))
    inputs = batch(seed=1, n_sequences=len(masks), horizon=3, odd=0.15)
    given = {name: inputs[name] for name in GIVES["all three"]}
    every = np.tile(ids, (len(masks), 1))
    found = of(**given, mask=masks, turn_ids=every)
    assert {name: array.dtype for name, array in found.by_name.items()} == {n: s.dtype for n, s in TURN_COLUMNS.items()}
    expected = plain(given, masks, every)
    assert found.n_turns.tolist() == [
        max((i for i, m in zip(ids, row, strict=True) if m), default=-1) + 1 for row in masks
    ]
    agree(found.by_name, expected or {name: [] for name in TURN_COLUMNS})


@pytest.mark.parametrize("names", GIVES.values(), ids=GIVES)
@pytest.mark.parametrize("horizon", [1, 12, 300])
def test_random_turns_equal_the_plain_reference(names: tuple[str, ...], horizon: int) -> None:
    inputs = batch(seed=2, n_sequences=7, horizon=horizon, odd=0.05)
    ids = np.random.default_rng(3).integers(-2, 5, inputs["mask"].shape)
    given = {name: inputs[name] for name in names}
    agree(of(**given, mask=inputs["mask"], turn_ids=ids).by_name, plain(given, inputs["mask"], ids))


def test_a_large_batch_has_the_same_turns_as_its_rows() -> None:
    """Blocks of the reduction, and the other reduction of large float32 batches, leave the turns as they are."""
    inputs = batch(seed=4, n_sequences=2 * BLOCK_TOKENS // 300, horizon=300)
    ids = np.sort(np.random.default_rng(5).integers(0, 9, inputs["mask"].shape), axis=1)
    whole = of(**inputs, turn_ids=ids)
    rows = (
        of(**{name: array[i : i + 1] for name, array in inputs.items()}, turn_ids=ids[i : i + 1])
        for i in range(len(ids))
    )
    same(whole, TurnColumns.merge(*rows))


def test_offsets_equal_ids() -> None:
    inputs = batch(seed=6, n_sequences=3)
    inputs["mask"][:] = True
    ids = np.array([[-1] * 2 + [0] * 4 + [1] * 6, [0] * 12, [0] * 1 + [2] * 11])
    same(of(**inputs, turn_offsets=[[2, 6], [0], [0, 1, 1]]), of(**inputs, turn_ids=ids))
    same(of(**inputs, turn_offsets=[[2, 6], [0], [0, 1, 1]]), of(**inputs, turn_ids=ids.astype(np.int16)))
    after_the_end = of(**inputs, turn_offsets=np.array([[0, 12], [3, 99], [0, 1]]))
    assert after_the_end.n_tokens.tolist() == [12, 0, 9, 0, 1, 11]
    assert after_the_end.by_name["total_max_abs_d"][[1, 3]].tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("form", ["ragged", "packed"])
@pytest.mark.parametrize("argument", ["turn_ids", "turn_offsets"])
def test_packed_and_ragged_forms_equal_the_padded_one(form: str, argument: str) -> None:
    lengths = [5, 0, 12, 1]
    inputs = batch(seed=7, n_sequences=4)
    ids = np.sort(np.random.default_rng(8).integers(0, 3, (4, 12)), axis=1)
    mask = np.arange(12) < np.array(lengths)[:, None]
    expected = of(**inputs | {"mask": mask}, turn_ids=ids)

    def formed(array: Any) -> Any:
        rows = [row[:n] for row, n in zip(array, lengths, strict=True)]
        return rows if form == "ragged" else np.concatenate(rows)

    given = {name: formed(array) for name, array in inputs.items() if name != "mask"}
    given |= {"cu_seqlens": np.cumsum([0, *lengths])} if form == "packed" else {}
    starts = [
        np.searchsorted(row[:n], np.arange(n_turns))
        for row, n, n_turns in zip(ids, lengths, expected.n_turns, strict=True)
    ]
    same(of(**given, **{argument: formed(ids) if argument == "turn_ids" else starts}), expected)


def test_packed_ids_are_of_tokens_even_where_there_are_as_many_sequences() -> None:
    logprobs = {"rollout_logprobs": np.full(2, -1.0), "logprobs": np.full(2, -1.0)}
    assert of(**logprobs, cu_seqlens=[0, 1, 2], turn_ids=np.array([0, 1])).n_turns.tolist() == [1, 2]


@pytest.mark.parametrize("horizon", [12, 300])
def test_tensors_have_the_same_turns(horizon: int) -> None:
    inputs = batch(seed=9, horizon=horizon, odd=0.1)
    ids = np.random.default_rng(10).integers(-1, 6, inputs["mask"].shape)
    expected = of(**inputs, turn_ids=ids)
    same(
        of(**{name: torch.from_numpy(array) for name, array in inputs.items()}, turn_ids=torch.from_numpy(ids)),
        expected,
    )
    # As on a device: torch's functions, over tensors that do not become numpy arrays.
    checked = check_inputs(**inputs, turn_ids=ids)
    found = turn_columns(_on_torch(checked))
    agree({name: array.numpy() for name, array in found.by_name.items()}, expected.by_name)


def test_offsets_on_the_host_never_wait_for_the_device() -> None:
    logprobs = torch.full((3, 16), -1.0, device="meta")
    found = of(
        rollout_logprobs=logprobs,
        logprobs=logprobs,
        mask=torch.ones((3, 16), dtype=torch.bool, device="meta"),
        turn_offsets=[[0, 8], [], [4]],
    )
    assert {array.device.type for array in found.by_name.values()} == {"meta"}
    assert found.n_turns.tolist() == [2, 0, 1]


@pytest.mark.parametrize("n", [0, 1])
def test_no_sequences_and_no_tokens_are_legal(n: int) -> None:
    empty = np.zeros((n, 0))
    found = of(rollout_logprobs=empty, logprobs=empty, mask=empty != 0, turn_offsets=[[0]] * n)
    assert found.n_tokens.tolist() == [0] * n
    assert found.n_turns.tolist() == [1] * n


def test_turns_change_no_column_of_the_sequences() -> None:
    inputs = batch(seed=11, n_sequences=40, horizon=300)
    without, with_turns = statistics.columns(**inputs), statistics.columns(**inputs, turn_offsets=[[0, 9]] * 40)
    assert without.turns is None
    equal(with_turns, without)


def test_merged_columns_keep_the_turns_only_if_all_parts_have_them() -> None:
    part = statistics.columns(**batch(12), turn_offsets=[[0, 5]] * 6)
    both = Columns.merge(part, part).turns
    assert both.sequences.tolist() == [i for i in range(12) for _ in range(2)]
    assert Columns.merge(part, statistics.columns(**batch(13))).turns is None
    again = part.with_arrays([array.copy() for array in part.arrays]).turns
    same(again, part.turns)


def _on_torch(checked: CheckedInputs) -> CheckedInputs:
    moved = replace(checked, turns=None).mapped(torch.from_numpy)
    return replace(moved, turns=TurnInputs(torch.from_numpy(checked.turns.ids), checked.turns.n_turns))
