"""The decision on the turns of a batch: which stay in the loss, and the reason for each one that is rejected."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of, is_tensor
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.turn_columns import TurnColumns
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.turn_criterion import TURN_ARGUMENTS, TurnCriterion


class TurnOutcome(IntEnum):
    """The outcome of a turn; codes from FIRST_TURN_CRITERION on identify the first criterion that failed."""

    ACCEPTED = 0
    EMPTY = 1


FIRST_TURN_CRITERION = len(TurnOutcome)


@dataclass(frozen=True, eq=False)
class TurnDecision:
    """The decision on the R turns of B sequences, in arrays of the columns' kind on the columns' device.

    Fields: accepted [R] bool: false only where a criterion failed; codes [R] int64: an outcome, else
    FIRST_TURN_CRITERION + index of the criterion; `compared`: the statistic of each criterion, [R], none without a
    pair. A turn without valid tokens is empty and counts in no rate. Rejected turns leave their sequence accepted.
    """

    criteria: tuple[TurnCriterion, ...]
    turns: TurnColumns
    accepted: Array
    codes: Array
    compared: tuple[Array, ...]

    @cached_property
    def reasons(self) -> list[str | None]:
        """[R] the statistic that failed first, "empty", or None where accepted; synchronises a device."""
        names = (None, "empty", *(criterion.statistic for criterion in self.criteria))
        return [names[code] for code in self.codes.tolist()]

    @cached_property
    def mask_rate(self) -> float:
        """Rejected turns/turns with valid tokens; NaN without such turns; synchronises a device."""
        codes = to_computable(self.codes, None)
        n_decided = int(np.count_nonzero(codes != TurnOutcome.EMPTY))
        return int(np.count_nonzero(codes >= FIRST_TURN_CRITERION)) / n_decided if n_decided else math.nan

    def by_sequence(self) -> list[Array]:
        """Return which turns of each sequence are accepted: B arrays of bool; from CUDA without waiting."""
        bounds = [0, *self.turns.ends.tolist()]
        return [self.accepted[start:end] for start, end in itertools.pairwise(bounds)]

    def kept_tokens(self, rows: Array) -> Array:
        """Return which tokens are of no rejected turn, bool [B, T].

        Args: rows: the row of each token's turn, [B, T], as `TurnInputs.rows` returns it.
        """
        accepted = self.accepted
        of_none = accepted.new_ones(1) if is_tensor(accepted) else np.ones(1, bool)
        kept: Array = functions_of(accepted).concatenate([accepted, of_none])[rows]
        return kept


def decide_turns(columns: Columns, criteria: tuple[TurnCriterion, ...]) -> TurnDecision | None:
    """Return which turns meet all criteria; None without criteria, or without turns in a batch without a pair.

    Every operation is on one turn at a time, so that client and service agree to the last bit.
    Errors: PolicyError naming the missing argument.
    Source: formulas, section 6.
    """
    turns = columns.turns
    if not criteria or (turns is None and not columns.pairs):
        return None
    if turns is None:
        raise PolicyError(f"the policy needs {' or '.join(TURN_ARGUMENTS)}, which were not given for this batch")
    where = functions_of(turns.n_tokens).where
    codes = where(turns.n_tokens > 0, int(TurnOutcome.ACCEPTED), int(TurnOutcome.EMPTY))
    undecided = codes == 0
    compared = []
    with np.errstate(all="ignore"):
        for code, criterion in enumerate(criteria if columns.pairs else (), start=FIRST_TURN_CRITERION):
            compared.append(criterion.read(turns, criterion.resolve(columns.pairs)))
            failed = undecided & ~criterion.is_met(compared[-1])
            codes, undecided = where(failed, code, codes), undecided ^ failed
    return TurnDecision(criteria, turns, codes < FIRST_TURN_CRITERION, codes, tuple(compared))
