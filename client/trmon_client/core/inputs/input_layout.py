"""The layout in which tokens were given, so that results for tokens can be returned in the same layout."""

from __future__ import annotations

from dataclasses import dataclass

from trmon_client.core.arrays.backend import Array
from trmon_client.core.inputs import packed


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Padded to a horizon, ragged (a list of rows), or packed (concatenated rows), with the lengths of the rows."""

    horizon: int
    lengths: tuple[int, ...] | None = None
    is_packed: bool = False

    def restored(self, padded: Array) -> Array | list[Array]:
        """Return [B, T] as [B, horizon], as a list of B rows, or as [N]."""
        if self.lengths is None:
            return padded[:, : self.horizon]
        if self.is_packed:
            return packed.unpad_packed(padded, lengths=list(self.lengths))
        return [row[:length] for row, length in zip(padded, self.lengths, strict=True)]
