"""The forms of input that `statistics.columns` accepts, packed ones among them, and the arguments that it rejects."""

from __future__ import annotations

import math
import re
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch

from tests.core.agreement import equal
from tests.core.examples import batch
from trmon_client.core import statistics
from trmon_client.core.inputs import tokens
from trmon_client.core.inputs.labels import group_labels
from trmon_client.core.inputs.tokens import pad_rows
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.policy import preset


def changed(inputs: dict[str, Any], change: Any) -> dict[str, Any]:
    return {name: change(array) for name, array in inputs.items()}


FORMS = {
    "torch": torch.from_numpy,
    "torch inside a graph": lambda a: torch.from_numpy(a).requires_grad_() * 1 if a.dtype.kind == "f" else a,
    "non-contiguous numpy": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed numpy": lambda a: a[::-1].copy()[::-1],
    "read-only numpy": lambda a: np.broadcast_to(a, a.shape),
    "non-contiguous torch": lambda a: torch.from_numpy(np.repeat(a, 2, axis=1))[:, ::2],
    "float64": lambda a: a.astype(np.float64),
    "a float mask": lambda a: a.astype(np.float32),
    "an integer mask": lambda a: a.astype(np.int64) if a.dtype == bool else a,
    "a byte mask of torch": lambda a: torch.from_numpy(a).to(torch.uint8) if a.dtype == bool else a,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_input_in_another_form_gives_the_same_columns(form: Any) -> None:
    inputs = batch(seed=1, odd=0.05)
    equal(statistics.columns(**changed(inputs, form)), statistics.columns(**inputs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, np.float16])
def test_half_precision_is_converted_exactly(dtype: Any) -> None:
    is_torch = isinstance(dtype, torch.dtype)
    short = changed(batch(seed=1), lambda a: torch.from_numpy(a).to(dtype) if is_torch else a.astype(dtype))
    wide = changed(short, lambda a: a.double() if is_torch else a.astype(np.float64))
    equal(statistics.columns(**short), statistics.columns(**wide))


def test_numpy_and_torch_can_be_mixed() -> None:
    inputs = batch(seed=1)
    mixed = inputs | {"logprobs": torch.from_numpy(inputs["logprobs"]), "mask": inputs["mask"].tolist()}
    equal(statistics.columns(**mixed), statistics.columns(**inputs))


def test_arguments_are_not_modified() -> None:
    inputs = batch(seed=1, odd=0.1)
    before = changed(inputs, np.copy)
    statistics.columns(**inputs)
    for name, array in inputs.items():
        np.testing.assert_array_equal(array, before[name])


def ragged(convert: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return padded inputs, and the same inputs as lists of rows."""
    inputs = batch(seed=3)
    lengths = [12, 0, 1, 7, 12, 3]
    inputs["mask"] = np.arange(12) < np.array(lengths)[:, None]
    inputs["versions"] = np.arange(72).reshape(6, 12)
    inputs["advantages"] = np.arange(72.0).reshape(6, 12)
    inputs["token_ids"] = np.arange(72).reshape(6, 12) % 3
    inputs["ref_logprobs"] = -np.arange(72.0).reshape(6, 12) / 72
    return inputs, {
        name: [convert(row[:n]) for row, n in zip(array, lengths, strict=True)] for name, array in inputs.items()
    }


@pytest.mark.parametrize("convert", [np.array, torch.tensor, np.ndarray.tolist], ids=["numpy", "torch", "lists"])
@pytest.mark.parametrize("with_mask", [True, False])
def test_ragged_lists_give_the_columns_of_padded_arrays(convert: Any, with_mask: bool) -> None:
    padded, rows = ragged(convert)
    if not with_mask:
        rows["mask"] = None
    equal(statistics.columns(**rows), statistics.columns(**padded))


def test_a_mask_within_a_ragged_sequence_is_applied() -> None:
    rows = [np.array([-1.0, np.nan, -2.0]), np.array([-1.0])]
    found = statistics.columns(rollout_logprobs=rows, logprobs=rows, mask=[[1, 0, 1], [1]], advantages=[1.0, 2.0])
    assert found["n_tokens"].tolist() == [2, 1]
    assert found["n_invalid"].tolist() == [0, 0]
    assert found["advantage"].tolist() == [1.0, 2.0]


def test_a_list_of_tensors_is_stacked_and_detached() -> None:
    inputs = batch(seed=1)
    scalars = [torch.tensor(float(i), requires_grad=True) for i in range(6)]
    groups = [torch.tensor(i) for i in range(6)]
    found = statistics.columns(**inputs, rewards=scalars, advantages=scalars, group_ids=groups)
    values = np.arange(6.0)
    equal(found, statistics.columns(**inputs, rewards=values, advantages=values, group_ids=range(6)))


def test_ragged_rows_of_several_dtypes_use_the_widest() -> None:
    value = -1.0000001
    rows = [torch.tensor([value], dtype=dtype) for dtype in (torch.bfloat16, torch.float64)]
    # The meta device stands for an accelerator: it keeps tensors tensors.
    for arrays in (rows, [row.to("meta") for row in rows], [row.numpy() for row in rows[1:]]):
        assert str(pad_rows("logprobs", arrays, like=("logprobs", [1] * len(arrays))).dtype).endswith("float64")
    found = statistics.columns(rollout_logprobs=rows, logprobs=rows)
    assert found["sum_logp"].tolist() == [-1.0, value]


@pytest.mark.parametrize("row", [[], np.zeros(0, np.int64), torch.zeros(0, dtype=torch.int64)], ids=type)
def test_labels_of_sequences_without_a_token_are_allowed(row: Any) -> None:
    logp = [np.zeros(0)] * 2
    found = statistics.columns(rollout_logprobs=logp, logprobs=logp, versions=[row] * 2, advantages=[row] * 2)
    assert found["version_min"].tolist() == found["version_max"].tolist() == [-1, -1]
    assert np.isnan(found["advantage"]).all()


def test_an_empty_ragged_batch_is_allowed() -> None:
    assert statistics.columns(rollout_logprobs=[], logprobs=[]).n_sequences == 0


GOOD = batch(seed=0, n_sequences=4, horizon=8)
ROWS = [np.array([-1.0, -2.0]), np.array([-1.0])]
GIVEN: dict[str, dict[str, Any]] = {
    "neither log-probs nor a mask are given; expected mask=, set where a token counts": {"rewards": np.ones(6)},
    "rewards has shape (5,); expected (4,) like mask": {"mask": GOOD["mask"], "rewards": np.ones(5)},
    "mask has shape (4, 8); expected (3, 8) like logprobs": {"logprobs": np.ones((3, 8)), "mask": GOOD["mask"]},
    "rollout_logprobs has shape (8,); expected two dimensions, [sequences, tokens]": changed(GOOD, lambda a: a[0]),
    "rollout_logprobs is a list of numbers; expected a list of 1-D arrays, one for each sequence, like the others": {
        "rollout_logprobs": [-1.0],
        "logprobs": ROWS,
    },
    "logprobs[1] has shape (2,); expected (1,) like rollout_logprobs[1]": {
        "rollout_logprobs": ROWS,
        "logprobs": [ROWS[0], ROWS[0]],
    },
    "logprobs has 1 sequences; expected 2 like rollout_logprobs": {"rollout_logprobs": ROWS, "logprobs": ROWS[:1]},
    "rollout_logprobs[0] has shape (2, 2); expected a 1-D array, one number for each token": {
        "rollout_logprobs": [np.ones((2, 2))],
        "logprobs": [np.ones((2, 2))],
    },
    "mask is an array; expected a list of 1-D arrays like rollout_logprobs, or None if all tokens count": {
        "rollout_logprobs": ROWS,
        "logprobs": ROWS,
        "mask": np.ones((2, 2)),
    },
}
CHANGED: dict[str, dict[str, Any]] = {
    "truncated has dtype float64; expected booleans or integers": {"truncated": np.ones(4)},
    "old_logprobs has shape (4, 7); expected (4, 8) like rollout": {"old_logprobs": GOOD["old_logprobs"][:, :7]},
    "mask is None; expected a mask of shape (4, 8), set where a token counts": {"mask": None},
    "logprobs has dtype int64; expected a floating dtype": {"logprobs": np.ones((4, 8), np.int64)},
    "mask has dtype complex128; expected booleans, integers or floats": {"mask": np.ones((4, 8), complex)},
    "advantages has shape (5,); expected (4,) or (4, 8) like rollout_logprobs": {"advantages": np.ones(5)},
    "advantages has dtype complex128; expected a real dtype": {"advantages": np.ones(4, complex)},
    "rewards has shape (4, 8); expected (4,)": {"rewards": np.ones((4, 8))},
    "versions has 9223372036854775808; expected": {"versions": np.array([1, 2, 3, 1 << 63], np.uint64)},
    "versions has dtype float64; expected an integer dtype": {"versions": np.ones(4)},
    "group_ids has shape (); expected (4,), one label for each sequence": {"group_ids": 5},
    "rewards is not an array: stack expects each tensor": {"rewards": [torch.ones(1), torch.ones(2)]},
    "logprobs is not an array: can't convert Sparse layout": {"logprobs": torch.ones(4, 8).to_sparse()},
    "clip_low is -0.8; expected a number of 0 or more": {"clip_low": -0.8},
    "clip_high is nan; expected a number of 0": {"clip_high": math.nan},
    "trainer_version is 1.5; expected an integer": {"trainer_version": 1.5},
    "old_logprobs is an array of shape (4, 8); expected a list of 1-D arrays": {"rollout_logprobs": ROWS},
    "ref_logprobs has shape (4,); expected (4, 8) like rollout_logprobs": {"ref_logprobs": np.zeros(4)},
    "ref_logprobs has dtype int64; expected a floating dtype": {"ref_logprobs": np.zeros((4, 8), int)},
    "token_ids has shape (4, 7); expected (4, 8) like rollout_logprobs": {"token_ids": np.zeros((4, 7), int)},
    "token_ids has dtype float64; expected an integer dtype": {"token_ids": np.zeros((4, 8))},
    "finish_reasons is of length 1; expected 4 texts": {"finish_reasons": ["stop"]},
    "finish_reasons is str; expected 4 texts": {"finish_reasons": "stop"},
    "turn_ids and turn_offsets are both given": {"turn_ids": np.zeros((4, 8), int), "turn_offsets": [[0]] * 4},
    "turn_ids has shape (4, 7); expected (4, 8)": {"turn_ids": np.zeros((4, 7), int)},
    "turn_ids has dtype float64; expected an integer dtype": {"turn_ids": np.zeros((4, 8))},
    "turn_ids has turns up to 4611686018427387904; expected at most 524288": {"turn_ids": np.full((4, 8), 1 << 62)},
    "turn_offsets has 5 sequences; expected 4 like rollout_logprobs": {"turn_offsets": [[0]] * 5},
    "turn_offsets must be a list": {"turn_offsets": 3},
    "turn_offsets[0] is [0, 4, 3]; expected positions": {"turn_offsets": [[0, 4, 3]] * 4},
    "turn_offsets[0] is [-1]; expected positions": {"turn_offsets": [[-1]] * 4},
    "turn_offsets[0] has shape (1,) and dtype float64": {"turn_offsets": [[0.5]] * 4},
    "turn_offsets has turns up to 196607; expected at most 524288": {"turn_offsets": [range(3 << 16)] * 4},
    "backend is 'cuda'; expected 'blocks' or 'triton'": {"backend": "cuda"},
}


@pytest.mark.parametrize("message", [*GIVEN, *CHANGED])
def test_an_invalid_argument_is_rejected_by_name(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        statistics.columns(**(GIVEN[message] if message in GIVEN else GOOD | CHANGED[message]))


def label(name: bytes) -> int:
    return int.from_bytes(blake2b(name).digest()[:8], "little", signed=True)


GROUPS = {
    "integers": ([5, -3], [5, -3]),
    "small unsigned integers": (np.array([5, 200], np.uint8), [5, 200]),
    "a tensor": (torch.tensor([5, 7], dtype=torch.int32), [5, 7]),
    "strings": (["a", "b"], [label(b"a"), label(b"b")]),
    "bytes": ([b"a", b"b"], [label(b"a"), label(b"b")]),
    "integers beside strings": ([5, "b"], [5, label(b"b")]),
    "integers beyond 64 bits": ([1 << 64, 1], [label(b"18446744073709551616"), 1]),
    "unsigned integers beyond 63 bits": (np.array([1 << 63, 1], np.uint64), [label(b"9223372036854775808"), 1]),
    "text that UTF-8 cannot hold": (["\udcff", "b"], [label(b"\xed\xb3\xbf"), label(b"b")]),
    "whole floats of the host": ([2.0, np.float32(7)], [2, 7]),
    "tuples, by their text": ([(0, 1), (0, 2)], [label(b"(0, 1)"), label(b"(0, 2)")]),
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 0.5], "group_ids has 0.5; expected whole numbers"),
        (np.array([0.0, np.nan]), "group_ids has nan; expected whole numbers"),
        ([0, None], "group_ids has None; expected whole numbers"),
        ([1, 2 + 0j], "expected whole numbers"),
        (torch.tensor([0.0, 1.0]), "group_ids has dtype torch.float32; expected whole numbers: pass group_ids.long()"),
    ],
    ids=str,
)
def test_numbers_that_are_not_whole_are_no_labels(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        group_labels(given, None)


@pytest.mark.parametrize(("given", "expected"), GROUPS.values(), ids=GROUPS)
def test_integer_labels_are_kept_and_others_hashed(given: Any, expected: list[int]) -> None:
    found = group_labels(given, None)
    assert found.dtype == np.int64
    assert found.tolist() == expected


LOGPS = ("rollout_logprobs", "old_logprobs", "logprobs")
LENGTHS = {
    "several": [3, 0, 12, 1, 7, 12],
    "one sequence": [5],
    "hardly a token each": [1, 1, 2],
    "empty ones at both ends": [0, 4, 0],
    "none with a token": [0, 0],
    "long rows": [300, 2, 280],
}


def both(lengths: list[int], *, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the same arguments padded and packed, with a mask with gaps."""
    padded = batch(seed, n_sequences=len(lengths), horizon=max(lengths), odd=0.05)
    padded["advantages"] = np.random.default_rng(seed).normal(size=padded["mask"].shape)
    padded["versions"] = np.random.default_rng(seed).integers(0, 9, padded["mask"].shape)
    padded["token_ids"] = np.random.default_rng(seed).integers(0, 3, padded["mask"].shape)
    padded["ref_logprobs"] = -np.random.default_rng(seed).exponential(size=padded["mask"].shape)
    rows = np.arange(max(lengths)) < np.array(lengths)[:, None]
    flat = {name: array[rows] for name, array in padded.items()}
    return padded | {"mask": padded["mask"] & rows}, flat | {"cu_seqlens": np.cumsum([0, *lengths])}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_packed_input_gives_the_columns_of_padded_input_to_the_bit(lengths: list[int]) -> None:
    padded, flat = both(lengths)
    equal(statistics.columns(**flat), statistics.columns(**padded))


KINDS = {
    "tensors": (torch.from_numpy, lambda cu: torch.tensor(cu, dtype=torch.int32)),
    "float16 tensors": (lambda a: torch.from_numpy(a).half() if a.dtype == np.float32 else torch.from_numpy(a), list),
    "lists of numbers": (np.ndarray.tolist, np.ndarray.tolist),
}


@pytest.mark.parametrize(("convert", "offsets"), KINDS.values(), ids=KINDS)
def test_packed_input_can_be_of_any_kind(convert: Any, offsets: Any) -> None:
    padded, flat = both(LENGTHS["several"])
    given = {name: offsets(array) if name == "cu_seqlens" else convert(array) for name, array in flat.items()}
    expected = {name: convert(array) for name, array in padded.items()}
    if convert is np.ndarray.tolist:
        expected = padded | {name: padded[name].astype(np.float64) for name in LOGPS}
    equal(statistics.columns(**given), statistics.columns(**expected))


def test_without_a_mask_every_token_counts() -> None:
    _, flat = both(LENGTHS["several"])
    ones = np.ones(len(flat["logprobs"]), bool)
    equal(statistics.columns(**flat | {"mask": None}), statistics.columns(**flat | {"mask": ones}))


def test_labels_can_be_given_per_sequence() -> None:
    _, flat = both([2, 3])
    found = statistics.columns(**flat | {"advantages": [1.0, -1.0], "versions": [4, 5]}, rewards=[0, 1], group_ids="ab")
    assert found["advantage"].tolist() == [1.0, -1.0]
    assert found["version_min"].tolist() == [4, 5]
    assert found["reward"].tolist() == [0.0, 1.0]


def test_an_empty_batch_is_allowed() -> None:
    none = np.zeros(0, np.float32)
    assert statistics.columns(rollout_logprobs=none, logprobs=none, cu_seqlens=[0]).n_sequences == 0


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_device_tensors_are_padded_and_unpadded_without_reading_a_value(lengths: list[int]) -> None:
    flat = np.arange(float(sum(lengths)))
    on_device = tokens.pad_packed(torch.from_numpy(flat), lengths=lengths)
    on_host = tokens.pad_packed(flat, lengths=lengths)
    counting = np.arange(max(lengths)) < np.array(lengths)[:, None]
    assert on_device.numpy()[counting].tolist() == on_host[counting].tolist() == flat.tolist()
    for padded in (on_device, torch.from_numpy(on_host)):
        assert tokens.unpad_packed(padded, lengths=lengths).tolist() == flat.tolist()
    assert tokens.unpad_packed(on_host, lengths=lengths).tolist() == flat.tolist()
    # Tensors of the meta device hold no values: whatever would read one raises.
    meta = tokens.pad_packed(torch.from_numpy(flat).to("meta"), lengths=lengths)
    assert tokens.unpad_packed(meta, lengths=lengths).shape == flat.shape


@pytest.mark.parametrize("name", ["icepop", "seq_tis"])
def test_token_decisions_are_returned_in_the_layout_of_the_log_probs(name: str) -> None:
    lengths = LENGTHS["several"]
    padded, flat = both(lengths)
    of_padded, of_packed, of_rows = (
        token_decision.apply_token_rules(preset(name), **given)
        for given in (
            {argument: padded[argument] for argument in (*LOGPS, "mask")},
            {argument: flat[argument] for argument in (*LOGPS, "mask", "cu_seqlens")},
            {argument: np.split(flat[argument], np.cumsum(lengths)[:-1]) for argument in (*LOGPS, "mask")},
        )
    )
    rows = np.arange(max(lengths)) < np.array(lengths)[:, None]
    expected = of_padded.weights[rows].tolist()
    assert np.asarray(of_padded.layout.restored(of_padded.weights)).tolist() == of_padded.weights.tolist()
    assert np.asarray(of_packed.layout.restored(of_packed.weights)).tolist() == expected
    restored = of_rows.layout.restored(of_rows.weights)
    assert [len(row) for row in restored] == lengths
    assert np.concatenate(restored).tolist() == expected


CHANGED_PACKED: dict[str, dict[str, Any]] = {
    "cu_seqlens[0] is 1; expected offsets that start at 0": {"cu_seqlens": [1, 2, 5]},
    "cu_seqlens[2] is 2; expected offsets": {"cu_seqlens": [0, 4, 2, 5]},
    "rollout_logprobs has shape (5,); expected (6,)": {"cu_seqlens": [0, 2, 6]},
    "cu_seqlens has shape (2,) and dtype float64; expected integers": {"cu_seqlens": [0.0, 5.0]},
    "cu_seqlens has shape (0,) and dtype int64; expected": {"cu_seqlens": np.zeros(0, int)},
    "cu_seqlens has shape (1, 2) and dtype int64; expected": {"cu_seqlens": [[0, 5]]},
    "logprobs has shape (2, 3); expected (5,) by cu_seqlens": {"logprobs": np.zeros((2, 3))},
    "mask has shape (4,); expected (5,) by cu_seqlens": {"mask": np.ones(4)},
    "advantages has shape (3,); expected (2,) or (5,)": {"advantages": np.ones(3)},
}


@pytest.mark.parametrize("message", CHANGED_PACKED)
def test_an_invalid_packed_argument_is_rejected_by_name(message: str) -> None:
    _, flat = both([2, 3])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        statistics.columns(**flat | CHANGED_PACKED[message])
