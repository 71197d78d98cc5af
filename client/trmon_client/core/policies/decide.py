"""Acceptance: which sequences of a batch stay in the loss under a policy, a pure function of the columns.

The same code runs in the trainer, over numpy or torch and without a host synchronisation, and in the service.
"""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import Pair
from trmon_client.core.policies.criterion import Criterion
from trmon_client.core.policies.decision import FIRST_CRITERION, Decision, SequenceOutcome
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PairView
from trmon_client.core.policies.soft_masking import SoftMask
from trmon_client.core.policies.turn_decision import decide_turns

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
        self._where = functions_of(columns["n_tokens"]).where
        codes = self._where(columns["n_tokens"] > 0, int(SequenceOutcome.ACCEPTED), int(SequenceOutcome.EMPTY))
        self._codes = self._where(columns["n_invalid"] > 0, int(SequenceOutcome.INVALID_LOGPROBS), codes)
        self._undecided, self._none_certified = self._codes == 0, self._codes < 0
        self._values: dict[tuple[str, Pair | None], Array] = {}

    def decide(self, policy: Policy) -> Decision:
        """Return the decision on the batch under a policy. Errors: PolicyError, as for `decide`."""
        columns, where = self._columns, self._where
        for rule in policy.tokens if columns.pairs else ():
            rule.check_columns(columns)
        codes, undecided, certified = self._codes, self._undecided, self._none_certified
        compared: list[Array | None] = []
        soft = None if policy.soft_tau is None else SoftMask(columns["n_tokens"], tau=policy.soft_tau)
        with np.errstate(all="ignore"):
            for code, criterion in enumerate(policy.criteria, start=FIRST_CRITERION):
                pair = criterion.resolve(columns)
                if not criterion.applies(columns, pair):
                    compared.append(None)
                    continue
                value = self._value(criterion, pair)
                compared.append(value)
                violated = ~_within(criterion, value)
                if criterion.by_advantage:
                    advantage = PairView(columns, pair).of_sequence("advantage")
                    unknown_advantage = undecided & (advantage != advantage)
                    codes, undecided = (
                        where(unknown_advantage, int(SequenceOutcome.ADVANTAGE), codes),
                        undecided ^ unknown_advantage,
                    )
                    violated = violated & criterion.has_sign(advantage)
                    if soft is not None:
                        soft.exclude(advantage != advantage)
                if soft is not None:
                    soft.add(criterion, value, violated=violated)
                failed = undecided & violated
                codes, undecided = where(failed, code, codes), undecided ^ failed
                if _certifies(columns, criterion, pair):
                    certified = certified | (failed & (value > criterion.upper_compared))
        weights = None if soft is None else soft.weights(decidable=self._undecided)
        turns = decide_turns(columns, policy.turns)
        return Decision(policy, undecided, codes, certified, tuple(compared), turns=turns, soft_weights=weights)

    def _value(self, criterion: Criterion, pair: Pair | None) -> Array:
        cached = self._values.get((criterion.statistic, pair))
        if cached is not None:
            return cached
        value = self._values[criterion.statistic, pair] = criterion.measured.read(PairView(self._columns, pair))
        return value


def _within(criterion: Criterion, compared: Array) -> Array:
    """Return where a statistic meets its bounds; NaN never does, because it compares false."""
    lower, upper = criterion.lower_compared, criterion.upper_compared
    if lower is None:
        return compared <= upper
    return compared >= lower if upper is None else (compared >= lower) & (compared <= upper)


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
