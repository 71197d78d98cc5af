"""The share of responses that the length limit cut: as given, else where lengths pile up at the largest one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.core.example_columns import of_log_ratios
from trmon_client.core.columns import Columns
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.group_signals import share_at_cap


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_lengths_that_a_limit_cuts_pile_up_at_it(share: float) -> None:
    lengths = np.random.default_rng(0).lognormal(6, 0.8, 512).astype(int)
    cap = int(np.quantile(lengths, 1 - share))
    assert share_at_cap(np.minimum(lengths, cap)) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [16, 512])
def test_the_longest_of_uncut_lengths_is_no_cap(seed: int, n: int) -> None:
    lengths = np.random.default_rng(seed).lognormal(6, 0.8, n).astype(int)
    assert share_at_cap(lengths) == 0.0


def test_a_given_truncation_comes_first() -> None:
    columns = of_log_ratios([0.1] * 9, [0.1] * 9, [0.1] * 2, [], truncated=[True, False, False, True])
    assert batch_signals.compute(columns)["length_limit_share"] == pytest.approx(1 / 3)


def test_invalid_tokens_count_towards_the_length_at_the_cap() -> None:
    columns = of_log_ratios([0.1] * 9, [0.1] * 8 + [math.nan], [0.1] * 2)
    assert batch_signals.compute(columns)["length_limit_share"] == pytest.approx(2 / 3)


def test_truncation_of_some_parts_only_is_dropped_by_a_merge() -> None:
    cut, unknown = of_log_ratios([0.1], truncated=[True]), of_log_ratios([0.1] * 3)
    assert "truncated" not in Columns.merge(cut, unknown)
