"""A decision: which sequences stay in the loss, and the reason for each one that is rejected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.policies.criterion import Criterion
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.turn_decision import TurnDecision


class SequenceOutcome(IntEnum):
    """The outcome of a sequence; codes from FIRST_CRITERION on identify the first criterion that failed."""

    ACCEPTED = 0
    INVALID_LOGPROBS = 1
    EMPTY = 2
    ADVANTAGE = 3


FIRST_CRITERION = len(SequenceOutcome)
_OUTCOME_REASONS = ("invalid_logprobs", "empty", "advantage")


@dataclass(frozen=True, eq=False)
class Decision:
    """The decision on B sequences, in arrays of the columns' kind on the columns' device.

    Fields: accepted [B] bool; codes [B] int64: 0 if accepted, else 1 + index into `reason_names`; certified [B] bool:
    the exact KL or a lower bound of it proves the violation; `compared`: the statistic of each criterion, [B], as logs
    for ratios, or None if the criterion did not apply to the batch; `turns`: the decision of the turn criteria, if any;
    soft_weights [B] float64 in [0, 1]: under a soft policy, the weight of each sequence in the loss, 1 where accepted;
    None under a hard one.
    """

    policy: Policy
    accepted: Array
    codes: Array
    certified: Array
    compared: tuple[Array | None, ...]
    turns: TurnDecision | None = None
    soft_weights: Array | None = None

    @cached_property
    def reason_names(self) -> tuple[str, ...]:
        """The reasons by code: three for bad input, then the statistic of each criterion, in order."""
        return (*_OUTCOME_REASONS, *(criterion.statistic for criterion in self.policy.criteria))

    @cached_property
    def reasons(self) -> list[str | None]:
        """The first reason of each rejection, None where accepted; synchronises a device."""
        names = (None, *self.reason_names)
        return [names[code] for code in self.codes.tolist()]

    @cached_property
    def values(self) -> Array:
        """[B] float64: the value of the statistic that failed, nan where none failed."""
        values, where = self._all_nan()
        for criterion, compared, failed in self._failures():
            values = where(failed, _natural_value(criterion, compared), values)
        return values

    @cached_property
    def bounds(self) -> Array:
        """[B] float64: the violated bound, as given to the policy, nan where none was violated.

        A NaN statistic violates the upper bound if there is one, else the lower bound.
        """
        values, where = self._all_nan()
        for criterion, compared, failed in self._failures():
            values = where(failed, criterion.lower if criterion.upper is None else criterion.upper, values)
            if criterion.lower is not None:
                values = where(failed & (compared < criterion.lower_compared), criterion.lower, values)
        return values

    @cached_property
    def mask_rate(self) -> float:
        """rejected/(accepted + rejected), without empty sequences; nan if none is left; synchronises a device.

        Source: formulas, section 6.
        """
        counts = self._counts
        decided = sum(counts.values()) - counts.get("empty", 0)
        return (decided - counts["accepted"]) / decided if decided else math.nan

    def counts(self) -> dict[str, int]:
        """Return the number of accepted sequences and of rejected ones by reason; synchronises a device."""
        return dict(self._counts)

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Count outcomes by reason; two criteria on the same statistic share a reason."""
        accepted, *rejected = np.bincount(to_computable(self.codes, None), minlength=1).tolist()
        counts = {"accepted": accepted}
        for reason, n in zip(self.reason_names, rejected, strict=False):
            if n:
                counts[reason] = counts.get(reason, 0) + n
        return counts

    def _all_nan(self) -> tuple[Array, Callable[..., Array]]:
        functions = functions_of(self.codes)
        return functions.cast(self.codes, "f8") + math.nan, functions.where

    def _failures(self) -> Iterator[tuple[Criterion, Array, Array]]:
        """Yield each criterion that applied, with the statistic compared and the sequences that failed it first."""
        for index, (criterion, compared) in enumerate(zip(self.policy.criteria, self.compared, strict=True)):
            if compared is not None:
                yield criterion, compared, self.codes == FIRST_CRITERION + index


def _natural_value(criterion: Criterion, compared: Array) -> Array:
    if not criterion.measured.is_ratio:
        return compared
    with np.errstate(all="ignore"):
        return functions_of(compared).exp(compared)
