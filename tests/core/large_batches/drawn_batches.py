"""Random large batches, and that a reduction of one has the columns of the general reduction."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.core.agreement import agree
from tests.core.batches import GIVES, batch
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.reduction.sequences import reduce_block
from trmon_client.core.reduction.token_terms import DEFAULT_CLIP, RATIOS

LABELS = ("advantage", "reward", "group_id", "version_min", "version_max", "truncated")


def inputs_of(seed: int, *, names: tuple[str, ...], **drawn: Any) -> CheckedInputs:
    """Return a random batch with advantages and versions per token."""
    arrays = batch(seed, **drawn)
    mask = arrays.pop("mask")
    random = np.random.default_rng(seed)
    lengths = random.integers(0, mask.shape[1] + 1, (len(mask), 1))
    mask &= (np.arange(mask.shape[1]) < lengths) | (seed % 3 == 0)
    return check_inputs(
        **{name: arrays[name] for name in names},
        mask=np.ones_like(mask) if seed % 5 == 0 else mask,
        advantages=random.normal(size=mask.shape),
        versions=random.integers(0, 9, mask.shape),
        rewards=random.normal(size=len(mask)),
        group_ids=np.arange(len(mask)),
        truncated=random.random(len(mask)) < 0.5,
    )


def widened(inputs: CheckedInputs) -> CheckedInputs:
    """Return the inputs as float64, which the general reduction keeps."""
    return inputs.mapped(lambda array: array.astype(np.float64) if array.dtype == np.float32 else array)


inputs = st.builds(
    inputs_of,
    st.integers(0, 10**6),
    names=st.sampled_from([*GIVES.values()]),
    n_sequences=st.integers(1, 9),
    horizon=st.sampled_from([1, 7, 300]),
    noise=st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0, 8.0]),
    odd=st.sampled_from([0.0, 0.0, 0.05, 0.4]),
)


def assert_general(found: Columns, inputs: CheckedInputs) -> None:
    """Assert that columns of inputs are those of the general reduction."""
    with np.errstate(all="ignore"):
        expected = reduce_block(widened(inputs), clip=DEFAULT_CLIP)
        # float32 cannot tell which of two nearly equal |d| is larger.
        agree(found, {name: expected[name] for name in expected if name not in {"argmax_abs_d", *LABELS}})
    for name in LABELS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, err_msg=name)
    assert set(found) == set(expected)
    assert {name: array.dtype for name, array in found.items()} == {n: a.dtype for n, a in expected.items()}
    assert (found["argmax_abs_d"] >= 0).tolist() == (expected["argmax_abs_d"] >= 0).tolist()
    above, below = RATIOS[expected.primary or "total"]
    with np.errstate(invalid="ignore"):
        size = np.abs(inputs.logprobs[above].astype(np.float64) - inputs.logprobs[below])
    places = [columns["argmax_abs_d"][:, None] for columns in (found, expected)]
    of_found, of_expected = (np.take_along_axis(size, place, 1)[expected["n_tokens"] > 0] for place in places)
    np.testing.assert_allclose(of_found, of_expected, rtol=1e-6, atol=1e-6)
    for pair in expected.pairs:
        np.testing.assert_array_equal(found.histograms[pair], expected.histograms[pair])
