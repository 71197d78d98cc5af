"""The rate limit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.fixtures.redis import Redis
from tests.fixtures.running_service import Serve, bearer, make_token
from tests.fixtures.waiting import eventually
from trmon.api.http.rate_limit import MAX_BUCKETS, SYNC_SECONDS, RateLimit, limit_sync
from trmon.domain.access import Scope, Token
from trmon.store.redis import SharedBuckets


def test_after_a_burst_requests_are_limited_to_the_rate() -> None:
    limit = RateLimit(per_second=2.0, burst=3)
    assert [limit.take("a", now=0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.take("a", now=0.25) == 0.25
    assert limit.take("a", now=0.5) == 0.0
    assert limit.take("a", now=0.5) == 0.5


def test_each_caller_has_its_own_burst() -> None:
    limit = RateLimit(per_second=1.0, burst=1)
    assert [limit.take(caller, now=0.0) for caller in ("a", "b", "a")] == [0.0, 0.0, 1.0]


def test_a_bucket_never_exceeds_the_burst() -> None:
    limit = RateLimit(per_second=1000.0, burst=2)
    limit.take("a", now=0.0)
    assert [limit.take("a", now=1e6) > 0 for _ in range(3)] == [False, False, True]


def test_the_number_of_buckets_is_bounded() -> None:
    limit = RateLimit(per_second=1.0, burst=1)
    for caller in range(MAX_BUCKETS + 50):
        limit.take(str(caller), now=0.0)
    assert limit.take("0", now=0.0) == 0.0
    assert limit.take(str(MAX_BUCKETS), now=0.0) == 1.0


def test_requests_above_the_limit_get_429_with_a_retry_time(serve: Serve) -> None:
    with serve(rate_per_second=0.1, rate_burst=3).client() as client:
        answers = [client.get("/api/v1/runs") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 8 <= int(answers[-1].headers["retry-after"]) <= 10
        assert answers[-1].headers["content-type"] == "application/problem+json"
        assert client.get("/healthz").status_code == 200


def test_each_token_has_its_own_limit(serve: Serve) -> None:
    with serve(rate_per_second=0.1, rate_burst=3).client() as client:
        client.headers.update(bearer(make_token(client, "root", Scope.ADMIN)))
        second = bearer(make_token(client, "second", Scope.READ))
        assert [client.get("/api/v1/runs").status_code for _ in range(3)] == [200, 200, 429]
        assert client.get("/api/v1/runs", headers=second).status_code == 200


def test_look_ups_of_invalid_tokens_are_limited(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    service = serve(rate_per_second=0.001, rate_burst=20)
    tokens, looked_up = service.app.state.components.store.tokens, list[str]()
    by_digest = tokens.by_digest

    def counted(digest: str) -> Token | None:
        looked_up.append(digest)
        return by_digest(digest)

    with service.client() as client:
        right = bearer(make_token(client, "root", Scope.ADMIN))
        assert client.get("/api/v1/runs", headers=right).status_code == 200
        monkeypatch.setattr(tokens, "by_digest", counted)
        wrong = [client.get("/api/v1/runs", headers=bearer(n)) for n in range(30)]
        assert [answer.status_code for answer in wrong] == [401] * 20 + [429] * 10
        assert len(looked_up) == 20
        assert client.get("/api/v1/runs", headers=right).status_code == 200


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
    stack = ExitStack()

    def start() -> RateLimit:
        limit = RateLimit(per_second=SLOW, burst=BURST, is_shared=True)
        buckets = SharedBuckets(server.url, per_second=SLOW, burst=BURST)
        stack.callback(buckets.close)
        sharing = limit_sync(limit, buckets, on_failure=lambda: failures.update(["limits"]))
        sharing.start()
        stack.callback(sharing.close)
        return limit

    with stack:
        yield start


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
