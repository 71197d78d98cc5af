"""Maps a function over many items with Ray Data: in order, with few of them in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from trmon.domain.model.errors import TrmonError

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_BLOCKS = 1000
"""Items are tasks of their own, up to this number; with more, a task gets several."""
_VALUE = "value"


class RayMapError(TrmonError):
    """A task failed on a Ray cluster; the message says why."""


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
