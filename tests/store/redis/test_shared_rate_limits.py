"""Tests token buckets in Redis: replicas share one bucket, which refills by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.fixtures.redis import Redis
from tests.fixtures.waiting import eventually
from trmon.domain.model.errors import NotReady
from trmon.store.redis.shared_rate_limits import SharedBuckets

pytestmark = pytest.mark.server("redis-server")

SLOW = 1e-6
"""Tokens per second: too few to add one during a test."""


@pytest.fixture
def replicas(server: Redis) -> Iterator[tuple[SharedBuckets, SharedBuckets]]:
    """Two replicas on one Redis, with buckets of ten tokens that hardly refill."""
    both = [SharedBuckets(server.url, per_second=SLOW, burst=10) for _ in range(2)]
    yield both[0], both[1]
    for buckets in both:
        buckets.close()


def test_replicas_share_a_bucket(replicas: tuple[SharedBuckets, SharedBuckets]) -> None:
    one, other = replicas
    assert one.spend({"ana": 3})["ana"] == pytest.approx(7, abs=0.01)
    left = other.spend({"ana": 4, "bob": 1})
    assert (left["ana"], left["bob"]) == (pytest.approx(3, abs=0.01), pytest.approx(9, abs=0.01))
    assert one.spend({"ana": 0})["ana"] == pytest.approx(3, abs=0.01)


def test_the_debt_of_a_bucket_is_at_most_one_burst(replicas: tuple[SharedBuckets, SharedBuckets]) -> None:
    assert replicas[0].spend({"ana": 1000})["ana"] == pytest.approx(-10, abs=0.01)


def test_a_full_bucket_expires(server: Redis) -> None:
    buckets = SharedBuckets(server.url, per_second=20.0, burst=10)
    assert buckets.spend({"ana": 10})["ana"] < 10
    eventually(lambda: buckets.spend({"ana": 0})["ana"] == 10)
    with redis.Redis.from_url(server.url) as client:
        eventually(lambda: client.keys() == [])
    buckets.close()


def test_an_unreachable_or_hanging_redis_fails_at_once(server: Redis) -> None:
    buckets = SharedBuckets(server.url, per_second=1.0, burst=10)
    buckets.spend({"ana": 1})
    server.hold()
    with pytest.raises(NotReady, match="redis"):
        buckets.spend({"ana": 1})
    server.go_on()
    server.kill()
    with pytest.raises(NotReady, match="redis"):
        buckets.spend({"ana": 1})
    server.start()
    assert buckets.spend({"ana": 1})["ana"] == pytest.approx(9, abs=1)
    buckets.close()
