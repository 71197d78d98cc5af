"""The ranks that share a vocabulary (tensor parallel), and the reduction of what each computed of its own part."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from trmon_client.core.arrays.backend import Array, functions_of, is_tensor
from trmon_client.core.divergence.divergence_sums import DivergenceSums


@dataclass(frozen=True)
class VocabularyShards:
    """The process group whose ranks hold the parts of a vocabulary; None: one process holds it all."""

    group: Any = None

    def merged(self, sums: DivergenceSums) -> DivergenceSums:
        """Return the sums over the whole vocabulary, the same on every rank, by one gather of ten numbers a token."""
        if self.group is None:
            return sums
        xp = functions_of(sums.p.top)
        mine = xp.concatenate([array[None] for array in sums.arrays()])
        return DivergenceSums.merged(DivergenceSums.of_arrays(list(part)) for part in self._gathered(mine))

    def added(self, array: Array) -> Array:
        """Return the sum over the ranks, in their order, so that every rank has the same bits."""
        return array if self.group is None else sum(self._gathered(array))

    def _gathered(self, array: Array) -> list[Array]:
        torch = sys.modules["torch"]
        tensor = array if is_tensor(array) else torch.from_numpy(array)
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size(self.group))]
        torch.distributed.all_gather(parts, tensor, group=self.group)
        return parts if is_tensor(array) else [part.numpy() for part in parts]
