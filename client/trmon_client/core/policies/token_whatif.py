"""What other token rules would do to a batch, read from its histogram of d: right within the bins of the bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns.columns import Array, Columns
from trmon_client.core.columns.histogram import EDGES
from trmon_client.core.columns.schema import Pair
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_rule import TokenRule

NEWTON_STEPS = 64
"""Enough for the roots of k3: far away a step is 1 nat or halves the distance, near them it squares the error."""


@dataclass(frozen=True, slots=True)
class TokenFraction:
    """A fraction of the valid tokens: what it is at least and at most, and an estimate between them; nan of none.

    The estimate takes tokens to lie evenly within a bin, 26% wide.
    """

    at_least: float
    estimate: float
    at_most: float


def fraction_outside(counts: Array, *, lower: float = -math.inf, upper: float = math.inf) -> TokenFraction:
    """Return the fraction of tokens whose d lies below `lower` or above `upper`, in nats, of a histogram [N_BINS].

    Errors: ValueError unless lower <= upper.
    Source: formulas, section 3.
    """
    if not lower <= upper:
        raise ValueError(f"lower must be at most upper, and they are {lower} and {upper}")
    total = float(counts.sum())
    if not total:
        return TokenFraction(math.nan, math.nan, math.nan)
    below, up_to = _n_below(counts, lower), _n_below(counts, upper)
    return TokenFraction(
        at_least=(below.at_least + total - up_to.at_most) / total,
        estimate=(below.estimate + total - up_to.estimate) / total,
        at_most=min(1.0, (below.at_most + total - up_to.at_least) / total),
    )


def masked_or_cut(columns: Columns, policy: Policy) -> dict[str, TokenFraction]:
    """Return for each token rule of a policy the share of valid tokens it would mask, or cut the weight of.

    Args: columns: numpy, with the histogram of the rule's pair.
    Returns: by the rule's name; seq_tis is exact, of the tokens in sequences that it would cut.
    Errors: PolicyError if a rule's pair or its histogram is not at hand.
    Source: formulas, sections 3 and 6.
    """
    return {rule.rule: _share(columns, rule, rule.resolve(columns.pairs)) for rule in policy.tokens}


def kept_range(rule: TokenRule) -> tuple[float, float]:
    """Return the range of d, in nats, in which a rule neither masks a token nor cuts its weight.

    Errors: ValueError for seq_tis, which looks at whole sequences.
    """
    upper = rule.upper_compared
    if upper is None or rule.rule == "seq_tis":
        raise ValueError(f"{rule.rule} keeps no range of token log-ratios")
    if rule.rule == "token_k2":
        return -math.sqrt(2 * upper), math.sqrt(2 * upper)
    if rule.rule == "token_k3":
        return _k3_root(upper, start=-upper - 1.0), _k3_root(upper, start=math.log1p(upper) + 1.0)
    return -math.inf if rule.lower_compared is None else rule.lower_compared, upper


def _share(columns: Columns, rule: TokenRule, pair: Pair) -> TokenFraction:
    if rule.rule == "seq_tis":
        tokens = columns["n_tokens"]
        cut = tokens[columns[f"{pair}_sum_d"] > rule.upper_compared].sum()
        fraction = float(cut / tokens.sum()) if tokens.sum() else math.nan
        return TokenFraction(fraction, fraction, fraction)
    if pair not in columns.histograms:
        raise PolicyError(f"{rule.rule} needs the histogram of {pair}, and this batch has none")
    lower, upper = kept_range(rule)
    return fraction_outside(columns.histograms[pair], lower=lower, upper=upper)


def _n_below(counts: Array, bound: float) -> TokenFraction:
    """Return how many tokens lie below a bound; of an overflow bin's inside, half of them."""
    if math.isinf(bound):
        return TokenFraction(*[float(counts.sum()) if bound > 0 else 0.0] * 3)
    index = int(np.searchsorted(EDGES, bound, side="right"))
    whole, inside = float(counts[:index].sum()), float(counts[index])
    is_overflow = not 0 < index < len(EDGES)
    part = 0.5 if is_overflow else float((bound - EDGES[index - 1]) / (EDGES[index] - EDGES[index - 1]))
    return TokenFraction(whole, whole + part * inside, whole + inside)


def _k3_root(upper: float, *, start: float) -> float:
    """Return where rho - 1 - d is `upper`, on the side of `start`, which lies beyond it: Newton, as k3 is convex."""
    d = start
    for _ in range(NEWTON_STEPS):
        slope = math.expm1(d)
        step = (slope - d - upper) / slope
        if step == 0.0:
            break
        d -= step
    return d
