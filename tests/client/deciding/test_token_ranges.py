"""Probabilities passed in place of log-probs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core.inputs.checked_inputs import check_inputs
from trmon_client.logprob_checks import TokenRanges, probabilities_in

MASK = np.array([[1, 1, 0], [1, 1, 1]])
LOGPROBS = np.array([[-0.1, -2.0, 0.5], [-1e-3, 0.0, -3.0]])

CASES = {
    "log-probs": (LOGPROBS, []),
    "probabilities": (np.exp(np.minimum(LOGPROBS, 0.0)), ["logprobs"]),
    "probabilities, some of them 0": (np.array([[0.5, 0.0, -9.0], [1.0, 0.2, 0.3]]), ["logprobs"]),
    "certain tokens only": (np.zeros((2, 3)), []),
    "rounding above 0": (np.full((2, 3), 1e-6), []),
    "a value above 1": (np.full((2, 3), 1.5), []),
    "a value that is not a number": (np.full((2, 3), np.nan), []),
}


@pytest.mark.parametrize("library", ["numpy", "torch", "short floats"])
@pytest.mark.parametrize(("values", "found"), CASES.values(), ids=CASES.keys())
def test_values_from_0_to_1_are_probabilities(values: Any, found: list[str], library: str) -> None:
    given: dict[str, Any] = {"rollout_logprobs": LOGPROBS, "logprobs": values, "mask": MASK}
    if library != "numpy":
        given = {name: torch.from_numpy(np.asarray(array)) for name, array in given.items()}
    if library == "short floats":
        given["logprobs"] = given["logprobs"].to(torch.bfloat16)
    ranges = TokenRanges.of(check_inputs(**given)).by_argument
    assert probabilities_in({name: np.asarray(array) for name, array in ranges.items()}) == found


def test_an_empty_batch_has_no_ranges() -> None:
    empty = np.zeros((0, 3))
    inputs = check_inputs(rollout_logprobs=empty, logprobs=empty, mask=empty)
    assert TokenRanges.of(inputs).by_argument == {}
