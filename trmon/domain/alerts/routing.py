"""Routing: which receivers hear of a run, by its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Receivers by owner; whoever is not named, or no owner at all, has every receiver."""

    receivers: tuple[str, ...] = ()
    by_owner: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, owner: str | None) -> tuple[str, ...]:
        """Return who hears of an owner's runs."""
        return self.by_owner.get(owner, self.receivers) if owner is not None else self.receivers
