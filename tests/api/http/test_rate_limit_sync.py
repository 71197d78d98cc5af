"""Rate limits of replicas: one shared bucket, or one per replica during a Redis outage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.redis import Redis
from tests.fixtures.running_service import Serve
from tests.fixtures.waiting import eventually
from trmon.api.http.rate_limit import SYNC_SECONDS, RateLimit, RateLimitSync
from trmon.store.redis import SharedBuckets

pytestmark = pytest.mark.server("redis-server")

SLOW, BURST = 1e-6, 10
Replica = Callable[[], RateLimit]


@pytest.fixture
def failures() -> Counter[str]:
    """The number of Redis failures."""
    return Counter()


@pytest.fixture
def server() -> Iterator[Redis]:
    """A running Redis server."""
    with Redis() as server:
        yield server


@pytest.fixture
def replica(server: Redis, failures: Counter[str]) -> Iterator[Replica]:
    """Return a function that starts replicas with buckets of ten that hardly refill."""
    started: list[RateLimitSync] = []

    def start() -> RateLimit:
        limit = RateLimit(per_second=SLOW, burst=BURST, is_shared=True)
        buckets = SharedBuckets(server.url, per_second=SLOW, burst=BURST)
        started.append(RateLimitSync(limit, buckets, on_failure=lambda: failures.update(["limits"])))
        started[-1].start()
        return limit

    yield start
    for sharing in started:
        sharing.close()


def taken(limit: RateLimit, n: int, *, caller: str = "ana") -> int:
    """Try n requests and return how many were allowed."""
    return sum(limit.take(caller, now=time.monotonic()) == 0.0 for _ in range(n))


def let_through(limit: RateLimit, *, caller: str) -> int:
    """Try requests more slowly than replicas sync, and return how many were allowed before the first refusal."""
    for n in range(BURST + 1):
        if not taken(limit, 1, caller=caller):
            return n
        time.sleep(3 * SYNC_SECONDS)
    return BURST + 1


def test_replicas_share_one_bucket_per_caller(replica: Replica) -> None:
    one, other = replica(), replica()
    assert taken(one, BURST - 1) == BURST - 1
    assert let_through(other, caller="ana") < BURST
    assert taken(one, 3, caller="bob") == 3


def test_during_a_redis_outage_each_replica_limits_on_its_own(
    server: Redis, replica: Replica, failures: Counter[str]
) -> None:
    server.kill()
    one, other = replica(), replica()
    assert taken(one, 2 * BURST) == taken(other, 2 * BURST) == BURST
    eventually(lambda: failures["limits"] >= 2)
    server.start()
    assert taken(one, BURST - 1, caller="bob") == BURST - 1
    assert let_through(other, caller="bob") < BURST


def test_a_hanging_redis_blocks_no_request(server: Redis, replica: Replica, failures: Counter[str]) -> None:
    limit = replica()
    assert taken(limit, 1) == 1
    server.hold()
    assert taken(limit, 5) == 5
    eventually(lambda: failures["limits"] >= 1)
    server.go_on()


def test_requests_to_all_replicas_count_against_one_limit(server: Redis, serve: Serve) -> None:
    replicas = [serve(redis_url=server.url, rate_per_second=0.001, rate_burst=BURST) for _ in range(2)]
    with replicas[0].client() as one, replicas[1].client() as other:
        assert [one.get("/api/v1/runs").status_code for _ in range(BURST)] == [200] * BURST
        answered = []
        while not answered or answered[-1] == 200:
            answered.append(other.get("/api/v1/runs").status_code)
            time.sleep(3 * SYNC_SECONDS)
    assert answered[-1] == 429
    assert len(answered) <= BURST


def test_requests_made_during_a_sync_count() -> None:
    limit = RateLimit(per_second=SLOW, burst=BURST, is_shared=True)
    limit.take("ana", now=0.0)
    assert limit.take_spent() == {"ana": 1}
    limit.take("ana", now=0.0)
    limit.sync({"ana": 1.5, "bob": 3.0}, now=0.0)
    assert limit.take("ana", now=0.0) > 0
    assert limit.take_spent() == {"ana": 1}


def test_a_limit_that_is_not_shared_counts_no_requests() -> None:
    limit = RateLimit(per_second=SLOW, burst=BURST)
    limit.take("ana", now=0.0)
    assert limit.take_spent() == {}
