"""Routing: selects the receivers of a run by its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Receivers by owner; an owner without a route, and a run without an owner, get all receivers."""

    receivers: tuple[str, ...] = ()
    by_owner: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, owner: str | None) -> tuple[str, ...]:
        """Return the receivers for an owner's runs."""
        return self.by_owner.get(owner, self.receivers) if owner is not None else self.receivers
