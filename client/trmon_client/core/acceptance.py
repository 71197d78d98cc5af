"""Acceptance: which sequences of a batch may teach under a policy, a pure function of the columns.

The same code decides in the trainer, over numpy or torch and without a host synchronisation, and in the service.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import Array, functions_of
from trmon_client.core.columns import Columns
from trmon_client.core.criterion import Criterion, PairChoice, Where
from trmon_client.core.decision import FIRST_CRITERION, Decision, Outcome
from trmon_client.core.policy import Policy, preset
from trmon_client.core.presets import CERTIFICATE_MARGIN, PRESETS, TOKEN_POLICIES
from trmon_client.core.schema import Pair
from trmon_client.core.sequence_statistics import STATISTICS, PairView, PolicyError
from trmon_client.core.token_rule import TOKEN_RULES, TokenRule

__all__ = [
    "CERTIFICATE_MARGIN",
    "PRESETS",
    "SEMANTICS_VERSION",
    "STATISTICS",
    "TOKEN_POLICIES",
    "TOKEN_RULES",
    "Criterion",
    "Decision",
    "Outcome",
    "PairChoice",
    "Policy",
    "PolicyError",
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
    for rule in policy.tokens:
        rule.resolve(columns.pairs)
    where = functions_of(columns["n_tokens"]).where
    codes = where(columns["n_tokens"] > 0, int(Outcome.ACCEPTED), int(Outcome.EMPTY))
    codes = where(columns["n_invalid"] > 0, int(Outcome.INVALID_LOGPROBS), codes)
    certified = codes < 0
    compared: list[Array | None] = []
    with np.errstate(all="ignore"):
        for index, criterion in enumerate(policy.criteria):
            verdict = _judge(columns, criterion)
            compared.append(None if verdict is None else verdict.compared)
            if verdict is None:
                continue
            if verdict.unjudgeable is not None:
                codes = where((codes == 0) & verdict.unjudgeable, int(Outcome.ADVANTAGE), codes)
            failed = (codes == 0) & verdict.broken
            codes = where(failed, FIRST_CRITERION + index, codes)
            if verdict.proven is not None:
                certified = certified | (failed & verdict.proven)
    return Decision(policy, codes == 0, codes, certified, tuple(compared))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What one criterion says of each sequence, [B]: what it compared, and where that is out of bounds.

    `unjudgeable`: where its condition cannot be told; `proven`: where KL itself is shown to be above the bound.
    """

    compared: Array
    broken: Array
    unjudgeable: Array | None
    proven: Array | None


def _judge(columns: Columns, criterion: Criterion) -> _Verdict | None:
    pair = criterion.resolve(columns)
    if not criterion.applies(columns, pair):
        return None
    view = PairView(columns, pair)
    compared = criterion.measured.read(view)
    broken = ~_within(criterion, compared)
    proven = compared > criterion.upper_compared if _proves(columns, criterion, pair) else None
    if criterion.where != "advantage_negative":
        return _Verdict(compared, broken, None, proven)
    advantage = view.of_sequence("advantage")
    return _Verdict(compared, broken & (advantage < 0), advantage != advantage, proven)


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
    kl_is = columns.kl_is if columns.kl_pair == pair else "sampled"
    return {
        "max_kl": kl_is != "sampled",
        "mean_kl": kl_is == "exact",
        "max_binary_kl": True,
    }.get(criterion.statistic, False)
