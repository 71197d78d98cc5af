"""Acceptance: which sequences of a batch may teach under a policy, a pure function of the columns.

The same code decides in the trainer, over numpy or torch and without a host synchronisation, and in the service.
"""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import Pair
from trmon_client.core.policies.criterion import Criterion, PairChoice, Where
from trmon_client.core.policies.decision import FIRST_CRITERION, Decision, SequenceOutcome
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN, PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS, PairView, PolicyError
from trmon_client.core.policies.token_rule import TOKEN_RULES, TokenRule

__all__ = [
    "CERTIFICATE_MARGIN",
    "PRESETS",
    "SEMANTICS_VERSION",
    "STATISTICS",
    "TOKEN_POLICIES",
    "TOKEN_RULES",
    "Criterion",
    "Decision",
    "SequenceOutcome",
    "PairChoice",
    "Policy",
    "PolicyError",
    "StatisticCache",
    "TokenRule",
    "Where",
    "decide",
    "preset",
]

SEMANTICS_VERSION = 1
"""Raised whenever the same columns and policy could decide differently than before."""


def decide(columns: Columns, policy: Policy) -> Decision:
    """Return which sequences the policy accepts, with the first reason for each that it rejects.

    Nothing is read back from a device: no branch depends on a value. Token rules have no say here: what they make of
    the tokens of accepted sequences is `token_decision.apply`'s.
    Errors: PolicyError naming the argument that is missing (`Policy.needs`).
    Source: formulas, section 6.
    """
    return StatisticCache(columns).decide(policy)


class StatisticCache:
    """What policies read of one batch: each statistic once, however many of them ask for it."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._where = functions_of(columns["n_tokens"]).where
        codes = self._where(columns["n_tokens"] > 0, int(SequenceOutcome.ACCEPTED), int(SequenceOutcome.EMPTY))
        self._codes = self._where(columns["n_invalid"] > 0, int(SequenceOutcome.INVALID_LOGPROBS), codes)
        self._undecided, self._none = self._codes == 0, self._codes < 0
        self._read: dict[tuple[str, Pair], Array] = {}

    def decide(self, policy: Policy) -> Decision:
        """Return what `decide` returns of the batch under a policy. Errors: PolicyError, as there."""
        columns, where = self._columns, self._where
        for rule in policy.tokens:
            rule.resolve(columns.pairs)
        codes, undecided, certified = self._codes, self._undecided, self._none
        compared: list[Array | None] = []
        with np.errstate(all="ignore"):
            for code, criterion in enumerate(policy.criteria, start=FIRST_CRITERION):
                pair = criterion.resolve(columns)
                if not criterion.applies(columns, pair):
                    compared.append(None)
                    continue
                read = self._of(criterion, pair)
                compared.append(read)
                broken = ~_within(criterion, read)
                if criterion.where == "advantage_negative":
                    advantage = PairView(columns, pair).of_sequence("advantage")
                    unjudgeable = undecided & (advantage != advantage)
                    codes, undecided = (
                        where(unjudgeable, int(SequenceOutcome.ADVANTAGE), codes),
                        undecided ^ unjudgeable,
                    )
                    broken = broken & (advantage < 0)
                failed = undecided & broken
                codes, undecided = where(failed, code, codes), undecided ^ failed
                if _proves(columns, criterion, pair):
                    certified = certified | (failed & (read > criterion.upper_compared))
        return Decision(policy, undecided, codes, certified, tuple(compared))

    def _of(self, criterion: Criterion, pair: Pair) -> Array:
        known = self._read.get((criterion.statistic, pair))
        if known is not None:
            return known
        read = self._read[criterion.statistic, pair] = criterion.measured.read(PairView(self._columns, pair))
        return read


def _within(criterion: Criterion, compared: Array) -> Array:
    """NaN compares false, so it is never within."""
    lower, upper = criterion.lower_compared, criterion.upper_compared
    if lower is None:
        return compared <= upper
    return compared >= lower if upper is None else (compared >= lower) & (compared <= upper)


def _proves(columns: Columns, criterion: Criterion, pair: Pair) -> bool:
    """Whether going above the bound is proof; a bound on a lower bound of KL carries CERTIFICATE_MARGIN."""
    if criterion.upper is None:
        return False
    if criterion.statistic == "max_binary_kl":
        return True
    kl_is = columns.kl_is if columns.kl_pair == pair else "sampled"
    if criterion.statistic == "max_kl":
        return kl_is != "sampled"
    return criterion.statistic == "mean_kl" and kl_is == "exact"
