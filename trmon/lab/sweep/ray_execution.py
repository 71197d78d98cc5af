"""Runs jobs over Ray: Ray schedules the runs, and repeats the run of a worker or a node that dies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from trmon.domain.model.errors import NotReady, TrmonError

RETRIES = 5
"""How often the run of a dead worker is repeated before the sweep gives up on it."""

LOCAL = "local"
"""Makes Ray start a cluster of its own, also where another runs on this machine."""
LOOPBACK = "127.0.0.1"
"""Where the Ray of this machine listens."""


class Named(Protocol):
    """A thing to run."""

    @property
    def run_name(self) -> str:
        """The name of its run."""


Job = TypeVar("Job", bound=Named)
Result = TypeVar("Result")


class SweepError(TrmonError):
    """A run of a sweep failed; the message names it."""


@contextmanager
def ray_cluster(*, address: str | None, workers: int | None) -> Iterator[Any]:
    """Yield Ray, connected to a cluster, or started on this machine with a number of workers; default: its cores.

    Errors: NotReady if the cluster cannot be reached.
    """
    import ray  # an optional dependency

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = {} if address else {"num_cpus": workers, "include_dashboard": False, "_node_ip_address": LOOPBACK}
    try:
        ray.init(address=address or LOCAL, log_to_driver=False, logging_level="error", **local)
    except ConnectionError as error:
        raise NotReady(f"no Ray cluster answers at {address}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def run_on_ray(ray: Any, jobs: Sequence[Job], *, run: Callable[[Job], Result]) -> Iterator[Result]:
    """Yield the result of each job as it finishes, in any order. Errors: SweepError naming a run that fails."""
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(run)
    pending = {remote.remote(job): job for job in jobs}
    while pending:
        (done, *_), _ = ray.wait(list(pending))
        job = pending.pop(done)
        try:
            yield ray.get(done)
        except ray.exceptions.RayError as error:
            raise SweepError(f"run {job.run_name}: {error}") from error
