"""Calibration: a policy whose bounds start at their ceilings until the service has measured the run.

Decisions read the criteria alone. The service derives the calibrated bounds and sends them as a plain policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trmon_client.core.policies.criteria import Criterion, checked_bound
from trmon_client.core.policies.sequence_statistics import STATISTICS, PolicyError

RATE = 0.01
SEQUENCES = 2048
MIN_SEQUENCES, MAX_SEQUENCES = 256, 65_536
CEILINGS: Mapping[str, float] = {
    "mean_k3": 0.02,
    "mean_kl": 0.02,
    "max_binary_kl": 1.0,
    "max_kl": 1.0,
    "max_abs_d": 5.0,
}
"""The ceilings of upper bounds by statistic. Source: formulas, section 6."""
CEILING_FACTOR = 10.0
"""The ceiling of other statistics, times the published bound; for ratios times its log."""
MAX_LOG_RATIO = 700.0

Limits = tuple[float | None, float | None]
"""A lower and an upper bound."""

_KEYS = ("rate", "sequences", "ceiling", "floor")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The order to calibrate a policy: the tail's share, the sample, and the tightest bounds of each criterion.

    `rate` is the share of a statistic beyond its quantile q (the bound is 2q), `sequences` how many are measured at
    least, `floor` the bounds below which calibration never goes: the published ones. The ceilings are the bounds of
    the policy's criteria.
    Errors: PolicyError naming the key.
    Source: formulas, section 6.
    """

    floor: tuple[Limits, ...]
    rate: float = RATE
    sequences: int = SEQUENCES

    def __post_init__(self) -> None:
        if isinstance(self.rate, bool) or not isinstance(self.rate, int | float) or not 0 < self.rate <= 0.5:
            raise PolicyError("calibrate.rate must be a number above 0 and at most 0.5")
        is_count = isinstance(self.sequences, int) and not isinstance(self.sequences, bool)
        if not (is_count and MIN_SEQUENCES <= self.sequences <= MAX_SEQUENCES):
            raise PolicyError(f"calibrate.sequences must be a whole number from {MIN_SEQUENCES} to {MAX_SEQUENCES}")

    def spec(self) -> dict[str, Any]:
        """Return the canonical spec, with the floors instead of `ceiling`."""
        floor = [{"lower": lower, "upper": upper} for lower, upper in self.floor]
        return {"rate": self.rate, "sequences": self.sequences, "floor": floor}


def parse_calibration(spec: Any, criteria: tuple[Criterion, ...]) -> tuple[tuple[Criterion, ...], Calibration]:
    """Return the criteria with their bounds at the ceilings, and the calibration.

    Args: spec: a mapping of `rate`, `sequences` and `ceiling`, all optional, next to criteria with their tightest
    bounds; or, as in a canonical spec, with `floor` beside criteria whose bounds are the ceilings. `ceiling` is one
    number, or a mapping by statistic; for ratios, u means [1/u, u]. With `ceiling`, criteria of the primary pair read
    `mismatch` where there is one.
    Errors: PolicyError naming the key.
    """
    if not isinstance(spec, Mapping):
        raise PolicyError(f"calibrate must be a mapping, got {type(spec).__name__}")
    unknown = [str(key)[:64] for key in spec if key not in _KEYS]
    if unknown:
        raise PolicyError(f"calibrate: unknown key {', '.join(unknown[:4])}; allowed: {', '.join(_KEYS[:3])}")
    if not criteria:
        raise PolicyError("calibrate needs criteria; token rules alone have no bounds that the service can measure")
    given = {"rate": spec.get("rate", RATE), "sequences": spec.get("sequences", SEQUENCES)}
    if "floor" in spec:
        if "ceiling" in spec:
            raise PolicyError(
                "calibrate takes ceiling or floor: with floor, the bounds of the criteria are the ceilings"
            )
        floors = spec["floor"]
        if not isinstance(floors, list | tuple) or len(floors) != len(criteria):
            raise PolicyError(f"calibrate.floor must be a list of {len(criteria)} bounds, one per criterion")
        limits = tuple(_parse_limits(limits, criterion) for limits, criterion in zip(floors, criteria, strict=True))
        return criteria, Calibration(floor=limits, **given)
    ceilings = _parse_ceiling(spec.get("ceiling"), criteria)
    # Other pairs are never calibrated: staleness grows with warm-up and the update index.
    measured = (replace(c, pair="mismatch_or_primary") if c.pair == "primary" else c for c in criteria)
    widened = tuple(_at_ceiling(criterion, ceilings.get(criterion.statistic)) for criterion in measured)
    floor = tuple((criterion.lower, criterion.upper) for criterion in criteria)
    return widened, Calibration(floor=floor, **given)


def _parse_limits(limits: Any, criterion: Criterion) -> Limits:
    if not isinstance(limits, Mapping) or limits.keys() - {"lower", "upper"}:
        raise PolicyError("calibrate.floor: each entry must be a mapping of lower and upper")
    tight = replace(criterion, lower=limits.get("lower"), upper=limits.get("upper"))
    for side, loose, bound in (("lower", tight.lower, criterion.lower), ("upper", criterion.upper, tight.upper)):
        if (loose is None) != (bound is None) or (loose is not None and bound is not None and loose < bound):
            raise PolicyError(
                f"calibrate.floor: {criterion.statistic} {side} must be as tight as its ceiling or tighter"
            )
    return tight.lower, tight.upper


def _parse_ceiling(ceiling: Any, criteria: tuple[Criterion, ...]) -> dict[str, float]:
    """Return the ceilings by statistic; empty for the defaults."""
    bounded = {criterion.statistic for criterion in criteria}
    if ceiling is None:
        return {}
    if not isinstance(ceiling, Mapping):
        ceiling = dict.fromkeys(bounded, ceiling)
    found = {}
    for name, bound in ceiling.items():
        if name not in bounded:
            raise PolicyError(f"calibrate.ceiling: the policy bounds {', '.join(sorted(bounded))}, not {name!r:.64}")
        checked = checked_bound("ceiling", bound, of=name, is_ratio=STATISTICS[name].is_ratio)
        if checked is None:
            raise PolicyError(f"calibrate.ceiling: {name} must be a number")
        found[name] = checked
    return found


def _at_ceiling(criterion: Criterion, given: float | None) -> Criterion:
    """Return the criterion with its bounds at the ceiling. Errors: PolicyError for a ceiling below the bound."""

    def widest(bound: float | None, sign: float) -> float | None:
        if bound is None:
            return None
        reach = sign * _ceiling(criterion, sign * bound, given)
        return math.exp(reach) if criterion.measured.is_ratio else reach

    return replace(criterion, lower=widest(criterion.lower_compared, -1.0), upper=widest(criterion.upper_compared, 1.0))


def _ceiling(criterion: Criterion, reach: float, given: float | None) -> float:
    """Return the largest reach of a bound: its distance from zero, of the log for ratios."""
    if given is None:
        published = CEILINGS.get(criterion.statistic)
        widest = max(reach, reach * CEILING_FACTOR if published is None else published)
    else:
        widest = abs(math.log(given)) if criterion.measured.is_ratio else given
        if widest < reach:
            raise PolicyError(f"calibrate.ceiling of {criterion.statistic} must not be tighter than its bound")
    return min(widest, MAX_LOG_RATIO) if criterion.measured.is_ratio else widest
