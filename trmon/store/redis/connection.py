"""Connections to Redis that never wait long, and what may go wrong with them."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from trmon.domain.model.errors import NotReady

TIMEOUT_SECONDS = 0.5
FAILURES = (redis.RedisError, OSError)
"""What a connection raises when Redis is away, hangs, or is not what it should be."""


def connect_redis(url: str) -> redis.Redis:
    """Return a client that fails within half a second; it connects when it is first used.

    Args: url: redis://, rediss:// or unix://.
    Errors: NotReady for a URL that is none.
    """
    try:
        # Whoever calls tries again by himself, and knows what has changed until then.
        return redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise NotReady(f"TRMON_REDIS_URL: {error}") from error


def key_prefix(client: redis.Redis) -> str:
    """Return how the names of a deployment begin: channels know nothing of database numbers."""
    return f"trmon:{client.connection_pool.connection_kwargs.get('db', 0)}"
