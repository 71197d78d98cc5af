"""Rate limits of replicas: one bucket for all of them while Redis is there, each its own while it is not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.redis import Redis
from tests.fixtures.running_service import Serve
from tests.fixtures.waiting import eventually
from trmon.api.http.rate_limit import RateLimit
from trmon.api.http.rate_limit_sync import SYNC_SECONDS, RateLimitSync
from trmon.store.redis.shared_rate_limits import SharedBuckets

pytestmark = pytest.mark.server("redis-server")

SLOW, BURST = 1e-6, 10
Replica = Callable[[], RateLimit]


@pytest.fixture
def failures() -> Counter[str]:
    """How often Redis failed."""
    return Counter()


@pytest.fixture
def server() -> Iterator[Redis]:
    """A running server."""
    with Redis() as server:
        yield server


@pytest.fixture
def replica(server: Redis, failures: Counter[str]) -> Iterator[Replica]:
    """Return a function that starts replicas, whose buckets of ten hardly fill."""
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
    """Try n requests and return how many were let through."""
    return sum(limit.take(caller, now=time.monotonic()) == 0.0 for _ in range(n))


def let_through(limit: RateLimit, *, caller: str) -> int:
    """Try again and again, slower than replicas hear of each other, and return how often it went until it did not."""
    for n in range(BURST + 1):
        if not taken(limit, 1, caller=caller):
            return n
        time.sleep(3 * SYNC_SECONDS)
    return BURST + 1


def test_replicas_have_one_bucket_for_a_caller(replica: Replica) -> None:
    one, other = replica(), replica()
    assert taken(one, BURST - 1) == BURST - 1
    assert let_through(other, caller="ana") < BURST
    assert taken(one, 3, caller="bob") == 3


def test_while_redis_is_away_each_replica_counts_for_itself(
    server: Redis, replica: Replica, failures: Counter[str]
) -> None:
    server.kill()
    one, other = replica(), replica()
    assert taken(one, 2 * BURST) == taken(other, 2 * BURST) == BURST
    eventually(lambda: failures["limits"] >= 2)
    server.start()
    assert taken(one, BURST - 1, caller="bob") == BURST - 1
    assert let_through(other, caller="bob") < BURST


def test_a_redis_that_hangs_keeps_no_request_waiting(server: Redis, replica: Replica, failures: Counter[str]) -> None:
    limit = replica()
    assert taken(limit, 1) == 1
    server.hold()
    assert taken(limit, 5) == 5
    eventually(lambda: failures["limits"] >= 1)
    server.go_on()


def test_requests_to_replicas_come_off_one_limit(server: Redis, serve: Serve) -> None:
    replicas = [serve(redis_url=server.url, rate_per_second=0.001, rate_burst=BURST) for _ in range(2)]
    with replicas[0].client() as one, replicas[1].client() as other:
        assert [one.get("/api/v1/runs").status_code for _ in range(BURST)] == [200] * BURST
        answered = []
        while not answered or answered[-1] == 200:
            answered.append(other.get("/api/v1/runs").status_code)
            time.sleep(3 * SYNC_SECONDS)
    assert answered[-1] == 429
    assert len(answered) <= BURST


def test_what_a_caller_spends_while_it_is_settled_counts_too() -> None:
    limit = RateLimit(per_second=SLOW, burst=BURST, is_shared=True)
    limit.take("ana", now=0.0)
    assert limit.take_spent() == {"ana": 1}
    limit.take("ana", now=0.0)
    limit.sync({"ana": 1.5, "bob": 3.0}, now=0.0)
    assert limit.take("ana", now=0.0) > 0
    assert limit.take_spent() == {"ana": 1}


def test_nobody_counts_what_nobody_asks_for() -> None:
    limit = RateLimit(per_second=SLOW, burst=BURST)
    limit.take("ana", now=0.0)
    assert limit.take_spent() == {}
