"""The runs of a lake or an archive that a command names, and a computation over each of them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trmon.domain.errors import InvalidInput, NotReady, TrmonError, needs_package

if TYPE_CHECKING:
    from trmon.store.archive.runs import RunSource


Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Read runs in this many processes at once: starts Ray on this machine."),
]
Address = Annotated[str | None, typer.Option(help="Read runs on the Ray cluster at this address.")]
Result = TypeVar("Result")

MANIFEST = "manifest.json"
LAKE_LOG = "attempts/_delta_log"


def find_stored_runs(source: str, *, project: str | None, runs: Sequence[str]) -> Sequence[RunSource] | None:
    """Return the runs of a lake or a folder of `trmon export`, or those chosen; None if a source is neither.

    Errors: InvalidInput for an archive of another project, or a run that the source lacks; NotReady without pyarrow,
    for a lake without deltalake too, or if the lake cannot be read.
    """
    if "://" in source or (Path(source) / LAKE_LOG).is_dir():
        with needs_package("lake"):
            from trmon.store.lake.runs import lake_runs
        return lake_runs(source, project=project, runs=runs)
    if (Path(source) / MANIFEST).exists():
        with needs_package("export"):
            from trmon.store.archive.runs import archived_runs
        return [run for run in archived_runs(Path(source), runs=runs) if project in (None, run.key.project)]
    return None


def map_runs(
    runs: Sequence[RunSource],
    compute: Callable[[RunSource], Result],
    *,
    workers: int | None = None,
    address: str | None = None,
) -> Iterator[Result]:
    """Yield what a function returns for each run, in their order: in this process, or over Ray if it is asked for.

    Args: workers: processes of a Ray on this machine; address: of a Ray cluster; both None for this process.
    Errors: InvalidInput for both; NotReady without Ray, or for a cluster that does not answer; those of the function.
    """
    if workers is None and address is None:
        yield from map(compute, runs)
        return
    if workers is not None and address is not None:
        raise InvalidInput("--workers", "and --address were both given; a cluster has its own workers")
    with needs_package("ray"):
        import ray.data  # noqa: F401

    # Ray prints what happens to its nodes, whatever it is told, and results go to standard output.
    with redirect_stdout(sys.stderr), ray_cluster(address=address, workers=workers) as started:
        yield from map_on_ray(started, runs, compute=compute)


Item = TypeVar("Item")

MAX_BLOCKS = 1000
"""Items are tasks of their own, up to this number; with more, a task gets several."""
_VALUE = "value"
LOCAL = "local"
"""Makes Ray start a cluster of its own, also where another runs on this machine."""
LOOPBACK = "127.0.0.1"
"""Where the Ray of this machine listens."""


class RayMapError(TrmonError):
    """A task failed on a Ray cluster; the message says why."""


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


def map_on_ray(ray: Any, items: Sequence[Item], *, compute: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield what a function returns for each item, in their order; the task of a node that dies is repeated.

    Errors: RayMapError, also for a TrmonError that the function raises.
    """
    if not items:
        return
    from ray import data  # an optional dependency

    context = data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    pickled = [{_VALUE: ray.cloudpickle.dumps(item)} for item in items]
    dataset = data.from_items(pickled, override_num_blocks=min(len(items), MAX_BLOCKS))
    try:
        for row in dataset.map(_Computed(compute), num_cpus=1).iter_rows():
            result = ray.cloudpickle.loads(row[_VALUE])
            if isinstance(result, RayMapError):
                raise result
            yield result
    except ray.exceptions.RayError as error:
        raise RayMapError(f"Ray: {error}") from error


class _Computed:
    """A row of an item to the row of its result, or of its error; both pickled, as Arrow does not know their types."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        from ray import cloudpickle

        result: Any
        try:
            result = self._compute(cloudpickle.loads(row[_VALUE]))
        except TrmonError as error:
            result = RayMapError(str(error))
        return {_VALUE: cloudpickle.dumps(result)}
