"""The pair of policies that a rule reads: a named pair, or one chosen from the available pairs."""

from __future__ import annotations

from typing import Literal

from trmon_client.core.columns.schema import Pair, primary
from trmon_client.core.inputs.checked_inputs import POLICIES
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.reduction.kl_estimators import RATIOS
from trmon_client.core.reduction.ppo_clipping import clipped_pair

PairChoice = Literal["primary", "mismatch", "staleness", "total", "mismatch_or_primary", "staleness_or_primary"]
"""`primary` and the last two depend on the available pairs; `staleness_or_primary` is PPO's ratio."""

NEEDS_PAIR = f"needs two of the log-probs {', '.join(POLICIES)}, which were not given for this batch"


def resolve_pair(choice: PairChoice, pairs: tuple[Pair, ...], *, reader: str) -> Pair:
    """Return the pair to read.

    Args: pairs: the available pairs; reader: the name of the statistic or rule, for the error.
    Errors: PolicyError if a named pair is not available, or if there is none.
    Source: formulas, sections 1 and 6.
    """
    if not pairs:
        raise PolicyError(f"{reader} {NEEDS_PAIR}")
    if choice == "primary":
        return primary(pairs)
    if choice == "mismatch_or_primary":
        return "mismatch" if "mismatch" in pairs else primary(pairs)
    if choice == "staleness_or_primary":
        return clipped_pair(pairs)
    if choice in pairs:
        return choice
    needed, available = " and ".join(RATIOS[choice]), ", ".join(pairs)
    raise PolicyError(f"{reader} of {choice} needs {needed}; the available pairs are {available}")
