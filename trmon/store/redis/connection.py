"""Redis connections with short timeouts."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from trmon.domain.model.errors import NotReady

TIMEOUT_SECONDS = 0.5
FAILURES = (redis.RedisError, OSError)
"""The errors of a connection if Redis is unavailable, hangs or is another server."""


def connect_redis(url: str) -> redis.Redis:
    """Return a client that fails within half a second; it connects on first use.

    Args: url: redis://, rediss:// or unix://.
    Errors: NotReady for an invalid URL.
    """
    try:
        # Callers retry themselves, with what has changed since.
        return redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise NotReady(f"TRMON_REDIS_URL: {error}") from error


def key_prefix(client: redis.Redis) -> str:
    """Return the prefix of a deployment's keys and channels: channels are not separated by database number."""
    return f"trmon:{client.connection_pool.connection_kwargs.get('db', 0)}"
