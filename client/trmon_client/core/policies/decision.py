"""A decision: which sequences may teach and, for each that may not, why; never a bare bool."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of, to_computable
from trmon_client.core.policies.criterion import Criterion
from trmon_client.core.policies.policy import Policy


class SequenceOutcome(IntEnum):
    """What became of a sequence; codes from FIRST_CRITERION on say which criterion failed first."""

    ACCEPTED = 0
    INVALID_LOGPROBS = 1
    EMPTY = 2
    ADVANTAGE = 3


FIRST_CRITERION = len(SequenceOutcome)
_OUTCOME_REASONS = ("invalid_logprobs", "empty", "advantage")


@dataclass(frozen=True, eq=False)
class Decision:
    """The decision on B sequences; arrays are of the columns' kind and on their device.

    Fields: accepted [B] bool; codes [B] int64: 0, else 1 + index into `reason_names`; certified [B] bool: rejected
    on proof, by exact KL or a lower bound of it; `compared`: for each criterion what it read, [B], logs for
    ratios, or None where it did not apply to the batch.
    """

    policy: Policy
    accepted: Array
    codes: Array
    certified: Array
    compared: tuple[Array | None, ...]

    @cached_property
    def reason_names(self) -> tuple[str, ...]:
        """The reasons codes stand for: three of the data, then each criterion's statistic, in order."""
        return (*_OUTCOME_REASONS, *(criterion.statistic for criterion in self.policy.criteria))

    @cached_property
    def reasons(self) -> list[str | None]:
        """The first reason of each rejection, None where accepted; synchronises on a device."""
        names = (None, *self.reason_names)
        return [names[code] for code in self.codes.tolist()]

    @cached_property
    def values(self) -> Array:
        """[B] float64: the statistic that failed, nan where none did."""
        found, where = self._nothing()
        for criterion, compared, failed in self._failures():
            found = where(failed, _natural(criterion, compared), found)
        return found

    @cached_property
    def bounds(self) -> Array:
        """[B] float64: the bound that was broken, as given to the policy, nan where none was.

        A statistic that is NaN breaks the upper bound if there is one.
        """
        found, where = self._nothing()
        for criterion, compared, failed in self._failures():
            found = where(failed, criterion.lower if criterion.upper is None else criterion.upper, found)
            if criterion.lower is not None:
                found = where(failed & (compared < criterion.lower_compared), criterion.lower, found)
        return found

    @cached_property
    def mask_rate(self) -> float:
        """rejected/(accepted + rejected), empty sequences left out; nan if none is left; synchronises on a device.

        Source: formulas, section 6.
        """
        counts = self._counts
        decided = sum(counts.values()) - counts.get("empty", 0)
        return (decided - counts["accepted"]) / decided if decided else math.nan

    def counts(self) -> dict[str, int]:
        """Return how many were accepted, and rejected by each reason that occurs; synchronises on a device."""
        return dict(self._counts)

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Two criteria may have one statistic, and so one reason."""
        accepted, *rejected = np.bincount(to_computable(self.codes, None), minlength=1).tolist()
        counts = {"accepted": accepted}
        for reason, n in zip(self.reason_names, rejected, strict=False):
            if n:
                counts[reason] = counts.get(reason, 0) + n
        return counts

    def _nothing(self) -> tuple[Array, Callable[..., Array]]:
        functions = functions_of(self.codes)
        return functions.cast(self.codes, "f8") + math.nan, functions.where

    def _failures(self) -> Iterator[tuple[Criterion, Array, Array]]:
        """Yield each criterion that applied with what it compared and where it was the first to fail."""
        for index, (criterion, compared) in enumerate(zip(self.policy.criteria, self.compared, strict=True)):
            if compared is not None:
                yield criterion, compared, self.codes == FIRST_CRITERION + index


def _natural(criterion: Criterion, compared: Array) -> Array:
    if not criterion.measured.is_ratio:
        return compared
    with np.errstate(all="ignore"):
        return functions_of(compared).exp(compared)
