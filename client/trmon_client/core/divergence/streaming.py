"""Computes exact divergences from tiles of logits: some tokens, and a part of the vocabulary at a time.

Neither the logits of all tokens nor those of the whole vocabulary need to exist, so they may be projected from hidden
states, or lie on several ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import Array, Device, functions_of
from trmon_client.core.divergence.divergence_sums import DivergenceSums
from trmon_client.core.divergence.logit_sources import LogitSource
from trmon_client.core.divergence.softmax import Softmax
from trmon_client.core.divergence.token_divergences import quantities_of
from trmon_client.core.divergence.vocabulary_shards import VocabularyShards
from trmon_client.core.inputs.logits import BLOCK_ELEMENTS

HOST_TILE = (256, 4096)
"""Tokens and logits of a tile on the host: 4 MiB of float32 a policy, a few large matrix products."""
DEVICE_TILE = (1024, 4096)
"""The same on a device."""


@dataclass(frozen=True)
class StreamedLogits:
    """The logits of mu and of the trainer, read in tiles; mask bool [B, T], numpy or on the device."""

    rollout: LogitSource
    target: LogitSource
    mask: Array
    device: Device

    def divergences(self, shards: VocabularyShards, *, tv: bool, pi_squared: bool) -> dict[str, Array]:
        """Return the divergences at counting tokens, float64 [B, T] by quantity; other entries are undefined.

        Source: formulas, section 4.
        """
        with np.errstate(all="ignore"):
            sums = shards.merged(self._sums(squares=pi_squared))
            found = sums.divergences()
            if tv:
                found["tv"] = shards.added(self._half_distances(sums))
        return {name: found[name].reshape(self.mask.shape) for name in quantities_of(tv=tv, pi_squared=pi_squared)}

    def _sums(self, *, squares: bool) -> DivergenceSums:
        """Return the sums over this process's part of the vocabulary, [B T] each."""
        n_tokens = self.mask.shape[0] * self.mask.shape[1]
        empty = functions_of(self.mask).empty
        arrays = [empty((n_tokens,), "f8", self.device) for _ in range(N_SUMS)]
        for positions in self._positions():
            merged: dict[int, DivergenceSums] = {}
            for start, a, b in self._blocks(positions):
                part = DivergenceSums.of(Softmax.of(a), Softmax.of(b), squares=squares)
                merged[start] = DivergenceSums.merged((merged[start], part)) if start in merged else part
            for start, sums in merged.items():
                for array, computed in zip(arrays, sums.arrays(), strict=True):
                    array[start : start + computed.shape[0]] = computed
        return DivergenceSums.of_arrays(arrays)

    def _half_distances(self, sums: DivergenceSums) -> Array:
        """Return the part of total variation of this process's part of the vocabulary, [B T]; reads it again."""
        # 0, but NaN where a policy has no distribution.
        halves = 0.0 * sums.p.total
        for positions in self._positions():
            for start, a, b in self._blocks(positions):
                block = slice(start, start + a.shape[0])
                whole = DivergenceSums.of_arrays([array[block] for array in sums.arrays()])
                halves[block] += whole.half_distance(a, b)
        return halves

    def _positions(self) -> Iterator[slice]:
        """Yield the positions of tiles; the host skips those without a counting token."""
        counts = self.mask.reshape(-1)
        n, _ = HOST_TILE if self.device is None else DEVICE_TILE
        for start in range(0, counts.shape[0], n):
            positions = slice(start, start + n)
            if self.device is not None or counts[positions].any():
                yield positions

    def _blocks(self, positions: slice) -> Iterator[tuple[int, Array, Array]]:
        """Yield the first position and the float64 logits of both policies of blocks that stay in the host's cache."""
        n_rows, n = DEVICE_TILE if self.device is not None else (BLOCK_ELEMENTS // HOST_TILE[1], HOST_TILE[1])
        for begin in range(0, self.rollout.shape[-1], n):
            vocabulary = slice(begin, begin + n)
            a, b = (source.tile(positions, vocabulary, self.device) for source in (self.rollout, self.target))
            cast = functions_of(a).cast
            for row in range(0, a.shape[0], n_rows):
                rows = slice(row, row + n_rows)
                yield positions.start + row, cast(a[rows], "f8"), cast(b[rows], "f8")


N_SUMS = 10
"""The numbers of a token that ranks exchange: five of each policy."""
