"""Results of controllers: a proposal of bounds with its evidence, or the reason for no change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from trmon.domain.adaptation.tail import Side
from trmon_client.core.policies.policy import Policy

SUFFIX = " (adapted)"
CALIBRATED_SUFFIX = " (calibrated)"


class NoChangeReason(Enum):
    """Why bounds do not change."""

    STALLED = "stalled"
    NOT_A_NUMBER = "not_a_number"
    TOO_FEW = "too_few_sequences"
    IN_BAND = "in_dead_band"
    AT_LIMIT = "at_limit"
    NOTHING_TO_MOVE = "nothing_to_move"
    NO_GAIN = "no_measured_gain"
    PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class NoChange:
    """The bounds do not change, for a reason."""

    reason: NoChangeReason
    detail: str


class MoveLimit(Enum):
    """The limit that keeps a bound from its quantile."""

    FACTOR = "factor"
    FLOOR = "floor"
    CEILING = "ceiling"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundMove:
    """One bound that moves, in the units of its statistic; `wanted` is its value without limits."""

    statistic: str
    pair: str
    side: Side
    before: float
    after: float
    wanted: float
    limit: MoveLimit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundProposal:
    """A policy that a controller proposes, with its evidence.

    Mask rates are shares of the valid sequences in the window, under the active and under the proposed policy.
    """

    controller: str
    policy: Policy
    moves: tuple[BoundMove, ...]
    n_sequences: int
    mask_rate_before: float
    mask_rate_after: float
    basis: dict[str, float]

    @property
    def reason(self) -> str:
        """The proposal in a sentence."""
        moves = ", ".join(f"{move.statistic} {move.side} {move.before:.4g} to {move.after:.4g}" for move in self.moves)
        rates = f"mask rate {self.mask_rate_before:.3f} to {self.mask_rate_after:.3f}"
        return f"{moves}: {rates} over {self.n_sequences} sequences"

    def evidence(self) -> dict[str, Any]:
        """Return the evidence as a JSON-compatible document."""
        return {
            "controller": self.controller,
            "n_sequences": self.n_sequences,
            "mask_rate_before": self.mask_rate_before,
            "mask_rate_after": self.mask_rate_after,
            **self.basis,
            "moves": [asdict(move) | {"limit": move.limit and move.limit.value} for move in self.moves],
        }


ControllerResult = BoundProposal | NoChange


def adapted_name(anchor: Policy) -> str:
    """Return the name of the policies adapted from one; it is stable, since metrics have it as a label."""
    return f"{anchor.name.removesuffix(SUFFIX).removesuffix(CALIBRATED_SUFFIX)[:100]}{SUFFIX}"
