"""A setting that cannot be is refused by its field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.domain.adaptation import stream
from trmon.domain.adaptation.proposal import (
    AdaptationSetting,
    PolicySample,
    SampleWindow,
    StepKey,
    sample_of_reports,
)
from trmon_client.core import statistics
from trmon_client.core.policies.policy import preset


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_mask_rate", 0.0),
        ("target_mask_rate", 0.6),
        ("target_mask_rate", float("nan")),
        ("window_sequences", 255),
        ("window_sequences", 65_537),
        ("every_steps", 0),
        ("every_steps", 10**30),
        ("floor_factor", 0.0),
        ("floor_factor", 1.5),
        ("ceiling_factor", 0.9),
        ("ceiling_factor", float("inf")),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        AdaptationSetting(**{field: value})


def test_the_oldest_leave_as_soon_as_the_rest_is_enough() -> None:
    window = SampleWindow(n_sequences=600)
    for step in range(5):
        window = window.with_sample((1, step), stream.sample(stream.K3, n=256, seed=step))
    assert list(window.parts) == [(1, 2), (1, 3), (1, 4)]
    whole = window.sample()
    assert len(whole) == 768


def test_the_last_update_of_a_step_replaces_those_before_it() -> None:
    first, last = (stream.sample(stream.K3, n=256, seed=seed) for seed in (0, 1))
    window = SampleWindow(n_sequences=600).with_sample((1, 0), first).with_sample((1, 0), last)
    whole = window.sample()
    assert np.array_equal(whole.statistics, last.statistics)


def test_no_more_history_is_read_than_fits() -> None:
    asked: list[int] = []

    def history() -> Iterator[tuple[StepKey, PolicySample]]:
        for step in range(9, -1, -1):
            asked.append(step)
            yield (1, step), stream.sample(stream.K3, n=256, seed=step)

    window = SampleWindow.of(history(), n_sequences=512)
    assert asked == [9, 8]
    assert list(window.parts) == [(1, 8), (1, 9)]


def test_nothing_is_no_sample() -> None:
    assert SampleWindow(n_sequences=256).sample() is None
    assert sample_of_reports([], stream.K3) is None


def test_a_batch_that_lacks_what_the_policy_needs_is_left_out() -> None:
    columns = stream.batch(np.random.default_rng(0))
    del columns.by_name["advantage"]
    assert sample_of_reports([columns], preset("opsm")) is None
    assert sample_of_reports([columns], preset("trm")) is not None
    only_rewards = statistics.columns(mask=np.ones((2, 3)), rewards=[1.0, 0.0])
    assert sample_of_reports([only_rewards], preset("trm_avg")) is None


def test_empty_sequences_are_left_out_and_invalid_ones_counted() -> None:
    columns = stream.batch(np.random.default_rng(0), n=8)
    columns.by_name["n_tokens"] = np.array([0, 16, 16, 16, 16, 16, 16, 16])
    columns.by_name["n_invalid"] = np.array([0, 2, 0, 0, 0, 0, 0, 0])
    found = PolicySample.of(columns, stream.K3)
    assert (len(found), found.n_invalid, found.has_nan) == (6, 1, True)
