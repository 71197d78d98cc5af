"""Runs jobs over Ray: Ray schedules the runs, and repeats the run of a worker or a node that dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from trmon.domain.errors import TrmonError

RETRIES = 5
"""How often the run of a dead worker is repeated before the sweep gives up on it."""


class Named(Protocol):
    """A thing to run."""

    @property
    def run_name(self) -> str:
        """The name of its run."""


Job = TypeVar("Job", bound=Named)
Result = TypeVar("Result")


class SweepError(TrmonError):
    """A run of a sweep failed; the message names it."""


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
