"""Token buckets that all replicas share; each replica subtracts the requests it allowed, several at a time."""

from __future__ import annotations

from collections.abc import Mapping

from trmon.domain.model.errors import NotReady
from trmon.store.redis.connection import FAILURES, connect_redis, key_prefix

# The clock is that of Redis, since those of replicas differ. Replicas may allow too much before they synchronize, so a
# bucket can be negative, by at most one burst; it expires once it would be full.
_SPEND = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1e6
local rate, burst, spent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'left', 'at')
local left = tonumber(bucket[1]) or burst
local since = math.max(0, now - (tonumber(bucket[2]) or now))
left = math.max(-burst, math.min(burst, left + since * rate) - spent)
redis.call('HSET', KEYS[1], 'left', left, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - left) / rate * 1000) + 1000)
return tostring(left)
"""


class SharedBuckets:
    """The buckets of callers, refilled at the same rate up to the same burst."""

    def __init__(self, url: str, *, per_second: float, burst: int) -> None:
        self._client = connect_redis(url)
        self._prefix = f"{key_prefix(self._client)}:limit"
        self._spend = self._client.register_script(_SPEND)
        self._per_second = per_second
        self._burst = burst

    def spend(self, spent: Mapping[str, int]) -> dict[str, float]:
        """Subtract requests from the buckets of callers; return what is left, negative if too many were allowed.

        Errors: NotReady while Redis is unavailable.
        """
        try:
            return self._run_script(spent)
        except FAILURES as error:
            raise NotReady(f"redis: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _run_script(self, spent: Mapping[str, int]) -> dict[str, float]:
        pipeline = self._client.pipeline(transaction=False)
        for caller, n in spent.items():
            arguments = [self._per_second, self._burst, n]
            self._spend(keys=[f"{self._prefix}:{caller}"], args=arguments, client=pipeline)
        return {caller: float(left) for caller, left in zip(spent, pipeline.execute(), strict=True)}
