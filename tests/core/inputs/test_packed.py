"""Packed input: columns equal to those of padded input to the bit, and invalid arguments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from tests.core.agreement import equal
from tests.core.batches import batch
from trmon_client.core import statistics
from trmon_client.core.inputs import tokens
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.policy import preset

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


CHANGED: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("message", CHANGED)
def test_an_invalid_argument_is_rejected_by_name(message: str) -> None:
    _, flat = both([2, 3])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        statistics.columns(**flat | CHANGED[message])
