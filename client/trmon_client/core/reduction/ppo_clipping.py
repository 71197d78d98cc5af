"""Counts the tokens that PPO clips, and the tokens outside the clip range that it does not clip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from trmon_client.core.arrays.backend import Array, Arrays
from trmon_client.core.columns.schema import Pair, primary


@dataclass(frozen=True, slots=True)
class ClipRange:
    """PPO clips rho to [1 - low, 1 + high]."""

    low: float = 0.2
    high: float = 0.2


DEFAULT_CLIP = ClipRange()


def clipped_pair(pairs: tuple[Pair, ...]) -> Pair:
    """Return the pair that PPO clips: staleness, else the primary one."""
    return "staleness" if "staleness" in pairs else primary(pairs)


def clip_columns(xp: Arrays, above: Array, below: Array, *, advantages: Array, axis: int) -> dict[str, Array]:
    """Return the number of tokens for which PPO's min takes the clipped branch, and of unclipped ones out of range.

    Args: above, below: bool, rho of the clipped pair is above 1 + high, or below 1 - low, and the token is valid;
        advantages: of a shape that broadcasts to theirs; axis: the time axis.
    Source: [TRM] 4.1; formulas, section 3.
    """
    count = partial(xp.count, axis=axis)
    gain, loss = advantages > 0, advantages < 0
    leaked_high = above & loss
    return {
        "n_clipped": count((above & gain) | (below & loss)),
        "n_leaked": count(leaked_high | (below & gain)),
        "n_leaked_high": count(leaked_high),
    }


def clip_counts(n_above: Array, n_below: Array, *, advantages: Array) -> dict[str, Array]:
    """Return the columns of `clip_columns` for one advantage per sequence, [B].

    Args: n_above, n_below: the number of tokens with rho above 1 + high, and below 1 - low.
    Source: [TRM] 4.1; formulas, section 3.
    """
    gain, loss = advantages > 0, advantages < 0
    leaked_high = n_above * loss
    return {
        "n_clipped": n_above * gain + n_below * loss,
        "n_leaked": leaked_high + n_below * gain,
        "n_leaked_high": leaked_high,
    }
