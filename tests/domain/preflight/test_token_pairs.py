"""Scores of an engine: every form in which engines return log-probs, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.token_pairs import EngineScores


@pytest.mark.parametrize(
    "logprobs",
    [
        [[-1.0, -2.0]],
        np.array([[-1.0, -2.0]], np.float16),
        torch.tensor([[-1.0, -2.0]], dtype=torch.bfloat16),
        [torch.tensor([-1.0, -2.0], requires_grad=True)],
    ],
)
def test_arrays_tensors_and_lists_are_read(logprobs: Any) -> None:
    [row] = EngineScores.of("a", logprobs=logprobs).logprobs
    assert row.tolist() == [-1.0, -2.0]
    assert row.dtype == np.float64


def test_none_is_a_missing_log_prob() -> None:
    [row] = EngineScores.of("a", logprobs=[[None, -1.0]]).logprobs
    assert np.isnan(row[0])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"logprobs": []}, "a: logprobs has no sequences"),
        ({"logprobs": [-1.0]}, "is not \\[tokens\\]"),
        ({"logprobs": ["x"]}, "not a list of rows"),
        ({"logprobs": 3}, "not a list of rows"),
        ({"logprobs": [[-1.0]], "mask": [[1, 1]]}, "mask has other lengths"),
        ({"logprobs": [[-1.0]], "token_ids": [[0.5]]}, "expected whole numbers"),
        ({"logprobs": [[-1.0]], "logits": [[1.0]]}, "vocabulary"),
    ],
)
def test_what_is_no_list_of_rows_is_refused_by_name(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        EngineScores.of("a", **fields)
