"""A fixed random projection of a model's gradient, by which gradients of different steps are compared."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from trmon_client.core.gradients import cosine

SIZE = 257
"""The numbers of a projection: prime, so that no width of a layer is a multiple of it.

A column of a weight matrix, where an outlier channel has all of its gradient, is then spread over all of them.
"""
ROWS = 1 << 14
"""Rows of the table of signs, which takes 16 MiB on the device and is reused under another sign and rotation."""


class GradientSketch:
    """Projects gradients on 257 numbers, so that inner products are kept on average.

    Every entry of the gradient gets a random sign and is added to one of 257 sums. The error of a cosine is about
    1/sqrt(257), 0.06. Signs depend on the order of the parameters, which must stay; a projection reads each gradient
    once, keeps nothing of its size, and waits for the device once.

    sketch = GradientSketch()
    ...  # after the backward pass, before the gradients are cleared
    monitor.log_scalars(step, {"grad_cosine": sketch.cosine(model.parameters())})
    """

    def __init__(self, *, seed: int = 0, group: Any = None) -> None:
        """Args: group: the torch.distributed group whose ranks hold disjoint shards of the gradient, as with FSDP."""
        self._seed = seed
        # Weak: who holds a group keeps gloo's threads after `destroy_process_group`, and one of them that releases a
        # tensor while the interpreter ends aborts the process.
        self._group = None if group is None else weakref.ref(group)
        self._signs: dict[Any, Any] = {}
        self._last: np.ndarray[Any, Any] | None = None

    def cosine(self, parameters: Iterable[Any]) -> float:
        """Return the cosine of this gradient and that of the call before; nan at the first call."""
        before, self._last = self._last, self.project(parameters)
        return math.nan if before is None else cosine(before, self._last)

    def project(self, parameters: Iterable[Any]) -> np.ndarray[Any, Any]:
        """Return the projection of the parameters' gradients, float64 [257]; those without one count as 0.

        The projection of a sum is the sum of the projections, but rounding. Source: Charikar et al. 2002, count sketch.
        Raises RuntimeError if the group was destroyed.
        """
        import torch

        group = None if self._group is None else self._group()
        if self._group is not None and group is None:
            raise RuntimeError(
                "the process group of this GradientSketch was destroyed: make a sketch with another group"
            )
        rank = 0 if group is None else torch.distributed.get_rank(group)
        # Numbers are drawn for parameters without a gradient too, so that the others keep their own.
        random = np.random.default_rng((self._seed, rank))
        total = None
        with torch.no_grad():
            for parameter in parameters:
                chunks = range(0, parameter.numel(), SIZE * ROWS)
                drawn = random.integers(0, 2 * SIZE, len(chunks)).tolist()
                if parameter.grad is None:
                    continue
                gradient = _local(parameter.grad).reshape(-1)
                for start, number in zip(range(0, gradient.numel(), SIZE * ROWS), drawn, strict=False):
                    added = self._chunk(gradient[start : start + SIZE * ROWS], number)
                    total = added if total is None else total + added.to(total.device)
            total = torch.zeros(SIZE, dtype=torch.float64) if total is None else total
            if group is not None:
                torch.distributed.all_reduce(total, group=group)
        return total.cpu().numpy()

    def _chunk(self, gradient: Any, number: int) -> Any:
        """Return the projection of a part of a gradient; number: which rotation and sign of the sums it has."""
        import torch

        signs = self._table(gradient.device)
        whole = gradient.numel() - gradient.numel() % SIZE
        rows = gradient[:whole].float().view(-1, SIZE) * signs[: whole // SIZE]
        # A product with ones takes half the time of a sum over the first axis.
        sums = (rows.new_ones(len(rows)) @ rows).double()
        rest = gradient[whole:].double()
        sums[: rest.numel()] += rest * signs[whole // SIZE % ROWS, : rest.numel()]
        return torch.roll(sums, number // 2) * (1 - 2 * (number % 2))

    def _table(self, device: Any) -> Any:
        if device not in self._signs:
            import torch

            generator = torch.Generator().manual_seed(self._seed)
            bits = torch.randint(0, 2, (ROWS, SIZE), generator=generator)
            # float32: a product with smaller integers would convert them each time.
            self._signs[device] = (2 * bits - 1).float().to(device)
        return self._signs[device]


def _local(gradient: Any) -> Any:
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient
