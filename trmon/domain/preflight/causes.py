"""The zero-update test: with equal weights, the same tokens must have the same log-probs in both engines.

Source: VeXact, arXiv 2605.14220; formulas, sections 2, 5 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.analysis.distribution import WorstToken, worst_tokens
from trmon.domain.diagnosis.conditions import Evidence, Observation
from trmon.domain.diagnosis.criteria import Thresholds
from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.remedies import REMEDIES, RenderedRemedy
from trmon.domain.errors import InvalidInput
from trmon.domain.finding import Finding
from trmon.domain.preflight.alignment import Alignment, align
from trmon.domain.preflight.token_pairs import (
    EngineScores,
    TokenPairs,
    TvIs,
    has_no_probability,
    is_impossible,
    token_variation,
    trainer_mass_outside,
)
from trmon.domain.rules.condition import ThresholdSide
from trmon.domain.signals.run_features import RunFeatures
from trmon_client.core.reduction.sequences import SATURATED_BELOW


class PreflightCause(Enum):
    """Why two engines with equal weights do not give the same tokens the same log-probs."""

    RETOKENISED = "retokenised"
    PADDING = "padding"
    SHIFTED = "shifted"
    MISSING = "missing"
    ZEROS = "zeros"
    CORRUPT = "corrupt"
    SUPPORT = "support"
    TEMPERATURE = "temperature"
    ENGINES = "engines"

    @property
    def finding(self) -> Finding:
        """The finding that this cause becomes in a run."""
        return next((finding for finding, cause in _CAUSES.items() if cause is self), Finding.CORRUPT_LOGPROBS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause that was found: in words, with its evidence, what to do first, and the remedy of its finding."""

    cause: PreflightCause
    detail: str
    evidence: tuple[Evidence, ...] = ()
    remedy: RenderedRemedy

    @classmethod
    def of(cls, cause: PreflightCause, detail: str, evidence: tuple[Evidence, ...] = ()) -> FoundCause:
        """Return a cause with the remedy of its finding."""
        return cls(cause=cause, detail=detail, evidence=evidence, remedy=REMEDIES[cause.finding].render())

    @property
    def fix(self) -> str:
        """What to change first: that of the cause itself where it is more specific than its finding."""
        return _FIXES.get(self.cause, self.remedy.fix)


_FIXES = {
    PreflightCause.RETOKENISED: "Pass the rollout's token ids to the trainer instead of its text, and add special "
    "tokens once.",
    PreflightCause.PADDING: "Use one mask on both sides: the same padding side, and the end-of-sequence token counted "
    "by both or by neither.",
    PreflightCause.SHIFTED: "Align the log-probs: the logits at position t - 1 give the log-prob of the token at t.",
    PreflightCause.MISSING: "Have the engine return a log-prob for every sampled token, as a natural logarithm.",
    PreflightCause.ZEROS: "Fill no gaps with 0.0, which says that a token was certain: mask these positions, or have "
    "the engine return their log-probs.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightLimits:
    """The limits that a pair must keep besides having no finding; docs/preflight.md says what was measured for them.

    `max_abs_d`, nats: the largest |d|. `tv_p95`: the 95th percentile of the total variation of tokens. `equal_share`:
    the least share of log-probs that are equal; 1 asks for engines that are equal to the bit.
    """

    max_abs_d: float = 0.5
    tv_p95: float = 0.02
    equal_share: float = 0.0


SIGNALS = ("kl_k1", "kl_k3", "prob_pearson", "ppl_ratio", "ratio_mean", "temperature_near", "temperature_far")
N_WORST = 10
_CAUSES = {
    Finding.CORRUPT_LOGPROBS: PreflightCause.CORRUPT,
    Finding.TEMPERATURE: PreflightCause.TEMPERATURE,
    Finding.SUPPORT_SHIFT: PreflightCause.SUPPORT,
    Finding.ENGINE_MISMATCH: PreflightCause.ENGINES,
}
"""The findings that are causes at equal weights, the ones that distort others first."""
_ASSUMES_SAMPLER = (Finding.CORRUPT_LOGPROBS, Finding.SUPPORT_SHIFT)
_CONSEQUENCES = (Finding.VARIANCE_BLOWUP, Finding.MODERATE_DRIFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """How many tokens could not be compared, by reason and engine."""

    rollout_missing: int
    trainer_missing: int
    rollout_no_probability: int
    trainer_no_probability: int
    rollout_zeros: int
    trainer_zeros: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightResult:
    """The result of a preflight: measurements over the tokens that could be compared, and the causes.

    `equal_share` compares as float32; `max_abs_d` and d in nats; `tv_p95`: the 95th percentile of the tokens' total
    variation; `signals`: those of the pair mismatch by stem; `unknown`: findings that need more tokens.
    """

    sequences: int
    tokens: int
    equal_share: float
    max_abs_d: float
    tv_p95: float
    tv_is: TvIs
    trainer_mass_outside: float | None
    temperature_slope: float
    temperature_corr: float
    signals: dict[str, float]
    alignment: Alignment
    counts: TokenCounts
    causes: tuple[FoundCause, ...]
    unknown: tuple[Observation, ...]
    worst: tuple[WorstToken, ...]
    limits: PreflightLimits = field(default_factory=PreflightLimits)

    @property
    def passed(self) -> bool:
        """Whether no cause was found and every limit was kept."""
        return not self.causes


def preflight(
    rollout: EngineScores, trainer: EngineScores, *, limits: PreflightLimits | None = None, n_worst: int = N_WORST
) -> PreflightResult:
    """Return what differs between two engines that hold the same weights.

    What is wrong with the data is found first and set aside, so that the numbers speak of the tokens that can be
    compared: other ids, padding, a shift, missing log-probs, tokens without a probability, and zeros.
    Errors: InvalidInput if the engines have different numbers of sequences, or no token in common.
    """
    limits, thresholds = limits or PreflightLimits(), Thresholds()
    if len(rollout.logprobs) != len(trainer.logprobs):
        found = f"{len(rollout.logprobs)} sequences in the rollout and {len(trainer.logprobs)} in the trainer"
        raise InvalidInput("sequences", f"{found}; expected the same ones")
    alignment = align(rollout, trainer, limits=thresholds)
    if not alignment.pairs.n_tokens and alignment.n_retokenised is None:
        raise InvalidInput("mask", "no token counts for both engines")
    pairs, counts = _comparable(alignment.pairs)
    signals, features, diagnosis = _diagnosed(pairs, limits=thresholds)
    variation, tv_is = token_variation(pairs, rollout=rollout, trainer=trainer)
    of_rollout, of_trainer = pairs.flat()
    result = PreflightResult(
        sequences=len(trainer.logprobs),
        tokens=pairs.n_tokens,
        equal_share=_mean(of_rollout.astype(np.float32) == of_trainer.astype(np.float32)),
        max_abs_d=float(np.max(np.abs(of_trainer - of_rollout), initial=0.0)),
        tv_p95=float(np.percentile(variation, 95)) if len(variation) else math.nan,
        tv_is=tv_is,
        trainer_mass_outside=trainer_mass_outside(pairs, rollout=rollout, trainer=trainer),
        temperature_slope=features.get("temperature_slope", math.nan),
        temperature_corr=features.get("temperature_corr", math.nan),
        signals={name: signals.get(f"mismatch_{name}", math.nan) for name in SIGNALS},
        alignment=alignment,
        counts=counts,
        causes=(),
        unknown=tuple(item for item in diagnosis.unknown if item.finding in _CAUSES),
        worst=_worst(pairs, trainer=trainer, n=n_worst),
        limits=limits,
    )
    of_data, of_engines = tuple(_data_causes(alignment, counts)), tuple(_engine_causes(diagnosis, pairs, result))
    named = {found.cause for found in of_data}
    return replace(result, causes=(*of_data, *(found for found in of_engines if found.cause not in named)))


def _diagnosed(pairs: TokenPairs, *, limits: Thresholds) -> tuple[dict[str, float], dict[str, float], Diagnosis]:
    """Return the signals of the pairs, their features, and the diagnosis of both as one step of a run."""
    signals = pairs.signals()
    features = RunFeatures().with_step(signals, scalars={}).signals()
    return signals, features, diagnose(History.of_signals(signals | features), limits=limits)


def _comparable(pairs: TokenPairs) -> tuple[TokenPairs, TokenCounts]:
    """Return the pairs that two engines can be judged by, and how many others there are."""
    of_rollout, of_trainer = pairs.flat()
    pairs = pairs.where(lambda a, b: ~(is_impossible(a) | is_impossible(b)))
    finite_rollout, finite_trainer = pairs.flat()
    pairs = pairs.where(lambda a, b: ~(has_no_probability(a) | has_no_probability(b)))
    pairs, rollout_zeros = _without_zeros(pairs)
    swapped, trainer_zeros = _without_zeros(pairs.swapped())
    return swapped.swapped(), TokenCounts(
        rollout_missing=int(is_impossible(of_rollout).sum()),
        trainer_missing=int(is_impossible(of_trainer).sum()),
        rollout_no_probability=int(has_no_probability(finite_rollout).sum()),
        trainer_no_probability=int(has_no_probability(finite_trainer).sum()),
        rollout_zeros=rollout_zeros,
        trainer_zeros=trainer_zeros,
    )


def _without_zeros(pairs: TokenPairs) -> tuple[TokenPairs, int]:
    """Return the pairs without zeros of the rollout that stand for missing log-probs, and how many these are.

    Zeros stand for missing log-probs if finding A' holds by its saturated tokens.
    """
    found = diagnose(History.of_signals(pairs.signals())).observed
    corrupt = next((item.evidence for item in found if item.finding is Finding.CORRUPT_LOGPROBS), ())
    if not any(item.signal == "saturated_fraction" for item in corrupt):
        return pairs, 0
    kept = pairs.where(lambda a, b: ~((a == 0.0) & (b < SATURATED_BELOW)))
    return kept, pairs.n_tokens - kept.n_tokens


def _data_causes(alignment: Alignment, counts: TokenCounts) -> Iterator[FoundCause]:
    first = alignment.first_difference
    if first is not None:
        yield FoundCause.of(
            PreflightCause.RETOKENISED,
            f"token ids differ in {alignment.n_retokenised} sequences, first in sequence {first.sequence} at position "
            f"{first.position}: {first.rollout_id} in the rollout, {first.trainer_id} in the trainer",
        )
    if alignment.rollout_only or alignment.trainer_only:
        yield FoundCause.of(
            PreflightCause.PADDING,
            f"{alignment.rollout_only} positions count in the rollout alone and {alignment.trainer_only} in the "
            "trainer alone",
        )
    if alignment.shift:
        late = "late" if alignment.shift > 0 else "early"
        yield FoundCause.of(PreflightCause.SHIFTED, f"the rollout's log-probs fit one position too {late}")
    if counts.rollout_missing or counts.trainer_missing:
        yield FoundCause.of(
            PreflightCause.MISSING,
            f"{_by_engine(counts.rollout_missing, counts.trainer_missing)} are missing, or above 0 and so no log-probs",
        )
    if counts.rollout_zeros or counts.trainer_zeros:
        yield FoundCause.of(
            PreflightCause.ZEROS,
            f"{_by_engine(counts.rollout_zeros, counts.trainer_zeros)} are exactly 0.0 where the other engine is "
            "not certain",
        )
    if counts.rollout_no_probability or counts.trainer_no_probability:
        yield FoundCause.of(
            PreflightCause.SUPPORT,
            f"{counts.rollout_no_probability} tokens of the trainer have no probability in the rollout, and "
            f"{counts.trainer_no_probability} of the rollout none in the trainer",
        )


def _by_engine(of_rollout: int, of_trainer: int) -> str:
    return f"{of_rollout} of the rollout's log-probs and {of_trainer} of the trainer's"


def _engine_causes(diagnosis: Diagnosis, pairs: TokenPairs, result: PreflightResult) -> Iterator[FoundCause]:
    """Yield the leading finding of the engines; without one, a limit that is exceeded speaks of the engines too."""
    observed = {item.finding: item.evidence for item in diagnosis.observed}
    exceeded = tuple(_exceeded(result))
    leading = next((finding for finding in _CAUSES if finding in observed), None)
    if leading in _ASSUMES_SAMPLER:
        # A finding that tests whether the rollout sampled the tokens says nothing if the trainer did.
        swapped = _diagnosed(pairs.swapped(), limits=Thresholds())[2].observed
        leading = leading if leading in [item.finding for item in swapped] else Finding.ENGINE_MISMATCH
    if leading is not None:
        temperatures = diagnosis.temperatures if leading is Finding.TEMPERATURE else None
        detail = leading.title if temperatures is None else f"{leading.title}. {temperatures.sentence({})}"
        yield FoundCause.of(_CAUSES[leading], detail, (*observed.get(leading, ()), *exceeded))
        return
    evidence = tuple(item for finding in _CONSEQUENCES for item in observed.get(finding, ()))
    if evidence := (*evidence, *diagnosis.shortfall, *exceeded):
        yield FoundCause.of(PreflightCause.ENGINES, "the engines differ by more than the limits", evidence)


def _exceeded(result: PreflightResult) -> Iterator[Evidence]:
    limits = result.limits
    for signal, bound in (
        ("max_abs_d", ThresholdSide.ABOVE),
        ("tv_p95", ThresholdSide.ABOVE),
        ("equal_share", ThresholdSide.BELOW),
    ):
        value, threshold = getattr(result, signal), getattr(limits, signal)
        if value > threshold if bound is ThresholdSide.ABOVE else value < threshold:
            yield Evidence(signal=signal, value=value, bound=bound, threshold=threshold, since_step=0)


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _worst(pairs: TokenPairs, *, trainer: EngineScores, n: int) -> tuple[WorstToken, ...]:
    of_rollout, of_trainer = pairs.flat()
    sequences = np.repeat(np.arange(len(pairs.trainer)), [len(row) for row in pairs.trainer])
    found = worst_tokens(
        of_rollout, of_trainer, sequences=sequences, positions=np.concatenate(pairs.trainer_positions), n=n
    )
    if trainer.token_ids is None:
        return found
    return tuple(replace(item, token_id=int(trainer.token_ids[item.sequence][item.position])) for item in found)
