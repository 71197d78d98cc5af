"""Queues: known values, limits, and a simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trmon.domain.capacity.queueing import (
    erlang_c,
    groups_per_second,
    multiserver_response,
    processor_sharing_response,
)


@pytest.mark.parametrize(
    ("servers", "offered", "waits"),
    [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (3, 2.0, 4 / 9), (2, 0.0, 0.0), (2, 2.0, 1.0), (2, 5.0, 1.0)],
)
def test_erlang_c_has_its_known_values(servers: int, offered: float, waits: float) -> None:
    assert erlang_c(servers, offered) == pytest.approx(waits)


def test_erlang_c_does_not_overflow_with_many_servers() -> None:
    assert 0 < erlang_c(5000, 4950.0) < 1


def test_one_server_responds_as_one_shared_processor() -> None:
    assert multiserver_response(0.01, servers=1, offered=0.75) == pytest.approx(processor_sharing_response(0.01, 0.75))
    assert processor_sharing_response(0.01, 0.75) == pytest.approx(0.04)


def test_a_saturated_queue_never_responds() -> None:
    assert processor_sharing_response(0.01, 1.0) == math.inf
    assert multiserver_response(0.01, servers=2, offered=2.0) == math.inf


@pytest.mark.parametrize("arrivals", [10.0, 100.0, 1000.0])
def test_groups_are_as_many_as_a_simulation_has(arrivals: float) -> None:
    seconds = 0.008
    times = np.random.default_rng(0).exponential(1 / arrivals, 20_000).cumsum()
    groups, free_at, next_one = 0, 0.0, 0
    while next_one < len(times):
        begins = max(free_at, times[next_one])
        next_one = int(np.searchsorted(times, begins, side="right"))
        groups, free_at = groups + 1, begins + seconds
    assert groups_per_second(arrivals, seconds) == pytest.approx(groups / free_at, rel=0.03)


def test_groups_are_single_messages_when_few_arrive_and_none_without_messages() -> None:
    assert groups_per_second(0.1, 0.008) == pytest.approx(0.1, rel=1e-5)
    assert groups_per_second(0.0, 0.008) == 0.0
    assert groups_per_second(1e6, 0.008) == pytest.approx(125)
