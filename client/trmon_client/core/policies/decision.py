"""Decides which sequences and turns of a batch stay in the loss, with a reason for each one that is rejected.

A pure function of the columns: the same code runs in the trainer, over numpy or torch and without a host
synchronisation, and in the service. A sequence beyond the bounds of a soft policy keeps a weight that falls with its
excess, which is relative to the violated bound, so that one tau serves criteria of different units and bounds that
move: (s - upper)/|upper| or (lower - s)/|lower|. Ratios and their bounds are logs; any violation of a bound of 0 is
an infinite excess.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from trmon_client.core.arrays import Array, Arrays, functions_of, is_tensor, to_computable
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.core.policies.criteria import TURN_ARGUMENTS, Criterion, TurnCriterion
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PairView, PolicyError


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
            with np.errstate(all="ignore"):
                natural = functions_of(compared).exp(compared) if criterion.measured.is_ratio else compared
            values = where(failed, natural, values)
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


def soft_weights(xp: Arrays, excess: Array, *, tau: float, decidable: Array) -> Array:
    """Return exp(-excess/tau), [B] float64 in [0, 1]; 0 where the excess is NaN or the sequence not decidable.

    Args: excess: the largest of each sequence over the criteria, [B] float64; decidable: [B] bool: neither empty nor
    invalid.
    Source: [TRM], future work; formulas, section 6.
    """
    with np.errstate(all="ignore"):
        return xp.where(decidable & (excess == excess), xp.exp(-excess / tau), 0.0)


def relative_excess(xp: Arrays, criterion: Criterion, compared: Array) -> Array:
    """Return how far a statistic is beyond its bounds, in multiples of the violated one; negative within them.

    Args: compared: the statistic, as logs for ratios. NaN stays NaN.
    Source: [TRM], future work; formulas, section 6.
    """
    lower, upper = criterion.lower_compared, criterion.upper_compared
    sides = []
    if upper is not None:
        sides.append((compared - upper) / abs(upper) if upper else (compared - upper) * math.inf)
    if lower is not None:
        sides.append((lower - compared) / abs(lower) if lower else (lower - compared) * math.inf)
    return sides[0] if len(sides) == 1 else xp.at_least(*sides)


SEMANTICS_VERSION = 2
"""Incremented when the same columns and policy can give another decision than before.

1: until 0.1; 2: the preset `seq_mis` weights the sequences that it accepts.
"""


def decide(columns: Columns, policy: Policy) -> Decision:
    """Return which sequences the policy accepts, with the first reason for each that it rejects.

    No value is read from a device, because no branch depends on one. Token rules do not affect the decision:
    `token_decision.apply_token_rules` applies them to the tokens. Turn criteria decide on turns alone. If the columns
    have no pair, criteria that read one do not apply: every sequence that is neither empty nor invalid is accepted.
    Errors: PolicyError naming the missing argument (`Policy.needs`).
    Source: formulas, sections 4 and 6.
    """
    return StatisticCache(columns).decide(policy)


class StatisticCache:
    """The statistics of one batch, each computed once for any number of policies."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._xp = functions_of(columns["n_tokens"])
        codes = self._xp.where(columns["n_tokens"] > 0, int(SequenceOutcome.ACCEPTED), int(SequenceOutcome.EMPTY))
        self._codes = self._xp.where(columns["n_invalid"] > 0, int(SequenceOutcome.INVALID_LOGPROBS), codes)
        self._undecided, self._none_certified = self._codes == 0, self._codes < 0
        self._values: dict[tuple[str, Pair | None], Array] = {}

    def decide(self, policy: Policy) -> Decision:
        """Return the decision on the batch under a policy. Errors: PolicyError, as for `decide`."""
        columns, xp, where = self._columns, self._xp, self._xp.where
        for rule in policy.tokens if columns.pairs else ():
            rule.check_columns(columns)
        codes, undecided, certified = self._codes, self._undecided, self._none_certified
        compared: list[Array | None] = []
        excess = None if policy.soft_tau is None else xp.cast(columns["n_tokens"], "f8") * 0.0
        with np.errstate(all="ignore"):
            for code, criterion in enumerate(policy.criteria, start=FIRST_CRITERION):
                pair = criterion.resolve(columns)
                if not criterion.applies(columns, pair):
                    compared.append(None)
                    continue
                value = self._value(criterion, pair)
                compared.append(value)
                violated = ~criterion.is_met(value)
                if criterion.by_advantage:
                    advantage = PairView(columns, pair).of_sequence("advantage")
                    unknown = undecided & (advantage != advantage)
                    codes, undecided = where(unknown, int(SequenceOutcome.ADVANTAGE), codes), undecided ^ unknown
                    violated = violated & criterion.has_sign(advantage)
                    if excess is not None:
                        excess = where(advantage != advantage, math.inf, excess)
                if excess is not None:
                    # NaN propagates: a sequence without the statistic has the weight 0.
                    excess = xp.at_least(excess, where(violated, relative_excess(xp, criterion, value), 0.0))
                failed = undecided & violated
                codes, undecided = where(failed, code, codes), undecided ^ failed
                if _certifies(columns, criterion, pair):
                    certified = certified | (failed & (value > criterion.upper_compared))
        weights = None
        if excess is not None and policy.soft_tau is not None:
            weights = soft_weights(xp, excess, tau=policy.soft_tau, decidable=self._undecided)
        turns = decide_turns(columns, policy.turns)
        return Decision(policy, undecided, codes, certified, tuple(compared), turns=turns, soft_weights=weights)

    def _value(self, criterion: Criterion, pair: Pair | None) -> Array:
        cached = self._values.get((criterion.statistic, pair))
        if cached is not None:
            return cached
        value = self._values[criterion.statistic, pair] = criterion.measured.read(PairView(self._columns, pair))
        return value


def _certifies(columns: Columns, criterion: Criterion, pair: Pair | None) -> bool:
    """Return whether exceeding the bound is proof; a bound on a lower bound of KL includes CERTIFICATE_MARGIN."""
    if criterion.upper is None:
        return False
    if criterion.statistic == "max_binary_kl":
        return True
    kl_is = columns.kl_is if columns.kl_pair == pair else "sampled"
    if criterion.statistic == "max_kl":
        return kl_is != "sampled"
    return criterion.statistic == "mean_kl" and kl_is == "exact"
