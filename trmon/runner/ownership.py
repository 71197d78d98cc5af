"""The ownership of an embedded database: its one service owns all runs."""

from __future__ import annotations

from collections.abc import Collection

from trmon.domain.ports import Fences


class SoleOwner:
    """Owns all runs; implements trmon.domain.ports.Ownership."""

    def fences(self) -> Fences | None:
        """Return None: all slots."""
        return None

    def surplus(self) -> frozenset[int]:
        """Return no slots: there is no other process to release any for."""
        return frozenset()

    def release(self, slots: Collection[int]) -> None:
        """Do nothing."""
