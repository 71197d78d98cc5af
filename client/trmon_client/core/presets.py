"""The presets: published acceptance rules at their default bounds, and how their keywords move them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trmon_client.core.criterion import Criterion, PairChoice
from trmon_client.core.sequence_statistics import PolicyError

CERTIFICATE_MARGIN = 1e-4
"""A lower bound of KL proves a violation only beyond this, in nats: what rounding can add to it."""

MAX_DELTA = 0.05
AVG_DELTA = 0.001
MAX_ABS_D = 0.5


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a caller moves; None keeps the preset's own."""

    delta: float | None = None
    lower: float | None = None
    upper: float | None = None

    def given(self) -> dict[str, float]:
        """Return those that are given, by name."""
        named = {"delta": self.delta, "lower": self.lower, "upper": self.upper}
        return {name: bound for name, bound in named.items() if bound is not None}


@dataclass(frozen=True, slots=True)
class Preset:
    """One preset: the keywords it takes, the criteria it makes of them, and who proposed it."""

    takes: tuple[str, ...]
    build: Callable[[Bounds], tuple[Criterion, ...]]
    source: str


def criteria(name: str, bounds: Bounds) -> tuple[Criterion, ...]:
    """Return a preset's criteria with the caller's bounds.

    Errors: PolicyError for a name that is no preset, and for a keyword it does not take.
    """
    if name in TOKEN_POLICIES:
        raise PolicyError(
            f"{name} is a token policy, which weighs tokens instead of accepting sequences; "
            f"token policies are not available yet, sequence policies are {', '.join(PRESETS)}"
        )
    if name not in PRESETS:
        raise PolicyError(f"no preset is called {name!r:.64}; there are {', '.join(PRESETS)}")
    preset = PRESETS[name]
    for keyword in bounds.given():
        if keyword not in preset.takes:
            raise PolicyError(f"{name} takes {' and '.join(preset.takes)}, not {keyword}")
    return preset.build(bounds)


def _trm_max(bounds: Bounds) -> tuple[Criterion, ...]:
    delta = MAX_DELTA if bounds.delta is None else bounds.delta
    certain = delta + CERTIFICATE_MARGIN
    return (
        Criterion("max_kl", upper=delta, where="kl_exact"),
        Criterion("max_kl", upper=certain, where="kl_lower_bound"),
        Criterion("max_binary_kl", upper=certain, where="kl_not_exact"),
        Criterion("max_abs_d", upper=MAX_ABS_D, where="kl_not_exact"),
    )


def _trm_avg(bounds: Bounds) -> tuple[Criterion, ...]:
    delta = AVG_DELTA if bounds.delta is None else bounds.delta
    return (
        Criterion("mean_kl", upper=delta, where="kl_exact"),
        Criterion("mean_k3", upper=delta, where="kl_not_exact"),
    )


def _trm(bounds: Bounds) -> tuple[Criterion, ...]:
    """`delta` moves the bound on the largest KL; the mean's stays."""
    return (*_trm_max(bounds), *_trm_avg(Bounds()))


def _one(criterion: Criterion, source: str) -> Preset:
    def build(bounds: Bounds) -> tuple[Criterion, ...]:
        lower = criterion.lower if bounds.lower is None else bounds.lower
        upper = criterion.upper if bounds.upper is None else bounds.upper
        return (replace(criterion, lower=lower, upper=upper),)

    return Preset(("lower", "upper"), build, source)


def _symmetric(criterion: Criterion, source: str) -> Preset:
    """A single k1 bound u means [1/u, u]."""

    def build(bounds: Bounds) -> tuple[Criterion, ...]:
        lower, upper = bounds.lower, bounds.upper
        if lower is None and upper is None:
            return (criterion,)
        checked = replace(criterion, lower=lower, upper=upper)
        if checked.lower is None and checked.upper is not None:
            return (replace(checked, lower=1 / checked.upper),)
        if checked.upper is None and checked.lower is not None:
            return (replace(checked, upper=1 / checked.lower),)
        return (checked,)

    return Preset(("lower", "upper"), build, source)


_ENGINE: PairChoice = "mismatch_or_primary"

PRESETS: dict[str, Preset] = {
    "trm_max": Preset(("delta",), _trm_max, "[TRM]"),
    "trm_avg": Preset(("delta",), _trm_avg, "[TRM]"),
    "trm": Preset(("delta",), _trm, "[TRM]"),
    "geo_mask": _one(Criterion("geo_ratio", _ENGINE, 0.99, 1.01), "[GEO]"),
    "seq_mis": _one(Criterion("seq_ratio", _ENGINE, upper=2.0), "[3P]"),
    "token_veto": _one(Criterion("min_ratio", _ENGINE, 1e-4), "[3P]"),
    "intellect3": _one(Criterion("min_ratio", _ENGINE, 1e-5), "[I3]"),
    "opsm": _one(Criterion("mean_k1", upper=0.1, where="advantage_negative"), "[OPSM]"),
    "seq_mean_k1": _symmetric(Criterion("geo_ratio", _ENGINE, 0.999, 1.001), "verl"),
    "seq_sum_k1": _symmetric(Criterion("seq_ratio", _ENGINE, 0.5, 2.0), "verl"),
    "seq_mean_k2": _one(Criterion("mean_k2", _ENGINE, upper=0.01), "verl"),
    "seq_mean_k3": _one(Criterion("mean_k3", _ENGINE, upper=0.01), "verl"),
    "seq_sum_k2": _one(Criterion("sum_k2", _ENGINE, upper=2.5), "verl"),
    "seq_sum_k3": _one(Criterion("sum_k3", _ENGINE, upper=2.5), "verl"),
    "seq_max_k2": _one(Criterion("max_k2", _ENGINE, upper=2.5), "verl"),
    "seq_max_k3": _one(Criterion("max_k3", _ENGINE, upper=2.5), "verl"),
}
"""Every sequence preset by name. Source: formulas, section 6."""

TOKEN_POLICIES = frozenset(("token_k1", "token_k2", "token_k3", "icepop", "tis", "seq_tis"))
"""Names of policies over tokens: recognised, so that asking for one is answered with what it is."""
