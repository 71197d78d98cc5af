"""The mismatch budget: three limits below which correcting the mismatch is conjectured to gain less than 0.3%."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

TOKEN_TV, CHI2_SEQ, ROUTER_FLIPS = 1e-4, 0.1, 1e-3
TAIL = 0.05
"""The share of tokens above a 95th percentile."""
ENGINE_PREFIXES = ("mismatch_", "total_")


class BudgetState(Enum):
    """Whether a quantity is within its limit; `undecided` where what was measured proves neither."""

    WITHIN = "within"
    EXCEEDED = "exceeded"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetItem:
    """One limit of the budget; `value` is of `signal`, nan where it was not measured, `note` says how it was judged."""

    name: str
    limit: float
    signal: str
    value: float
    state: BudgetState
    note: str


def mismatch_budget(signals: Mapping[str, float]) -> tuple[BudgetItem, ...]:
    """Return the three limits beside the signals of a step.

    Source: [DRIFT] problem 4, a conjecture; formulas, section 11.
    """
    return (_token_tv(signals), _chi2_seq(signals), _router_flips(signals))


def token_tv_state(*, mean: float, largest: float, limit: float = TOKEN_TV) -> BudgetState:
    """Return whether the 95th percentile of the tokens' TV is within a limit, as far as mean and maximum prove it.

    Within: the maximum is, or the mean is at most TAIL * limit, so that by Markov's inequality less than TAIL of the
    tokens exceed the limit. Exceeded: the mean is above what a share of TAIL at the maximum and the rest at the limit
    can reach.
    Args: mean, largest: over the tokens of a batch, nan where unknown.
    Source: formulas, section 11.
    """
    if largest <= limit or mean <= TAIL * limit:
        return BudgetState.WITHIN
    if mean > (1 - TAIL) * limit + TAIL * (1.0 if math.isnan(largest) else largest):
        return BudgetState.EXCEEDED
    return BudgetState.NOT_MEASURED if math.isnan(mean) and math.isnan(largest) else BudgetState.UNDECIDED


def _token_tv(signals: Mapping[str, float]) -> BudgetItem:
    mean, largest = (signals.get(name, math.nan) for name in ("tv_mean", "tv_max"))
    state = token_tv_state(mean=mean, largest=largest)
    signal, value = ("tv_max", largest) if math.isnan(mean) else ("tv_mean", mean)
    note = {
        BudgetState.NOT_MEASURED: "needs the logits of both engines, and tv=True",
        BudgetState.UNDECIDED: "mean and maximum of the tokens' TV prove neither",
    }.get(state, "proved by mean and maximum of the tokens' TV")
    return BudgetItem(
        name="95th percentile of token TV", limit=TOKEN_TV, signal=signal, value=value, state=state, note=note
    )


def _chi2_seq(signals: Mapping[str, float]) -> BudgetItem:
    prefix = next((one for one in ENGINE_PREFIXES if f"{one}chi2_seq_log1p" in signals), ENGINE_PREFIXES[0])
    value = math.expm1(min(signals.get(f"{prefix}chi2_seq_log1p", math.nan), 700.0))
    is_total = "; both drifts together, since mismatch was not sent" if prefix == "total_" else ""
    return BudgetItem(
        name="chi-squared of sequences",
        limit=CHI2_SEQ,
        signal=f"{prefix}chi2_seq",
        value=value,
        state=_state(value, CHI2_SEQ),
        note=f"an estimate over the sampled sequences{is_total}",
    )


def _router_flips(signals: Mapping[str, float]) -> BudgetItem:
    value = signals.get("router_flip_rate", math.nan)
    return BudgetItem(
        name="router flips",
        limit=ROUTER_FLIPS,
        signal="router_flip_rate",
        value=value,
        state=_state(value, ROUTER_FLIPS),
        note="only mixtures of experts have a router" if math.isnan(value) else "share of routings that differ",
    )


def _state(value: float, limit: float) -> BudgetState:
    if math.isnan(value):
        return BudgetState.NOT_MEASURED
    return BudgetState.WITHIN if value < limit else BudgetState.EXCEEDED
