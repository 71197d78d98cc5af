"""The faults of the second testbed: what each does at a severity, and which findings name it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

TEMPERATURES = (0.7, 0.9, 1.1, 1.2)
LARGEST_LAG = 24


class InjectedFault(Enum):
    """The kinds of runs: healthy at three scales of drift, and faults."""

    HEALTHY_SMALL = "healthy, k3 0.0005"
    HEALTHY_MIDDLE = "healthy, k3 0.002"
    HEALTHY_LARGE = "healthy, k3 0.005"
    QUANTISE = "quantise"
    ROUTER = "router"
    STALE = "stale"
    STALE_RAMP = "stale, ramped"
    TEMPERATURE = "temperature"
    TOP_P = "top-p"
    PADDING = "padding"
    SHIFT = "shift"
    NAN = "NaN"
    LR = "lr"
    ENTROPY = "entropy"
    REWARD = "reward"
    LENGTH = "length"
    TWO = "quantise + entropy"

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is injected."""
        return self in HEALTHY_NOISE


HEALTHY_NOISE = {
    InjectedFault.HEALTHY_SMALL: 0.06,
    InjectedFault.HEALTHY_MIDDLE: 0.12,
    InjectedFault.HEALTHY_LARGE: 0.2,
}
"""Standard deviation of the noise on the engine's logits, as of kernels that sum in another order."""

RIGHT_CAUSES = {
    InjectedFault.QUANTISE: "engine_mismatch moe_routing",
    InjectedFault.ROUTER: "moe_routing engine_mismatch",
    InjectedFault.STALE: "stale_rollouts",
    InjectedFault.STALE_RAMP: "stale_rollouts",
    InjectedFault.TEMPERATURE: "temperature",
    InjectedFault.TOP_P: "support_shift",
    InjectedFault.PADDING: "corrupt_logprobs",
    InjectedFault.SHIFT: "corrupt_logprobs",
    InjectedFault.NAN: "not_a_number",
    InjectedFault.LR: "step_too_large clip_saturation",
    InjectedFault.ENTROPY: "entropy_explosion entropy_collapse",
    InjectedFault.REWARD: "reward_collapse reward_decline no_learning_signal",
    InjectedFault.LENGTH: "length_collapse length_hacking length_surge",
    InjectedFault.TWO: "engine_mismatch moe_routing entropy_explosion entropy_collapse",
}
"""The findings that lead to the fault."""


@dataclass(frozen=True, slots=True)
class FaultEffect:
    """What a fault changes at one step; the defaults change nothing."""

    engine_noise: float = 0.0
    weight_bits: int | None = None
    router_noise: float = 0.0
    lag: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    padded_share: float = 0.0
    is_shifted: bool = False
    is_nan: bool = False
    lr_factor: float = 1.0
    entropy_weight: float = 0.0
    broken_verdicts: float = 0.0
    length_bonus: float = 0.0


def effect_of(fault: InjectedFault, severity: float, *, seed: int) -> FaultEffect:
    """Return what a fault does at a severity in [0, 1]; the seed picks among its variants."""
    if fault.is_healthy:
        return FaultEffect(engine_noise=HEALTHY_NOISE[fault])
    base = FaultEffect(engine_noise=HEALTHY_NOISE[InjectedFault.HEALTHY_SMALL])
    if severity <= 0.0:
        return base
    return replace(base, **_changes(fault, severity, seed))  # type: ignore[arg-type]


def _changes(fault: InjectedFault, severity: float, seed: int) -> dict[str, object]:
    sign = 1.0 if seed % 2 else -1.0
    temperature = TEMPERATURES[seed % len(TEMPERATURES)]
    changes: dict[InjectedFault, dict[str, object]] = {
        InjectedFault.QUANTISE: {"weight_bits": round(8 - 4 * severity)},
        InjectedFault.ROUTER: {"router_noise": 2.0 * severity},
        InjectedFault.STALE: {"lag": LARGEST_LAG},
        InjectedFault.STALE_RAMP: {"lag": max(1, round(LARGEST_LAG * severity))},
        InjectedFault.TEMPERATURE: {"temperature": temperature},
        InjectedFault.TOP_P: {"top_p": 0.9},
        InjectedFault.PADDING: {"padded_share": 0.5 * severity},
        InjectedFault.SHIFT: {"is_shifted": True},
        InjectedFault.NAN: {"is_nan": True},
        InjectedFault.LR: {"lr_factor": 1.0 + 29.0 * severity},
        InjectedFault.ENTROPY: {"entropy_weight": sign * 2.0 * severity},
        InjectedFault.REWARD: {"broken_verdicts": 0.8 * severity},
        InjectedFault.LENGTH: {"length_bonus": 4.0 * severity},
    }
    if fault is InjectedFault.TWO:
        return changes[InjectedFault.QUANTISE] | changes[InjectedFault.ENTROPY]
    return changes[fault]
