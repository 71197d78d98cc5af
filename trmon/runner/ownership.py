"""The ownership of an embedded database, whose single service owns all runs."""

from __future__ import annotations

from collections.abc import Collection

from trmon.domain.model.slots import Fences


class SoleOwner:
    """Owns all runs: of an embedded database, which has one service. Implements trmon.domain.ports.Ownership."""

    def fences(self) -> Fences | None:
        """Return None: all of them."""
        return None

    def surplus(self) -> frozenset[int]:
        """Return nothing: nobody waits for any."""
        return frozenset()

    def release(self, slots: Collection[int]) -> None:
        """Keep them."""
