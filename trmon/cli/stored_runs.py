"""The runs of a lake or an archive that a command names, and a computation over each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from trmon.domain.model.errors import InvalidInput, NotReady

if TYPE_CHECKING:
    from trmon.store.stored_runs.run_source import RunSource

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
            from trmon.store.stored_runs.lake_runs import lake_runs
        return lake_runs(source, project=project, runs=runs)
    if (Path(source) / MANIFEST).exists():
        with needs_package("export"):
            from trmon.store.stored_runs.archived_runs import archived_runs
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
    from trmon.lab.sweep.ray_execution import ray_cluster
    from trmon.lab.sweep.ray_map import map_on_ray

    # Ray prints what happens to its nodes, whatever it is told, and results go to standard output.
    with redirect_stdout(sys.stderr), ray_cluster(address=address, workers=workers) as started:
        yield from map_on_ray(started, runs, compute=compute)


@contextmanager
def needs_package(extra: str) -> Iterator[None]:
    """Turn a package that the block imports in vain into NotReady, which names the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotReady(f"this needs {error.name}; pip install 'trmon[{extra}]' brings it") from error
