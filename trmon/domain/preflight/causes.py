"""The zero-update test: with equal weights, the same tokens must have the same log-probs in both engines.

The engines are judged as the steps of a run are, by the same findings and limits.
Source: VeXact, arXiv 2605.14220; formulas, sections 2 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from msgspec import structs

from trmon.domain.analysis.distribution import WorstToken, worst_tokens
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import Clause, Comparison, builtin_catalogue
from trmon.domain.findings.judge import Evidence, Judge, JudgeState, Place, Row, Spell
from trmon.domain.findings.measures import VIEWS
from trmon.domain.findings.remedies import Remedy, remedy
from trmon.domain.findings.verdict import OutOfRange, judge_run
from trmon.domain.preflight.alignment import Alignment, align, mask_of
from trmon.domain.preflight.token_pairs import (
    EngineScores,
    TokenPairs,
    TvIs,
    has_no_probability,
    is_impossible,
    token_variation,
    trainer_mass_outside,
)
from trmon_client.core.logprob_mistakes import LogprobMistake, mistake_in_range, unit_mistake
from trmon_client.core.reduction.sequences import SATURATED_BELOW


class PreflightCause(Enum):
    """Why two engines with equal weights do not give the same tokens the same log-probs."""

    RETOKENISED = "retokenised"
    PADDING = "padding"
    SHIFTED = "shifted"
    MISSING = "missing"
    ZEROS = "zeros"
    CORRUPT = "corrupt"
    POLICY = "policy"
    SUPPORT = "support"
    TEMPERATURE = "temperature"
    ENGINES = "engines"


_CAUSES = {
    "corrupt_logprobs": PreflightCause.CORRUPT,
    "wrong_policy": PreflightCause.POLICY,
    "support_shift": PreflightCause.SUPPORT,
    "temperature": PreflightCause.TEMPERATURE,
    "engine_mismatch": PreflightCause.ENGINES,
}
"""The findings that are causes at equal weights, in the order of causes; what distorts others comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause that was found: in words, with its evidence and remedy, and the finding that it becomes in a run."""

    cause: PreflightCause
    finding: str
    detail: str
    evidence: tuple[Evidence, ...] = ()
    outside: tuple[OutOfRange, ...] = ()
    remedy: Remedy

    @classmethod
    def of_data(cls, cause: PreflightCause, detail: str, *, remedy_key: str = "corrupt_logprobs") -> FoundCause:
        """Return a cause in the data."""
        finding = "support_shift" if cause is PreflightCause.SUPPORT else "corrupt_logprobs"
        return cls(cause=cause, finding=finding, detail=detail, remedy=_remedy(remedy_key))

    @property
    def fix(self) -> str:
        """What to change first: that of the cause itself where it is more specific than its finding."""
        return _FIXES.get(self.cause, self.remedy.first)


def _remedy(key: str) -> Remedy:
    return remedy(key, framework=None, config={}, last_good_step=None, has_ended=False)


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


SIGNALS = (
    *("kl_k1", "kl_k3", "prob_pearson", "ppl_ratio", "ratio_mean"),
    *("logp_slope_q", "logp_corr_q", "temperature_near", "temperature_far"),
)
N_WORST = 10
N_ROWS = 20
"""The sequences are judged in so many rows, as findings measure the noise of rows, and twice, as they must hold."""
ENOUGH_TOKENS = 2000
NEED_TOKENS = ("support_shift", "temperature")
"""Findings that are not judged with fewer tokens, or with fewer sequences than rows."""
CONSEQUENCES = ("variance_blowup", "moderate_drift")
ASSUME_SAMPLER = ("support_shift.ratio", "support_shift.returned", "corrupt_logprobs.evidence")
"""Clauses that test whether the rollout sampled the tokens: they say nothing if the trainer did."""
UNIT, UNIT_SIGNALS = "corrupt_logprobs.unit", ("logp_unit", "logp_unit_residual")
ZEROS = ("zeros", "end_dropped", "padding")


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
    variation; `signals`: those of the pair mismatch by stem; `unknown`: ids of findings that need more tokens.
    """

    sequences: int
    tokens: int
    equal_share: float
    max_abs_d: float
    tv_p95: float
    tv_is: TvIs
    trainer_mass_outside: float | None
    signals: dict[str, float]
    alignment: Alignment
    counts: TokenCounts
    causes: tuple[FoundCause, ...]
    unknown: tuple[str, ...]
    worst: tuple[WorstToken, ...]
    limits: PreflightLimits

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
    limits = limits or PreflightLimits()
    if len(rollout.logprobs) != len(trainer.logprobs):
        found = f"{len(rollout.logprobs)} sequences in the rollout and {len(trainer.logprobs)} in the trainer"
        raise InvalidInput("sequences", f"{found}; expected the same ones")
    (rollout, of_rollout), (trainer, of_trainer) = _in_logprobs(rollout, trainer), _in_logprobs(trainer, rollout)
    mistakes = {"the rollout": of_rollout, "the trainer": of_trainer}
    most_gap = builtin_catalogue().by_key["engine_mismatch.pearson"].decisive.limit
    alignment = align(rollout, trainer, least_pearson=1.0 - most_gap)
    if not alignment.pairs.n_tokens and alignment.n_retokenised is None:
        raise InvalidInput("mask", "no token counts for both engines")
    pairs, counts = _comparable(alignment.pairs)
    signals = pairs.signals()
    variation, tv_is = token_variation(pairs, rollout=rollout, trainer=trainer)
    of_rollout, of_trainer = pairs.flat()
    is_equal = of_rollout.astype(np.float32) == of_trainer.astype(np.float32)
    is_enough = pairs.n_tokens >= ENOUGH_TOKENS and len(pairs.trainer) >= N_ROWS
    result = PreflightResult(
        sequences=len(trainer.logprobs),
        tokens=pairs.n_tokens,
        equal_share=float(np.mean(is_equal)) if len(is_equal) else math.nan,
        max_abs_d=float(np.max(np.abs(of_trainer - of_rollout), initial=0.0)),
        tv_p95=float(np.percentile(variation, 95)) if len(variation) else math.nan,
        tv_is=tv_is,
        trainer_mass_outside=trainer_mass_outside(pairs, rollout=rollout, trainer=trainer),
        signals={name: signals.get(f"mismatch_{name}", math.nan) for name in SIGNALS},
        alignment=alignment,
        counts=counts,
        causes=(),
        unknown=() if is_enough else NEED_TOKENS,
        worst=_worst(pairs, trainer=trainer, n=n_worst),
        limits=limits,
    )
    of_data = (*_mistakes(mistakes), *_data_causes(alignment, counts))
    of_engines = _engine_cause(pairs, result, signals=signals)
    named = {found.cause for found in of_data}
    # A cut distribution also differs on the tokens that it keeps; other faults of the data were set aside before.
    explained = builtin_catalogue().by_id["support_shift"].explains if PreflightCause.SUPPORT in named else ()
    if of_engines is None or of_engines.cause in named or of_engines.finding in explained:
        return replace(result, causes=of_data)
    return replace(result, causes=(*of_data, of_engines))


def _in_logprobs(scores: EngineScores, other: EngineScores) -> tuple[EngineScores, LogprobMistake | None]:
    """Return the scores of an engine as log-probs, and what it gave in their place; its counting tokens tell."""
    counted = [row[mask] for row, mask in zip(scores.logprobs, mask_of(scores, other), strict=True)]
    values = np.concatenate([row[~np.isnan(row)] for row in counted])
    mistake = mistake_in_range(float(values.min()), float(values.max())) if len(values) else None
    if mistake is None:
        return scores, None
    with np.errstate(all="ignore"):
        rows = (-row if mistake is LogprobMistake.SIGN else np.log(row) for row in scores.logprobs)
        return replace(scores, logprobs=tuple(rows)), mistake


def _mistakes(by_engine: Mapping[str, LogprobMistake | None]) -> Iterator[FoundCause]:
    """Yield what engines gave in place of log-probs, in the words of the client that finds it in a run."""
    for engine, mistake in by_engine.items():
        if mistake is not None:
            yield FoundCause.of_data(PreflightCause.CORRUPT, mistake.said_of(engine), remedy_key=mistake.value)


def _judged(pairs: TokenPairs) -> JudgeState:
    """Return the judgement of the pairs as a run: every twentieth sequence makes a row, each row twice."""
    n = min(N_ROWS, len(pairs.trainer))
    rows = [part.signals() for part in (pairs.part(first, every=n) for first in range(n)) if part.n_tokens]
    judge, state = Judge(builtin_catalogue()), JudgeState()
    for step in range(2 * N_ROWS if rows else 0):
        state = judge.fold(state, Row(place=Place(1, step), values=rows[step % len(rows)], facts={}))
    return state


def _spells(state: JudgeState) -> dict[str, Spell]:
    """Return the findings that are causes, or follow from one, in the order of causes."""
    spells = {spell.finding: spell for spell in (*state.ended, *state.standing.values())}
    known = (name for name in builtin_catalogue().order if name in (*_CAUSES, *CONSEQUENCES))
    return {name: spells[name] for name in known if name in spells}


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
    """Return the pairs without zeros of the rollout that stand for missing log-probs, and how many these are."""
    found = _spells(_judged(pairs)).get("corrupt_logprobs")
    if found is None or found.clause not in ZEROS:
        return pairs, 0
    kept = pairs.where(lambda a, b: ~((a == 0.0) & (b < SATURATED_BELOW)))
    return kept, pairs.n_tokens - kept.n_tokens


def _data_causes(alignment: Alignment, counts: TokenCounts) -> Iterator[FoundCause]:
    first = alignment.first_difference
    if first is not None:
        yield FoundCause.of_data(
            PreflightCause.RETOKENISED,
            f"token ids differ in {alignment.n_retokenised} sequences, first in sequence {first.sequence} at position "
            f"{first.position}: {first.rollout_id} in the rollout, {first.trainer_id} in the trainer",
        )
    if alignment.rollout_only or alignment.trainer_only:
        yield FoundCause.of_data(
            PreflightCause.PADDING,
            f"{alignment.rollout_only} positions count in the rollout alone and {alignment.trainer_only} in the "
            "trainer alone",
        )
    if alignment.shift:
        late = "late" if alignment.shift > 0 else "early"
        detail = f"the rollout's log-probs fit one position too {late}"
        yield FoundCause.of_data(PreflightCause.SHIFTED, detail, remedy_key="shifted")
    if counts.rollout_missing or counts.trainer_missing:
        yield FoundCause.of_data(
            PreflightCause.MISSING,
            f"{_by_engine(counts.rollout_missing, counts.trainer_missing)} are missing, or above 0 and so no log-probs",
        )
    if counts.rollout_zeros or counts.trainer_zeros:
        yield FoundCause.of_data(
            PreflightCause.ZEROS,
            f"{_by_engine(counts.rollout_zeros, counts.trainer_zeros)} are exactly 0.0 where the other engine is "
            "not certain",
            remedy_key="zeros",
        )
    if counts.rollout_no_probability or counts.trainer_no_probability:
        yield FoundCause.of_data(
            PreflightCause.SUPPORT,
            f"{counts.rollout_no_probability} tokens of the trainer have no probability in the rollout, and "
            f"{counts.trainer_no_probability} of the rollout none in the trainer",
            remedy_key="support_shift",
        )


def _by_engine(of_rollout: int, of_trainer: int) -> str:
    return f"{of_rollout} of the rollout's log-probs and {of_trainer} of the trainer's"


def _engine_cause(pairs: TokenPairs, result: PreflightResult, *, signals: Mapping[str, float]) -> FoundCause | None:
    """Return the leading finding of the engines; without one, a limit that is exceeded speaks of the engines too."""
    catalogue, state = builtin_catalogue(), _judged(pairs)
    found = {
        name: spell
        for name, spell in _spells(state).items()
        if name not in result.unknown and _holds_of_all(catalogue.by_key[f"{name}.{spell.clause}"], signals)
    }
    leading = next((spell for name, spell in found.items() if name in _CAUSES), None)
    if leading is not None and f"{leading.finding}.{leading.clause}" in ASSUME_SAMPLER:
        swapped = _spells(_judged(pairs.swapped()))
        leading = leading if leading.finding in swapped else found.get("engine_mismatch")
    exceeded = tuple(_exceeded(result))
    if leading is not None:
        clause = catalogue.by_key[f"{leading.finding}.{leading.clause}"]
        return FoundCause(
            cause=_CAUSES[leading.finding],
            finding=leading.finding,
            detail=_detail(clause, result, signals),
            evidence=(*_of_all(leading.evidence, signals), *exceeded),
            remedy=_remedy(clause.remedy),
        )
    judgement = judge_run(state, catalogue)
    outside = () if judgement is None else tuple(one for one in judgement.outside if one.signal.startswith("mismatch_"))
    followed = (evidence for name in CONSEQUENCES if name in found for evidence in found[name].evidence)
    evidence = (*_of_all(followed, signals), *exceeded)
    if not (evidence or outside):
        return None
    return FoundCause(
        cause=PreflightCause.ENGINES,
        finding="engine_mismatch",
        detail="the engines differ by more than the limits",
        evidence=evidence,
        outside=outside,
        remedy=_remedy("engine_mismatch"),
    )


def _detail(clause: Clause, result: PreflightResult, signals: Mapping[str, float]) -> str:
    """Return a cause in words: of two temperatures with their ratio, of another base with its engine."""
    if f"{clause.finding}.{clause.id}" == UNIT and (found := unit_mistake(*(signals[name] for name in UNIT_SIGNALS))):
        base, is_of_rollout = found
        return LogprobMistake.UNIT.said_of("the rollout" if is_of_rollout else "the trainer", base=base)
    ends = sorted((result.signals["temperature_near"], result.signals["temperature_far"]))
    if clause.finding != "temperature" or not ends[0] > 0:
        return clause.title
    ratio = f"{ends[0]:.2f} to {ends[1]:.2f}"
    return f"{clause.title}. The rollout's temperature is {ratio} times that of the trainer's log-probs"


def _value_of_all(evidence: Evidence | Comparison, signal: str, signals: Mapping[str, float]) -> float:
    """Return a measure of one row over all tokens; NaN for a measure that rows are needed for."""
    name, _, transform = evidence.measure.partition(".")
    value = signals.get(signal, math.nan)
    if transform:
        return math.nan
    return VIEWS[name][1](value) if name in VIEWS else value


def _holds_of_all(clause: Clause, signals: Mapping[str, float]) -> bool:
    """Whether the deciding comparison of a clause holds over all tokens, too, where it is one of a row."""
    decisive = clause.decisive
    stem = VIEWS[decisive.measure][0] if decisive.measure in VIEWS else decisive.measure
    known = next((name for name in (f"mismatch_{stem}", stem) if name in signals), "")
    value = _value_of_all(decisive, known, signals)
    return math.isnan(value) or decisive.is_beyond(value, decisive.limit)


def _of_all(evidence: Iterable[Evidence], signals: Mapping[str, float]) -> Iterator[Evidence]:
    """Yield evidence with its value over all tokens, and without the times of a run."""
    for one in evidence:
        value = _value_of_all(one, one.signal, signals)
        yield structs.replace(one, value=one.value if math.isnan(value) else value, then=None, now=None)


def _exceeded(result: PreflightResult) -> Iterator[Evidence]:
    limits = result.limits
    for signal, side in (("max_abs_d", ">"), ("tv_p95", ">"), ("equal_share", "<")):
        value, limit = getattr(result, signal), getattr(limits, signal)
        if value > limit if side == ">" else value < limit:
            yield Evidence(measure=signal, signal=signal, value=value, side=side, limit=limit)


def _worst(pairs: TokenPairs, *, trainer: EngineScores, n: int) -> tuple[WorstToken, ...]:
    of_rollout, of_trainer = pairs.flat()
    sequences = np.repeat(np.arange(len(pairs.trainer)), [len(row) for row in pairs.trainer])
    found = worst_tokens(
        of_rollout, of_trainer, sequences=sequences, positions=np.concatenate(pairs.trainer_positions), n=n
    )
    if trainer.token_ids is None:
        return found
    return tuple(replace(item, token_id=int(trainer.token_ids[item.sequence][item.position])) for item in found)
