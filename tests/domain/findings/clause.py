"""What a clause of the independent evaluator is, and the tests that clauses of all findings are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.domain.findings.measures import Moment

Test = Callable[[Moment], bool | None]
"""Whether a condition is true at a row; None where something that it needs is not known."""
Hold = tuple[int, int]
SELF_HELD: Hold = (1, 1)
"""A condition on a mean or EMA of rows has no hold unless the table says one."""
DEFAULT_HOLD: Hold = (5, 10)
DEAD_HOLD: Hold = (18, 20)
"""In 18 of the first 20 rows, later 45 of 50."""


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One condition of a finding, under the name that it has in findings.yaml.

    of: the quantity whose known rows are judged; where others are logged less often their newest values count.
    guard: not judged while it is true (counted as false), and the onset is never before the last row at which it held.
    only_if: what must be true to trip, but not in each row nor to stand.
    outside: for the onset of a level on means and sums: whether the row itself is outside it.
    change: the side of a change of `of` (+1 up, -1 down) for its onset; is_split: the reward, which is split.
    """

    finding: str
    name: str
    of: str
    condition: Test
    hold: Hold = DEFAULT_HOLD
    guard: Test | None = None
    only_if: Test | None = None
    outside: Test | None = None
    change: int = 0
    is_split: bool = False

    @property
    def key(self) -> str:
        """Return the name among the clauses of all findings."""
        return f"{self.finding}.{self.name}"


def above(value: float | None, limit: float | None) -> bool | None:
    """Return value > limit; None if one is unknown."""
    return None if value is None or limit is None else bool(value > limit)


def below(value: float | None, limit: float | None) -> bool | None:
    """Return value < limit; None if one is unknown."""
    return None if value is None or limit is None else bool(value < limit)


def every(*tests: bool | None) -> bool | None:
    """Return whether all are true: false if one is false, None if one of the others is unknown."""
    return False if False in tests else None if None in tests else True


def either(*tests: bool | None) -> bool | None:
    """Return whether one is true; None if none is and one is unknown."""
    return True if True in tests else None if None in tests else False


def lagging(m: Moment) -> bool:
    """lag 0 or unknown: not judged while a lag above 0 is known."""
    return bool(above(m.now("lag*"), 0))


def value_above(quantity: str, limit: float) -> Test:
    """Return the test of a value above a limit in the row itself, for guards and the onset."""
    return lambda m: above(m.now(quantity), limit)


def level(quantity: str, limit: float) -> Test:
    """Return the test of a value above a limit."""
    return lambda m: above(m.now(quantity), m.upper(limit))
