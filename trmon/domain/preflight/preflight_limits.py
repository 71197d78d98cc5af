"""How far two engines may differ and still pass a preflight."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightLimits:
    """The limits that a pair must keep beside having no finding; docs/preflight.md says what was measured for them.

    `max_abs_d`, nats: the largest |d|. `tv_p95`: the 95th percentile of the total variation of tokens. `equal_share`:
    the least share of log-probs that are equal; 1 asks for engines that are equal to the bit.
    """

    max_abs_d: float = 0.5
    tv_p95: float = 0.02
    equal_share: float = 0.0
