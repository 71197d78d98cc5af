"""A policy: an AND of criteria with a name, and the content hash by which reports and the service call it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trmon_client.core.criterion import Criterion
from trmon_client.core.presets import Bounds, criteria
from trmon_client.core.ratios import RATIOS
from trmon_client.core.schema import PAIRS
from trmon_client.core.sequence_statistics import PolicyError

MAX_CRITERIA = 32
MAX_NAME_LENGTH = 128


@dataclass(frozen=True)
class Policy:
    """Which sequences may teach: those that meet every criterion.

    Errors: PolicyError for a name or a number of criteria out of bounds.
    """

    name: str
    criteria: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_NAME_LENGTH or not self.name.isprintable():
            raise PolicyError(f"name must be text of 1 to {MAX_NAME_LENGTH} printable characters")
        if not 0 < len(self.criteria) <= MAX_CRITERIA:
            raise PolicyError(f"a policy has 1 to {MAX_CRITERIA} criteria, and this one {len(self.criteria)}")

    @classmethod
    def parse(cls, policy: str | Mapping[str, Any]) -> Policy:
        """Return the policy of a preset's name or of a spec.

        Errors: PolicyError saying what is wrong and what is allowed.
        """
        if isinstance(policy, str):
            return preset(policy)
        if not isinstance(policy, Mapping):
            raise PolicyError(f"a policy must be a preset's name or a mapping, and is {type(policy).__name__}")
        if policy.keys() != {"name", "criteria"}:
            keys = ", ".join(str(key)[:64] for key in list(policy)[:8])
            raise PolicyError(f"a policy has the keys name and criteria, and this one {keys or 'none'}")
        specs = policy["criteria"]
        if not isinstance(specs, list | tuple):
            raise PolicyError(f"criteria must be a list, and is {type(specs).__name__}")
        if len(specs) > MAX_CRITERIA:
            raise PolicyError(f"a policy has 1 to {MAX_CRITERIA} criteria, and this one {len(specs)}")
        return cls(policy["name"], tuple(_criterion(index, spec) for index, spec in enumerate(specs)))

    def spec(self) -> dict[str, Any]:
        """Return the canonical form, JSON-able: `parse(spec())` is this policy."""
        return {"name": self.name, "criteria": [criterion.spec() for criterion in self.criteria]}

    @cached_property
    def hash(self) -> str:
        """The 32 hex digits of BLAKE2b over the canonical JSON of the spec."""
        canonical = json.dumps(self.spec(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The arguments of `statistics.columns` without which `decide` raises, beside two of the log-probs."""
        return tuple(dict.fromkeys(argument for criterion in self.criteria for argument in _needs(criterion)))


def preset(name: str, *, delta: float | None = None, lower: float | None = None, upper: float | None = None) -> Policy:
    """Return a published policy, its bounds moved by the keywords it takes.

    Returns: named as the preset at default bounds, else with the bounds: `trm_max(delta=0.02)`.
    Errors: PolicyError for an unknown name, a keyword it does not take, or a bound out of range.
    Source: formulas, section 6.
    """
    bounds = Bounds(delta, lower, upper)
    moved = criteria(name, bounds)
    if moved == criteria(name, Bounds()):
        return Policy(name, moved)
    return Policy(f"{name}({', '.join(f'{key}={bound:g}' for key, bound in bounds.given().items())})", moved)


def _criterion(index: int, spec: Mapping[str, Any]) -> Criterion:
    try:
        return Criterion.parse(spec)
    except PolicyError as error:
        raise PolicyError(f"criteria[{index}]: {error}") from None


def _needs(criterion: Criterion) -> tuple[str, ...]:
    """A criterion that only applies to exact or bounded KL needs nothing: without logits it does not apply."""
    pair = RATIOS[criterion.pair] if criterion.pair in PAIRS else ()
    if criterion.where in ("kl_exact", "kl_lower_bound"):
        return pair
    if criterion.where == "advantage_negative":
        return (*pair, *criterion.measured.needs, "advantages")
    return (*pair, *criterion.measured.needs)
