"""Which pair of policies a rule reads: one by name, or one chosen by the pairs at hand."""

from __future__ import annotations

from typing import Literal

from trmon_client.core.columns.schema import Pair, primary
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.reduction.kl_estimators import RATIOS

PairChoice = Literal["primary", "mismatch", "staleness", "total", "mismatch_or_primary"]
"""`primary` and `mismatch_or_primary` depend on the pairs at hand."""


def resolve_pair(choice: PairChoice, pairs: tuple[Pair, ...], *, reader: str) -> Pair:
    """Return the pair to read.

    Args: pairs: those at hand; reader: what wants to read, for the error.
    Errors: PolicyError if the pair named outright is not at hand.
    Source: formulas, sections 1 and 6.
    """
    if choice == "primary":
        return primary(pairs)
    if choice == "mismatch_or_primary":
        return "mismatch" if "mismatch" in pairs else primary(pairs)
    if choice in pairs:
        return choice
    needed, at_hand = " and ".join(RATIOS[choice]), ", ".join(pairs)
    raise PolicyError(f"{reader} of {choice} needs {needed}; the pairs at hand are {at_hand}")
