"""Input and output of a controller: the sample of a policy's statistics; a proposal of bounds, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, TypeAlias

import numpy as np

from trmon_client.api.policies import MoveInfo
from trmon_client.core.arrays import Array
from trmon_client.core.columns import Columns
from trmon_client.core.policies.criteria import NEEDS_PAIR, Criterion
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicySample:
    """The statistics of N valid, non-empty sequences for the C criteria of a policy.

    `statistics` [N, C] float64, logs for ratios, NaN if unknown; `applies` [N, C] bool: whether the criterion applies;
    `n_tokens` [N]; `kl_nats` [N], KL of the whole sequence, NaN unless it is exact; `n_invalid` counts invalid
    sequences, which are left out, since every policy rejects them.
    """

    statistics: Array
    applies: Array
    n_tokens: Array
    kl_nats: Array
    n_invalid: int

    def __len__(self) -> int:
        return len(self.n_tokens)

    @property
    def has_nan(self) -> bool:
        """Whether some log-probs are invalid, or a statistic of them is NaN."""
        return self.n_invalid > 0 or bool(np.isnan(self.statistics[self.applies]).any())

    @classmethod
    def of(cls, columns: Columns, policy: Policy) -> PolicySample:
        """Return the sample of a batch. Errors: PolicyError naming the missing argument, also without any pair."""
        if not columns.pairs and policy.reads_pair:
            raise PolicyError(f"the policy {NEEDS_PAIR}")
        compared = decide(columns, policy).compared
        read = [_read(columns, *pair) for pair in zip(policy.criteria, compared, strict=True)]
        is_exact = columns.kl_is == "exact" and "sum_kl" in columns
        kl = columns["sum_kl"] if is_exact else np.full(columns.n_sequences, math.nan)
        rows = (columns["n_tokens"] > 0) & (columns["n_invalid"] == 0)
        return cls(
            statistics=_stacked([statistics for statistics, _ in read], columns.n_sequences)[rows],
            applies=_stacked([applies for _, applies in read], columns.n_sequences).astype(bool)[rows],
            n_tokens=columns["n_tokens"][rows],
            kl_nats=kl[rows],
            n_invalid=int((columns["n_invalid"] > 0).sum()),
        )

    @classmethod
    def merge(cls, parts: Iterable[PolicySample]) -> PolicySample:
        """Return the sequences of all parts, in order. Args: parts: one or more, of the same criteria."""
        parts = list(parts)
        return cls(
            statistics=np.concatenate([part.statistics for part in parts]),
            applies=np.concatenate([part.applies for part in parts]),
            n_tokens=np.concatenate([part.n_tokens for part in parts]),
            kl_nats=np.concatenate([part.kl_nats for part in parts]),
            n_invalid=sum(part.n_invalid for part in parts),
        )


def policy_reads(policy: Policy) -> tuple[tuple[str, str, str | None], ...]:
    """Return the criteria of a policy without their bounds; samples with equal criteria can be merged."""
    return tuple((criterion.statistic, criterion.pair, criterion.where) for criterion in policy.criteria)


def _read(columns: Columns, criterion: Criterion, compared: Array | None) -> tuple[Array, Array]:
    if compared is None:
        nothing = np.zeros(columns.n_sequences)
        return nothing, nothing
    if not criterion.by_advantage:
        return compared, np.ones(columns.n_sequences)
    advantage = columns["advantage"]
    unknown = np.isnan(advantage)
    return np.where(unknown, math.nan, compared), unknown | criterion.has_sign(advantage)


def _stacked(rows: list[Array], n_sequences: int) -> Array:
    return np.stack(rows, axis=1) if rows else np.zeros((n_sequences, 0))


Side = Literal["lower", "upper"]
BoundPlace: TypeAlias = tuple[int, Side]
"""A bound of a policy: the index of its criterion, and its side."""
SIGNS: dict[Side, float] = {"lower": -1.0, "upper": 1.0}

INFINITE = 1e300
"""Replaces infinity, so that quantiles next to it are not NaN."""
MAX_LOG = 700.0
"""The largest log of a ratio that fits a float."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BoundTail:
    """One bound of a policy over a sample: a sequence is rejected if its value exceeds `reach`.

    Lower bounds are negated and ratios are logs, so every reach grows as its bound loosens. `values` [N] are -inf where
    the criterion does not apply; `sorted_values` [M] are the others.
    """

    place: BoundPlace
    reach: float
    values: Array
    sorted_values: Array

    def quantile(self, share: float) -> float:
        """Return the value that a share of the sequences exceeds."""
        return float(np.quantile(self.sorted_values, 1.0 - share))


def tails_of(sample: PolicySample, policy: Policy) -> tuple[BoundTail, ...]:
    """Return the tails of all bounds that apply to some sequence."""
    found = []
    for index, criterion in enumerate(policy.criteria):
        applies = sample.applies[:, index]
        for side, reach in reaches_of(criterion).items():
            values = np.clip(SIGNS[side] * sample.statistics[:, index], -INFINITE, INFINITE)
            if applies.any():
                beyond = np.where(applies, values, -math.inf)
                inside = np.sort(values[applies])
                found.append(BoundTail(place=(index, side), reach=reach, values=beyond, sorted_values=inside))
    return tuple(found)


def rejected_share(tails: Sequence[BoundTail], *, reaches: Sequence[float] | None = None) -> float:
    """Return the share of sequences beyond a reach of the tails, or beyond other reaches; NaN without a tail."""
    if not tails:
        return math.nan
    limits = [tail.reach for tail in tails] if reaches is None else reaches
    beyond = np.zeros(len(tails[0].values), bool)
    for tail, limit in zip(tails, limits, strict=True):
        beyond |= tail.values > limit
    return float(beyond.mean())


def reaches_of(criterion: Criterion) -> dict[Side, float]:
    """Return the reaches of the bounds of a criterion."""
    bounds: dict[Side, float | None] = {"lower": criterion.lower_compared, "upper": criterion.upper_compared}
    return {side: SIGNS[side] * bound for side, bound in bounds.items() if bound is not None}


def bound_of(criterion: Criterion, side: Side, *, reach: float) -> float:
    """Return the bound of a reach, in the units of the criterion."""
    compared = SIGNS[side] * reach
    return math.exp(min(compared, MAX_LOG)) if criterion.measured.is_ratio else compared


def with_reaches(policy: Policy, reaches: Mapping[BoundPlace, float], *, name: str) -> Policy:
    """Return the policy with new reaches for some bounds, by (criterion, side)."""
    bounds = {place: bound_of(policy.criteria[place[0]], place[1], reach=reach) for place, reach in reaches.items()}
    return with_bounds(policy, bounds, name=name)


def with_bounds(policy: Policy, bounds: Mapping[BoundPlace, float], *, name: str) -> Policy:
    """Return the policy with some new bounds, by (criterion, side)."""
    criteria = list(policy.criteria)
    for (index, side), bound in bounds.items():
        changed: dict[str, Any] = {side: bound}
        criteria[index] = replace(criteria[index], **changed)
    return replace(policy, name=name, criteria=tuple(criteria))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundProposal:
    """A policy that a controller proposes, with its evidence; mask rates are shares of the valid sequences."""

    controller: str
    policy: Policy
    moves: tuple[MoveInfo, ...]
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
            "moves": [move.document() for move in self.moves],
        }


ControllerResult = BoundProposal | NoChange


def adapted_name(anchor: Policy) -> str:
    """Return the name of the policies adapted from one; it is stable, since metrics have it as a label."""
    return f"{anchor.name.removesuffix(SUFFIX).removesuffix(CALIBRATED_SUFFIX)[:100]}{SUFFIX}"


MIN_SEQUENCES = 256
"""With fewer sequences the bound stays: a tail of 5% would have 12 sequences or less."""
MAX_SEQUENCES = 65_536
MAX_EVERY_STEPS = 1_000_000
"""The limit of `every_steps`: the worker keeps the steps since the last change."""


DEFAULT_RATE = 0.05
"""The share of sequences that bounds reject unless a setting or a calibration says otherwise."""


class AdaptationMode(Enum):
    """What happens to a controller's proposal: it is not made, only shown, or applied as a policy version."""

    OFF = "off"
    RECOMMEND = "recommend"
    APPLY = "apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationSetting:
    """The setting of a run's adaptation.

    `target_mask_rate` is a fraction, None for the default: 0.05, or a calibrated policy's own rate. A proposal uses the
    newest `window_sequences`, and with `apply` one is made every `every_steps`. A bound stays within [floor_factor,
    ceiling_factor] times the bound that a person, the trainer or trmon's default set; for ratios the factors apply to
    |log bound|. The limits of a calibrated policy are its calibrated bounds and its ceilings.
    Errors: ValueError naming the field.
    """

    mode: AdaptationMode = AdaptationMode.OFF
    target_mask_rate: float | None = None
    window_sequences: int = 4096
    every_steps: int = 16
    floor_factor: float = 1e-3
    ceiling_factor: float = 10.0

    def __post_init__(self) -> None:
        rate = DEFAULT_RATE if self.target_mask_rate is None else self.target_mask_rate
        self._check("target_mask_rate", 0 < rate <= 0.5, "above 0 and at most 0.5")
        allowed = f"between {MIN_SEQUENCES} and {MAX_SEQUENCES}"
        self._check("window_sequences", MIN_SEQUENCES <= self.window_sequences <= MAX_SEQUENCES, allowed)
        self._check("every_steps", 1 <= self.every_steps <= MAX_EVERY_STEPS, f"between 1 and {MAX_EVERY_STEPS}")
        self._check("floor_factor", 0 < self.floor_factor <= 1, "above 0 and at most 1")
        self._check("ceiling_factor", 1 <= self.ceiling_factor <= 1e6, "between 1 and 1e6")

    def _check(self, field: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise ValueError(f"{field} must be {allowed}, and is {getattr(self, field)}")


StepKey = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWindow:
    """Samples by step, oldest first: as few of the newest as contain `n_sequences`."""

    n_sequences: int
    parts: Mapping[StepKey, PolicySample] = field(default_factory=dict)

    @classmethod
    def of(cls, newest_first: Iterable[tuple[StepKey, PolicySample]], *, n_sequences: int) -> SampleWindow:
        """Return the window of a history; reads no more of it than fits."""
        kept: list[tuple[StepKey, PolicySample]] = []
        missing = n_sequences
        for step_key, sample in newest_first:
            kept.append((step_key, sample))
            missing -= len(sample)
            if missing <= 0:
                break
        return cls(n_sequences=n_sequences, parts=dict(reversed(kept)))

    def with_sample(self, step_key: StepKey, sample: PolicySample) -> SampleWindow:
        """Return the window with another sample, which replaces an earlier one of the same step."""
        parts = {**self.parts, step_key: sample}
        surplus = sum(len(part) for part in parts.values()) - self.n_sequences
        for oldest in list(parts):
            surplus -= len(parts[oldest])
            if surplus < 0:
                break
            del parts[oldest]
        return replace(self, parts=parts)

    def sample(self) -> PolicySample | None:
        """Return all samples as one; None if there are none."""
        return PolicySample.merge(self.parts.values()) if self.parts else None


def sample_of_reports(batch: Iterable[Columns], policy: Policy) -> PolicySample | None:
    """Return the sample of the reports of a batch; None without reports, or if they lack data that the policy needs."""
    try:
        parts = [PolicySample.of(columns, policy) for columns in batch]
    except PolicyError:
        return None
    return PolicySample.merge(parts) if parts else None
