"""What PPO's clip does to the tokens of each sequence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from trmon_client.core.arrays import Array, Arrays
from trmon_client.core.schema import Pair, primary


@dataclass(frozen=True, slots=True)
class ClipRange:
    """PPO clips rho to [1 - low, 1 + high]."""

    low: float = 0.2
    high: float = 0.2


USUAL_CLIP = ClipRange()


def clipped_pair(pairs: tuple[Pair, ...]) -> Pair:
    """Return the pair that PPO clips: staleness, else the primary one."""
    return "staleness" if "staleness" in pairs else primary(pairs)


def clip_columns(xp: Arrays, dev: Array, *, advantages: Array, clip: ClipRange, axis: int) -> dict[str, Array]:
    """Return how many tokens PPO's min takes the clipped branch of, and how many leave the range unclipped.

    Args: dev: rho - 1 of the clipped pair, 0 where a token is not valid; advantages: of the same shape, or of one to
        which it broadcasts; axis: that of time.
    Source: [TRM] 4.1; formulas, section 3.
    """
    count = partial(xp.count, axis=axis)
    above, below = dev > clip.high, dev < -clip.low
    gain, loss = advantages > 0, advantages < 0
    leaked_high = above & loss
    return {
        "n_clipped": count((above & gain) | (below & loss)),
        "n_leaked": count(leaked_high | (below & gain)),
        "n_leaked_high": count(leaked_high),
    }
