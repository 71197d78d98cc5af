"""The effect of other token rules on a batch, from its histogram of d; exact up to the width of a bin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import EDGES, Columns
from trmon_client.core.policies.criteria import TokenRule
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_decision import fraction_dropped, squares_of_bins

SEQUENCE_RULES = ("seq_tis", "seq_mis", "gspo")
"""The rules that treat all tokens of a sequence alike."""
NEWTON_STEPS = 64
"""Enough for the roots of k3: far from a root a step moves 1 nat or halves the distance, near it the error squares."""


@dataclass(frozen=True, slots=True)
class TokenFraction:
    """A fraction of the valid tokens: its lower and upper limit and an estimate between them; nan without tokens.

    The estimate assumes that tokens are spread evenly within a bin, which is 26% wide.
    """

    at_least: float
    estimate: float
    at_most: float


def fraction_outside(counts: Array, *, lower: float = -math.inf, upper: float = math.inf) -> TokenFraction:
    """Return the fraction of tokens with d below `lower` or above `upper`, in nats, from a histogram [N_BINS].

    Errors: ValueError unless lower <= upper.
    Source: formulas, section 3.
    """
    if not lower <= upper:
        raise ValueError(f"lower must be at most upper, got {lower} and {upper}")
    total = float(counts.sum())
    if not total:
        return TokenFraction(math.nan, math.nan, math.nan)
    below_lower, below_upper = _n_below(counts, lower), _n_below(counts, upper)
    return TokenFraction(
        at_least=(below_lower.at_least + total - below_upper.at_most) / total,
        estimate=(below_lower.estimate + total - below_upper.estimate) / total,
        at_most=min(1.0, (below_lower.at_most + total - below_upper.at_least) / total),
    )


def affected_fractions(columns: Columns, policy: Policy) -> dict[str, TokenFraction]:
    """Return the fraction of valid tokens that each token rule of a policy would mask or truncate the weight of.

    Args: columns: numpy, with the histogram of the rule's pair.
    Returns: fractions by the name of the rule; those of rules of sequences are exact: the tokens of the sequences
    beyond a bound. An optional rule without its pair is left out; without any pair no rule applies.
    Errors: PolicyError if the pair of a rule or its histogram is missing, and for rules that read the advantage and
    the probability of each token, which no column holds.
    Source: formulas, sections 3 and 6.
    """
    resolved = ((rule, rule.resolve(columns.pairs)) for rule in policy.tokens if columns.pairs)
    return {rule.rule: _affected_fraction(columns, rule, pair) for rule, pair in resolved if pair is not None}


def kept_range(rule: TokenRule) -> tuple[float, float]:
    """Return the range of d, in nats, in which a rule neither masks a token nor truncates its weight.

    Errors: ValueError for seq_tis and seq_mis, which depend on whole sequences.
    """
    upper = rule.upper_compared
    if upper is None or rule.rule in SEQUENCE_RULES:
        raise ValueError(f"{rule.rule} has no range of token log-ratios")
    if rule.rule == "token_k2":
        return -math.sqrt(2 * upper), math.sqrt(2 * upper)
    if rule.rule == "token_k3":
        return _k3_root(upper, start=-upper - 1.0), _k3_root(upper, start=math.log1p(upper) + 1.0)
    return -math.inf if rule.lower_compared is None else rule.lower_compared, upper


def _affected_fraction(columns: Columns, rule: TokenRule, pair: Pair) -> TokenFraction:
    if rule.rule in SEQUENCE_RULES:
        tokens, log_ratio = columns["n_tokens"], columns[f"{pair}_sum_d"]
        least = -math.inf if rule.lower_compared is None else rule.lower_compared
        most = math.inf if rule.upper_compared is None else rule.upper_compared
        beyond = (log_ratio < least) | (log_ratio > most)
        fraction = float(tokens[beyond].sum() / tokens.sum()) if tokens.sum() else math.nan
        return TokenFraction(fraction, fraction, fraction)
    if rule.kind.by_advantage:
        raise PolicyError(f"{rule.rule} reads the advantage and probability of each token, which are not stored")
    if pair not in columns.histograms:
        raise PolicyError(f"{rule.rule} needs the histogram of {pair}, which this batch does not have")
    if rule.kind.is_of_batch:
        return _second_moment_fraction(columns.histograms[pair], rule)
    lower, upper = kept_range(rule)
    return fraction_outside(columns.histograms[pair], lower=lower, upper=upper)


def _second_moment_fraction(counts: Array, rule: TokenRule) -> TokenFraction:
    """Return what M2PO drops of one report, as the client masks it; the larger the |d| of a bin, the more it drops."""
    found = []
    for at in ("smallest", "middle", "largest"):
        squares = squares_of_bins(EDGES, at=at)
        order = np.argsort(squares, kind="stable")
        found.append(fraction_dropped(squares[order], counts[order], limit=rule.upper or 0.0))
    return TokenFraction(*found)


def _n_below(counts: Array, bound: float) -> TokenFraction:
    """Return the number of tokens below a bound; the estimate takes half of an overflow bin."""
    if math.isinf(bound):
        return TokenFraction(*[float(counts.sum()) if bound > 0 else 0.0] * 3)
    index = int(np.searchsorted(EDGES, bound, side="right"))
    whole, inside = float(counts[:index].sum()), float(counts[index])
    is_overflow = not 0 < index < len(EDGES)
    part = 0.5 if is_overflow else float((bound - EDGES[index - 1]) / (EDGES[index] - EDGES[index - 1]))
    return TokenFraction(whole, whole + part * inside, whole + inside)


def _k3_root(upper: float, *, start: float) -> float:
    """Return the d at which rho - 1 - d equals `upper`, by Newton's method from a `start` beyond it; k3 is convex."""
    d = start
    for _ in range(NEWTON_STEPS):
        slope = math.expm1(d)
        step = (slope - d - upper) / slope
        if step == 0.0:
            break
        d -= step
    return d
