"""The masked surrogate against a plain sum over tokens, and the cases in which it is unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.core.batches import batch
from tests.core.example_columns import as_torch, of_log_ratios
from trmon_client.core import statistics
from trmon_client.core.bounds import surrogate
from trmon_client.core.columns import Columns


def test_the_surrogate_is_the_mean_over_sequences_with_its_standard_error() -> None:
    given = batch(seed=1, n_sequences=7, noise=0.3)
    advantages = np.random.default_rng(1).normal(size=7)
    accepted = np.array([True, False, True, True, False, True, True])
    found = surrogate(statistics.columns(**given, advantages=advantages), accepted=accepted, centred=True)
    terms = []
    for i, counts in enumerate(given["mask"]):
        d = [float(given["logprobs"][i][t]) - float(given["rollout_logprobs"][i][t]) for t in np.flatnonzero(counts)]
        terms.append(accepted[i] * advantages[i] * math.fsum(math.expm1(x) for x in d))
    mean = math.fsum(terms) / 7
    variance = math.fsum((term - mean) ** 2 for term in terms) / 7
    assert found.value == pytest.approx(mean, rel=1e-6)
    assert found.standard_error == pytest.approx(math.sqrt(variance / 7), rel=1e-6)
    assert found.n_sequences == 7


def test_the_surrogate_is_zero_where_no_weight_changed() -> None:
    found = surrogate(of_log_ratios([0.0, 0.0], [0.0], advantages=[0.5, -0.5]), centred=True)
    assert (found.value, found.standard_error) == (0.0, 0.0)


def test_the_gradient_is_the_gradient_of_the_masked_objective() -> None:
    """Adding h to log pi of one token changes L by A rho h/N to first order; a rejected sequence changes nothing."""
    h, advantages = 1e-6, [0.4, -0.6]

    def surrogate_of(*rows: list[float]) -> float:
        return surrogate(
            of_log_ratios(*rows, advantages=advantages), accepted=np.array([True, False]), centred=True
        ).value

    base = surrogate_of([0.2, -0.1], [0.3])
    assert (surrogate_of([0.2 + h, -0.1], [0.3]) - base) / h == pytest.approx(0.4 * math.exp(0.2) / 2, rel=1e-4)
    assert surrogate_of([0.2, -0.1], [0.3 + h]) == base


def test_the_mean_includes_rejected_sequences_and_excludes_padding_rows() -> None:
    alone = of_log_ratios([0.1], advantages=[1.0])
    padded = of_log_ratios([0.1], [], advantages=[1.0, math.nan])
    assert surrogate(padded, centred=True).value == surrogate(alone, centred=True).value
    invalid = of_log_ratios([0.1], [math.nan], advantages=[1.0, math.nan])
    found = surrogate(invalid, accepted=np.array([True, False]), centred=True)
    assert (found.value, found.n_sequences) == (surrogate(alone, centred=True).value / 2, 2)


def test_the_surrogate_of_merged_ranks_weighs_each_rank_by_its_sequences() -> None:
    parts = [of_log_ratios([0.1], advantages=[1.0]), of_log_ratios([0.3], [0.2], advantages=[0.5, -0.5])]
    values = [surrogate(part, centred=True) for part in parts]
    merged = surrogate(Columns.merge(*parts), centred=True)
    assert merged.value == pytest.approx((values[0].value + 2 * values[1].value) / 3)


@pytest.mark.parametrize(
    ("columns", "centred"),
    [
        (of_log_ratios([0.1], [0.2], advantages=[1.0, -1.0]), False),
        (of_log_ratios([0.1], [0.2]), True),
        (of_log_ratios([0.1], [0.2], advantages=[1.0, math.nan]), True),
        (of_log_ratios([], [], advantages=[1.0, -1.0]), True),
    ],
    ids=["not declared centred", "no advantages", "a NaN advantage", "no token"],
)
def test_the_surrogate_is_unknown(columns: Columns, centred: bool) -> None:
    found = surrogate(columns, centred=centred)
    assert math.isnan(found.value)
    assert math.isnan(found.standard_error)


def test_a_nan_advantage_of_a_rejected_sequence_is_ignored() -> None:
    columns = of_log_ratios([0.1], [0.2], advantages=[1.0, math.nan])
    found = surrogate(columns, accepted=np.array([True, False]), centred=True)
    assert found.value == pytest.approx(math.expm1(0.1) / 2)


def test_one_sequence_has_no_standard_error() -> None:
    found = surrogate(of_log_ratios([0.1], advantages=[1.0]), centred=True)
    assert found.value == pytest.approx(math.expm1(0.1))
    assert math.isnan(found.standard_error)


def test_tensors_give_the_same_surrogate_as_arrays() -> None:
    columns = of_log_ratios([0.1], [0.2], [0.3], advantages=[1.0, -1.0, 0.5])
    accepted = [True, True, False]
    expected = surrogate(columns, accepted=np.array(accepted), centred=True)
    assert surrogate(as_torch(columns), accepted=torch.tensor(accepted), centred=True) == expected


def test_extreme_advantages_do_not_raise_under_a_strict_floating_point_state() -> None:
    given = batch(seed=3, n_sequences=4)
    columns = statistics.columns(**given, advantages=[np.inf, 1e300, -1e300, 1e-300])
    with np.errstate(all="raise"):
        assert not math.isfinite(surrogate(columns, centred=True).value)


def test_weights_of_a_soft_policy_scale_the_terms_and_leave_the_normaliser() -> None:
    columns = of_log_ratios([0.1], [0.2], [0.3], advantages=[1.0, -1.0, math.nan])
    found = surrogate(columns, weights=np.array([1.0, 0.25, 0.0]), centred=True)
    assert found.value == pytest.approx((math.expm1(0.1) - 0.25 * math.expm1(0.2)) / 3)
    accepted = np.array([True, False, False])
    hard = surrogate(columns, accepted=accepted, centred=True)
    assert surrogate(columns, weights=accepted.astype(float), centred=True) == hard
