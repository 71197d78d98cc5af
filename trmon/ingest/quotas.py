"""Refuse messages above their project's quota or their sender's quota of new runs, before they are queued."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trmon.domain.access import EVERYTHING, Access, Quota, QuotaResource
from trmon.domain.errors import Overloaded, QuotaExceeded
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage
from trmon.metrics.counters import Counters
from trmon.store.repositories.quotas import Quotas
from trmon_client.core import wire

POLL_SECONDS = 5.0
"""How long a changed quota, and what other processes store, may go unnoticed."""
MEASURE_SHARE = 0.05
"""Largest share of the time that measuring the stored bytes may take."""
MAX_KNOWN_RUNS = 100_000
HOUR_SECONDS = 3600.0

Refusal = TypeVar("Refusal", bound=Exception)


@dataclass(slots=True)
class ProjectUse:
    """A project's quota and use: as measured, plus what this process has admitted since."""

    quota: Quota
    runs: set[str]
    report_bytes: int
    tokens: float
    refilled_at: float


class NewRuns:
    """Limits how many runs each caller begins: a bucket of an hour's that refills evenly, for each API process.

    A bundle may take it into debt.
    """

    def __init__(self, quotas: Quotas, *, per_hour: int, counters: Counters, clock: Callable[[], float]) -> None:
        """Args: per_hour: 0 is no limit."""
        self._quotas = quotas
        self._counters = counters
        self._per_hour = per_hour
        self._clock = clock
        self._known: set[RunKey] = set()
        self._left: dict[str, tuple[float, float]] = {}

    async def check(self, keys: set[RunKey], *, access: Access) -> None:
        """Take the runs that do not exist from the caller's bucket. Errors: Overloaded if it is empty."""
        unknown = keys - self._known if self._per_hour else set()
        if not unknown:
            return
        new = unknown - await asyncio.to_thread(self._quotas.existing, unknown)
        now, per_second = self._clock(), self._per_hour / HOUR_SECONDS
        left, at = self._left.get(access.caller, (float(self._per_hour), now))
        left = min(float(self._per_hour), left + (now - at) * per_second)
        if new and left < 1:
            self._counters.quota_refused.labels(access.project or "", QuotaResource.NEW_RUNS.value).inc()
            raise Overloaded(
                f"{access.name!r} may begin {self._per_hour} runs an hour: run {min(new)} can begin later; log to runs "
                "that exist, or have the service's operator raise TRMON_NEW_RUNS_PER_HOUR",
                retry_after_seconds=max(1.0, (1 - left) / per_second),
            )
        self._left[access.caller] = left - len(new), now
        if len(self._known) + len(unknown) > MAX_KNOWN_RUNS:
            self._known.clear()
        self._known |= unknown


class QuotaGate:
    """Admits messages by the quotas of their projects and callers; `poll` refreshes it, `admit` runs on the event loop.

    Each process adds what it admits to what it last measured, so several processes together may exceed a quota by what
    they admit between two measurements.
    """

    def __init__(
        self,
        quotas: Quotas,
        *,
        counters: Counters,
        new_runs_per_hour: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: new_runs_per_hour: of each caller; 0 is no limit."""
        self._quotas = quotas
        self._new_runs = NewRuns(quotas, per_hour=new_runs_per_hour, counters=counters, clock=clock)
        self._counters = counters
        self._clock = clock
        self._projects: dict[str, ProjectUse] = {}
        self._measure_at = 0.0

    def poll(self) -> None:
        """Read the quotas and, unless that took long lately, measure what their projects use."""
        quotas = self._quotas.list(access=EVERYTHING)
        began_at = self._clock()
        is_due = began_at >= self._measure_at
        self._projects = {quota.project: self._use(quota, is_due=is_due) for quota in quotas}
        if is_due:
            now = self._clock()
            self._measure_at = now + (now - began_at) / MEASURE_SHARE
        self._counters.set_quotas(
            {
                (use.quota.project, resource.value): (limit, _used(use, resource))
                for use in self._projects.values()
                for resource, limit in use.quota.limits().items()
            }
        )

    async def admit(
        self, entries: Sequence[PreparedMessage | Refusal], *, access: Access
    ) -> Sequence[PreparedMessage | Refusal | QuotaExceeded]:
        """Return the entries, with the refusal of each message above a quota of stored runs or bytes in its place.

        Errors: Overloaded if a project sends more reports a second than its quota, or the caller begins more runs an
        hour; then nothing is admitted.
        """
        messages = [entry for entry in entries if isinstance(entry, PreparedMessage)]
        starting = {one.key for one in messages if not isinstance(one.message, wire.Heartbeat)}
        await self._new_runs.check(starting, access=access)
        if not self._projects:
            return entries
        self._check_rates(Counter(one.key.project for one in messages if isinstance(one.message, wire.Report)))
        return [await self._admitted(one) if isinstance(one, PreparedMessage) else one for one in entries]

    def _use(self, quota: Quota, *, is_due: bool) -> ProjectUse:
        known = self._projects.get(quota.project)
        rate = quota.reports_per_second or 0.0
        tokens, refilled_at = (rate, self._clock()) if known is None else (known.tokens, known.refilled_at)
        if known is not None and not is_due:
            return ProjectUse(quota, known.runs, known.report_bytes, tokens, refilled_at)
        usage = self._quotas.usage(quota.project)
        return ProjectUse(quota, set(usage.runs), usage.report_bytes, tokens, refilled_at)

    def _check_rates(self, n_reports: Counter[str]) -> None:
        """Take reports from the buckets of projects, which hold one second's and may go into debt by one bundle."""
        for project, n in n_reports.items():
            use = self._projects.get(project)
            if use is None or (rate := use.quota.reports_per_second) is None:
                continue
            now = self._clock()
            use.tokens = min(max(rate, 1.0), use.tokens + (now - use.refilled_at) * rate)
            use.refilled_at = now
            if use.tokens <= 0:
                self._counters.quota_refused.labels(project, QuotaResource.RATE.value).inc(n)
                raise Overloaded(
                    f"project {project!r} may send {rate:g} reports a second; an admin can raise "
                    f"reports_per_second with `PUT /api/v1/quotas/{project}`",
                    retry_after_seconds=max(1.0, -use.tokens / rate),
                )
            use.tokens -= n

    async def _admitted(self, prepared: PreparedMessage) -> PreparedMessage | QuotaExceeded:
        use = self._projects.get(prepared.key.project)
        if use is None or isinstance(prepared.message, wire.Heartbeat):
            return prepared
        if prepared.key.run not in use.runs:
            max_runs = use.quota.max_runs
            is_full = max_runs is not None and len(use.runs) >= max_runs
            if is_full and not await asyncio.to_thread(self._quotas.existing, {prepared.key}):
                return self._refuse(use.quota, QuotaResource.RUNS)
            use.runs.add(prepared.key.run)
        if isinstance(prepared.message, wire.Report):
            max_bytes = use.quota.max_bytes
            if max_bytes is not None and use.report_bytes + len(prepared.payload) > max_bytes:
                return self._refuse(use.quota, QuotaResource.BYTES)
            use.report_bytes += len(prepared.payload)
        return prepared

    def _refuse(self, quota: Quota, resource: QuotaResource) -> QuotaExceeded:
        self._counters.quota_refused.labels(quota.project, resource.value).inc()
        stored = f"{quota.max_runs} runs" if resource is QuotaResource.RUNS else f"{quota.max_bytes} bytes of reports"
        return QuotaExceeded(
            f"project {quota.project!r} may store {stored}: delete runs, or raise max_{resource.value} with "
            f"`PUT /api/v1/quotas/{quota.project}`"
        )


def _used(use: ProjectUse, resource: QuotaResource) -> float | None:
    """Return what a project uses of a resource; None for the rate, which the counter of reports shows."""
    if resource is QuotaResource.RATE:
        return None
    return len(use.runs) if resource is QuotaResource.RUNS else use.report_bytes
