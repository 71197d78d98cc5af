"""Rate limits: a burst, then a rate, per caller."""

from __future__ import annotations

import pytest

from tests.fixtures.running_service import Serve, bearer, make_token
from trmon.api.http.rate_limit import MAX_BUCKETS, RateLimit
from trmon.domain.access import Scope, Token


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
