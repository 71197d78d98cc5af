"""Steps in which the trainer sent NaN, infinity or a number that has overflowed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trmon.domain.signals.magnitude import LARGEST, is_number
from trmon.domain.signals.scalar_names import ALIASES

RECENT_STEPS = 20
MAX_NAMES = 256
ALWAYS_FINITE = frozenset(
    name for canonical in ("loss", "grad_norm", "reward_mean") for name in (canonical, *ALIASES[canonical])
)
"""Scalars that are a number in every working step; others count once they have been finite."""


class NonFiniteSteps(msgspec.Struct, frozen=True):
    """Whether each of the newest 20 steps had a value that is not a number; `finite` names scalars that once were.

    A scalar that was never finite is a metric that the trainer does not measure.
    """

    recent: tuple[bool, ...] = ()
    finite: tuple[str, ...] = ()

    def with_step(self, scalars: Mapping[str, float], *, reward: float) -> NonFiniteSteps:
        """Return the record after a step."""
        bad = [name for name, value in scalars.items() if not is_number(value)]
        known = set(self.finite)
        is_bad = abs(reward) > LARGEST or any(name in ALWAYS_FINITE or name in known for name in bad)
        new = {name for name, value in scalars.items() if is_number(value)} - known
        finite = tuple(sorted(known | new)[:MAX_NAMES]) if new else self.finite
        return NonFiniteSteps((*self.recent, is_bad)[-RECENT_STEPS:], finite)

    @property
    def count(self) -> int:
        """The number of such steps among the newest 20."""
        return sum(self.recent)
