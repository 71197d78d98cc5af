"""Conditions of findings over a history, in three-valued logic, evaluated for each step.

Rules evaluate one row and name the comparison that decided; a diagnosis evaluates the history and names them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trmon.domain.diagnosis import features
from trmon.domain.diagnosis.history import DEFAULT_PAIRS, Array, History
from trmon.domain.finding import Finding, FindingForm
from trmon.domain.rules.condition import ThresholdSide, Truth
from trmon_client.core.column_schema import Pair

_PAIRS: dict[str, str] = {
    "mismatch": "pass rollout_logprobs and old_logprobs to log_batch",
    "total": "pass rollout_logprobs and logprobs to log_batch",
    "staleness": "pass old_logprobs and logprobs to log_batch, once for each update",
}
_VERSIONS = "pass versions and trainer_version to log_batch"
_SIGNALS: dict[str, str] = {
    "engine_lag": f"{_VERSIONS}, and old_version if pi_old is not of the newest weights",
    "staleness_lag": _VERSIONS,
    "staleness_growth": _PAIRS["staleness"],
    "clip_fraction": "pass advantages to log_batch, once for each update",
    "clip_fraction_rise": f"pass advantages to log_batch for {features.MIN_RISE_ROWS + features.MEDIAN_ROWS} steps",
    "response_length_growth": "105 steps of history",
    "ess_seq_relative": "a history that includes the first 20 steps of the run, the baseline",
    "grad_norm_relative": 'log_scalars(step, {"grad_norm": ...}) for 21 steps',
    "zero_variance_groups_least": f"pass rewards and group_ids to log_batch for {features.FLAT_ROWS} steps",
    "router_flip_rate": 'log_scalars(step, {"router_flip_rate": ...}); only mixtures of experts have one',
    "ratio_shift": f"n_tokens with ratio_mean and is_weight_std: {_PAIRS['mismatch']}",
    "k3_excess": f"n_tokens and kl_k2 with kl_k1 and kl_k3: {_PAIRS['mismatch']}",
    "reward_collapse": 'pass rewards to log_batch, or log_scalars(step, {"reward": ...}), for 21 steps',
    "reward_decline": 'pass rewards to log_batch, or log_scalars(step, {"reward": ...}), for 40 steps',
    "entropy_relative": 'pass log-probs to log_batch, or log_scalars(step, {"entropy": ...}), for 20 steps',
    "entropy_rise": 'pass log-probs to log_batch, or log_scalars(step, {"entropy": ...}), for 21 steps',
    "response_length_relative": "the lengths of 20 steps",
    "length_limit_ema": "pass truncated to log_batch",
    "length_limit_rise": "pass truncated to log_batch for 21 steps",
    "reward_length_corr_ema": "pass rewards to log_batch",
    "effective_signal_relative": "pass rewards and group_ids to log_batch for 40 steps",
    "version_span_max": "pass versions of each token to log_batch",
    "version_span_rise": "pass versions of each token to log_batch for 21 steps",
    "router_flip_relative": 'log_scalars(step, {"router_flip_rate": ...}) for 20 steps; only MoE models have one',
    "router_replay": 'init(config={"router_replay": true}) where routing is replayed',
    "nonfinite_steps": "a step with scalars",
    "temperature_slope": f"2,000 tokens: {_PAIRS['mismatch']}",
    "temperature_corr": f"2,000 tokens: {_PAIRS['mismatch']}",
    "ln_e_value": _PAIRS["mismatch"],
    "mu_zero_saturated_share": "pass rollout_logprobs to log_batch; without a log-prob of exactly 0 there is no share",
    "mask_rate:geo_mask": "the mask rate of geo_mask, which the service computes where it is active or a shadow",
}
_REWARDS = ("reward_ema", "zero_variance_groups")
_ENTROPY = ("entropy", *(f"{pair}_kl_k3" for pair in _PAIRS))
_LENGTHS = ("n_tokens", "response_length_mean", "response_length_median", "kl_k3")
INPUTS: dict[str, tuple[str, ...]] = {
    "clip_fraction_rise": ("clip_fraction",),
    "grad_variance_rise": ("grad_variance",),
    "grad_norm_relative": ("grad_norm",),
    "response_length_growth": _LENGTHS,
    "response_length_relative": _LENGTHS,
    "ess_seq_relative": ("ess_token",),
    "zero_variance_groups_least": ("zero_variance_groups",),
    "reward_collapse": _REWARDS,
    "reward_decline": _REWARDS,
    "entropy_relative": _ENTROPY,
    "entropy_rise": _ENTROPY,
    "length_limit_rise": ("length_limit_ema",),
    "effective_signal_relative": ("zero_variance_groups",),
    "version_span_rise": ("version_span_max",),
    "router_flip_relative": ("router_flip_rate",),
    "temperature_slope": ("kl_k3",),
    "temperature_corr": ("kl_k3",),
}
"""Signals that need a history, and inputs of which one is enough for it to come with more steps."""
_WHEN_NAN: dict[str, str] = {
    "ratio_shift": "ratios too heavy-tailed for their mean to be measured; look at the other findings first",
    "prob_pearson": "probabilities that hardly vary have no correlation; use more tokens, or harder prompts",
    "reward_length_corr_ema": "rewards or lengths that are equal in every step have no correlation",
}


def how_to_provide(signal: str, *, sent: bool) -> str:
    """Return how to provide a signal; `sent`: the signal was sent, but all its values are NaN."""
    prefix, _, rest = signal.partition("_")
    stem = rest if prefix in _PAIRS and signal not in _SIGNALS else signal
    if sent and stem in _WHEN_NAN:
        return _WHEN_NAN[stem]
    return _SIGNALS.get(stem) or _PAIRS.get(prefix, _PAIRS["mismatch"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A signal beyond its threshold: its newest value beyond it, and the step since which it has been.

    `away_from` is the point to which a distance refers, such as 1 for a ratio. `rules_out` is true if the value is a
    usual one, which counts because it excludes another cause: its threshold is no limit to respect.
    """

    signal: str
    value: float
    bound: ThresholdSide
    threshold: float
    since_step: int
    away_from: float | None = None
    rules_out: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that a finding needs but that is unknown, and how to provide it.

    `more_steps` is true if its inputs are sent, and only the history is too short.
    """

    signal: str
    provide: str
    more_steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One finding: true with its evidence and first step, unknown with the missing signals, or false."""

    finding: Finding
    truth: Truth
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    since_step: int | None = None

    @property
    def form(self) -> FindingForm | None:
        """Which of its forms the finding has, by the side on which its evidence is; None if it has no forms."""
        if self.finding is not Finding.ENTROPY:
            return None
        bounds = {item.bound for item in self.evidence if item.signal == "entropy_relative"}
        return _ENTROPY_FORMS[bounds.pop()] if len(bounds) == 1 else None

    @property
    def needs_only_steps(self) -> bool:
        """Whether all that it lacks comes with more steps."""
        return bool(self.missing) and all(gap.more_steps for gap in self.missing)


_ENTROPY_FORMS = {
    ThresholdSide.BELOW: FindingForm.ENTROPY_COLLAPSE,
    ThresholdSide.ABOVE: FindingForm.ENTROPY_EXPLOSION,
}


FALSE, UNKNOWN, TRUE = 0, 1, 2
"""Kleene's truth values, ordered so that "and" is the minimum and "or" the maximum."""
_TRUTHS = {FALSE: Truth.FALSE, UNKNOWN: Truth.UNKNOWN, TRUE: Truth.TRUE}


@dataclass(frozen=True, slots=True)
class Quorum:
    """How many of the newest `rows` rows must be beyond a limit: a share of them, and at least `least`.

    The signal must be known in as many rows, so one value among unknown ones is no finding.
    """

    rows: int
    share: float
    least: int

    def needed(self, n: int) -> Array:
        """Return how many rows are needed, with each of n rows as the newest, [n]."""
        available = np.minimum(np.arange(1, n + 1), self.rows)
        return np.minimum(available, np.maximum(self.least, np.ceil(self.share * available)))

    def count(self, marked: Array) -> Array:
        """Return how many of the newest rows are marked, with each row as the newest, [n]."""
        total = np.cumsum(np.append(0, marked))
        ends = np.arange(1, len(total))
        return total[ends] - total[np.maximum(0, ends - self.rows)]


SUSTAINED = Quorum(rows=5, share=0.5, least=1)
"""In at least half of 5 rows, so that one noisy step makes no finding and one quiet step ends none."""
RECURRING = Quorum(rows=20, share=0.0, least=2)
"""Twice in 20 rows, for events that recur."""
HOLDING = Quorum(rows=3, share=1.0, least=3)
"""In three rows running."""
LASTING = Quorum(rows=20, share=1.0, least=20)
"""In twenty rows running, so that a slow decline is told from noise."""
ONCE = Quorum(rows=20, share=0.0, least=1)
"""Once in 20 rows, for events that must never happen."""


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """The result of a condition: its truth by step, [n], and the evidence and the missing signals of the newest step.

    `since` is the index of the step since which it has held without a break; 0 if it does not hold.
    """

    truths: Array
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    since: int = 0

    @property
    def truth(self) -> Truth:
        """The truth at the newest step."""
        return _TRUTHS[int(self.truths[-1])]


class HistoryCondition(Protocol):
    """A condition over a history."""

    def read(self, history: History) -> HistoryVerdict:
        """Return the result for each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimit:
    """A signal, or its distance from a point, strictly beyond a threshold in as many rows as the quorum requires.

    A stem means the first of `pairs` that the history has; an `optional` signal does not count as missing. Distances
    have the bound ABOVE. A limit that `rules_out` holds for usual values, which exclude another cause.
    """

    signal: str
    bound: ThresholdSide
    threshold: float
    away_from: float | None = None
    pairs: tuple[Pair, ...] = DEFAULT_PAIRS
    quorum: Quorum = SUSTAINED
    optional: bool = False
    rules_out: bool = False

    def read(self, history: History) -> HistoryVerdict:
        """Return whether the signal is beyond the threshold; NaN is unknown."""
        name, values = history.find(self.signal, pairs=self.pairs)
        if self.optional and not history.has(name):
            return HistoryVerdict(np.full(len(history), FALSE))
        beyond, known = self._beyond(values), ~np.isnan(values)
        truths = self._truths(beyond, known)
        if truths[-1] == UNKNOWN:
            return HistoryVerdict(truths, missing=(_missing(name, history),))
        if truths[-1] == FALSE:
            return HistoryVerdict(truths)
        since = self._since(truths, beyond)
        return HistoryVerdict(truths, (self._evidence(name, history, values, beyond, since),), since=since)

    def _beyond(self, values: Array) -> Array:
        """Return the rows beyond the threshold; comparing with two bounds avoids the rounding of a difference."""
        if self.away_from is not None:
            return (values > self.away_from + self.threshold) | (values < self.away_from - self.threshold)
        return values > self.threshold if self.bound is ThresholdSide.ABOVE else values < self.threshold

    def _truths(self, beyond: Array, known: Array) -> Array:
        needed = self.quorum.needed(len(known))
        holds = np.where(self.quorum.count(beyond) >= needed, TRUE, FALSE)
        return np.where(self.quorum.count(known) >= needed, holds, UNKNOWN)

    def _since(self, truths: Array, beyond: Array) -> int:
        """Return the first row that the quorum counted, which is before the row at which it was reached."""
        start = _start(truths)
        first = max(0, start + 1 - self.quorum.rows)
        return first + int(np.argmax(beyond[first : start + 1]))

    def _evidence(self, name: str, history: History, values: Array, beyond: Array, since: int) -> Evidence:
        newest = int(np.flatnonzero(beyond)[-1])
        return Evidence(
            signal=name,
            value=float(values[newest]),
            bound=self.bound,
            threshold=self.threshold,
            since_step=int(history.steps[since]),
            away_from=self.away_from,
            rules_out=self.rules_out,
        )


@dataclass(frozen=True, slots=True)
class HistoryAnyOf:
    """True if one part is true; unknown if none is true and one is unknown."""

    parts: tuple[HistoryCondition, ...]

    def read(self, history: History) -> HistoryVerdict:
        """Return the combined result, with the evidence of the true parts."""
        found = [part.read(history) for part in self.parts]
        return _combined(found, np.maximum.reduce([verdict.truths for verdict in found]), since=min)


@dataclass(frozen=True, slots=True)
class HistoryAllOf:
    """True if every part is true; false if one is false."""

    parts: tuple[HistoryCondition, ...]

    def read(self, history: History) -> HistoryVerdict:
        """Return the combined result, with the evidence of all parts if it holds."""
        found = [part.read(history) for part in self.parts]
        return _combined(found, np.minimum.reduce([verdict.truths for verdict in found]), since=max)


@dataclass(frozen=True, slots=True)
class HistoryNot:
    """True if its part is false; it has no evidence."""

    part: HistoryCondition

    def read(self, history: History) -> HistoryVerdict:
        """Return the negated result of the part."""
        found = self.part.read(history)
        truths = TRUE - found.truths
        return HistoryVerdict(truths, missing=found.missing, since=_start(truths) if truths[-1] == TRUE else 0)


@dataclass(frozen=True, slots=True)
class HistoryUnless:
    """True unless its part is true: a part that is unknown does not count; it has no evidence and no start."""

    part: HistoryCondition

    def read(self, history: History) -> HistoryVerdict:
        """Return the result for each step."""
        return HistoryVerdict(np.where(self.part.read(history).truths == TRUE, FALSE, TRUE))


def _combined(found: list[HistoryVerdict], truths: Array, *, since: Callable[[list[int]], int]) -> HistoryVerdict:
    if truths[-1] == UNKNOWN:
        parts = [verdict for verdict in found if verdict.truth is Truth.UNKNOWN]
        return HistoryVerdict(truths, missing=_deduplicated([gap for verdict in parts for gap in verdict.missing]))
    if truths[-1] == FALSE:
        return HistoryVerdict(truths)
    held = [verdict for verdict in found if verdict.truth is Truth.TRUE]
    evidence = tuple(item for verdict in held for item in verdict.evidence)
    return HistoryVerdict(truths, evidence, since=since([verdict.since for verdict in held]))


def _deduplicated(missing: list[Missing]) -> tuple[Missing, ...]:
    return tuple(dict.fromkeys(missing))


def _start(truths: Array) -> int:
    """Return the first row since which the condition has held without a break."""
    broken = np.flatnonzero(truths != TRUE)
    return int(broken[-1]) + 1 if len(broken) else 0


def _missing(name: str, history: History) -> Missing:
    """Return a signal as missing; one that is computed from inputs which are sent needs more steps only."""
    inputs = [history.find(signal)[1] for signal in INPUTS.get(name, ())]
    is_sent = any(np.isfinite(values).any() for values in inputs)
    return Missing(name, how_to_provide(name, sent=history.has(name)), more_steps=is_sent)
