"""Replay: decides the batch again by its policies, and compares the result with the trainer's decisions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from trmon.domain.analysis.whatif import WeightTotal
from trmon.domain.batches.batch import DecisionRow, PolicyRole
from trmon.domain.findings.configuration import config_number
from trmon.domain.pipeline.merge import ClosingBatch, MergedBatch, ReportPart
from trmon.domain.policies import PolicyRegistry, PolicyVersion
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon_client.core.arrays import Array
from trmon_client.core.bounds import minorizer
from trmon_client.core.columns import Columns, quantile_of_sorted
from trmon_client.core.policies.decision import SEMANTICS_VERSION, Decision, StatisticCache
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.wire import pack_bits, unpack_bits


def mask_rates(columns: Columns, accepted: Array) -> dict[str, float]:
    """Return the rejected shares, without empty sequences; NaN for a group without sequences.

    Args: accepted: [B] bool.
    Returns: mask_rate; mask_rate_tokens, weighted by valid tokens; _long and _short, of the responses in the top and
    bottom quarter of lengths; with advantages, _positive and _negative by their sign.
    Source: formulas, sections 5 and 6.
    """
    decided = (columns["n_tokens"] > 0) | (columns["n_invalid"] > 0)
    rejected = ~accepted[decided]
    lengths = columns["n_tokens"][decided].astype(np.float64)
    ordered = np.sort(lengths)
    short, long = (quantile_of_sorted(ordered, share) if len(ordered) else math.nan for share in (0.25, 0.75))
    weights = {
        "mask_rate": np.ones_like(lengths),
        "mask_rate_tokens": lengths,
        "mask_rate_long": lengths >= long,
        "mask_rate_short": lengths <= short,
    }
    if "advantage" in columns:
        advantage = columns["advantage"][decided]
        weights |= {"mask_rate_positive": advantage > 0, "mask_rate_negative": advantage < 0}
    matrix = np.array(list(weights.values()), np.float64)
    totals = np.add.reduce(matrix, -1).tolist()
    shares = (matrix @ rejected).tolist()
    return {
        name: share / total if total else math.nan for name, share, total in zip(weights, shares, totals, strict=True)
    }


def sequence_weights(columns: Columns, accepted: Array, *, soft_weights: Array | None = None) -> dict[str, float]:
    """Return the mean weight of the non-empty sequences and their effective share; nothing where nothing is weighted.

    Args: accepted: [B] bool; soft_weights: [B], M of a soft policy, in its place.
    Returns: sequence_weight_mean, sequence_weight_ess; both are the share of accepted sequences under weights 0 and 1.
    Source: formulas, section 6, [3P], [TRM].
    """
    if "sum_token_weight" not in columns and soft_weights is None:
        return {}
    tokens = columns["n_tokens"]
    counted = tokens > 0
    factors = (accepted if soft_weights is None else soft_weights)[counted]
    of_tokens = columns["sum_token_weight"][counted] / tokens[counted] if "sum_token_weight" in columns else 1.0
    total = WeightTotal()
    total.add(np.where(factors > 0, of_tokens * factors, 0.0))
    return {"sequence_weight_mean": total.mean, "sequence_weight_ess": total.effective_share}


CENTRED_OPTION = "advantages_centred"
RANGE_OPTION = "reward_range"
"""Keys of a run's configuration: whether its advantages are R - b, undivided; and the range of its rewards, else 1."""


@np.errstate(all="ignore")
def minorizer_signals(
    columns: Columns, accepted: Array, *, config: Mapping[str, Any], soft_weights: Array | None = None
) -> dict[str, float]:
    """Return L - adaptive on the sequences in the loss, and whether its bound is vacuous; nothing where not declared.

    Args: accepted: [B] bool; soft_weights: [B], M of a soft policy, in its place.
    Source: [TRM] section 3; formulas, section 7.
    """
    if config.get(CENTRED_OPTION) is not True or "max_kl" not in columns or "advantage" not in columns:
        return {}
    reward_range = config_number(config, RANGE_OPTION)
    try:
        found = minorizer(
            columns, accepted=accepted, weights=soft_weights, centred=True, reward_range=reward_range or 1.0
        )
    except ValueError:  # a client sent a KL below zero, or the run declares a range below it
        return {"minorizer": math.nan, "minorizer_vacuous": math.nan}
    vacuous = math.nan if found.vacuous is None else float(found.vacuous)
    return {"minorizer": found.value, "minorizer_vacuous": vacuous}


def accepted_turns(parts: Sequence[ReportPart]) -> Array | None:
    """Return the trainer's decision on the turns of all parts, [R] bool; None if a part has none."""
    found = []
    for part in parts:
        sent, turns = part.stored.report.turns, part.columns.turns
        if turns is None or sent is msgspec.UNSET or sent.accepted is None:
            return None
        found.append(unpack_bits(sent.accepted, len(turns.n_tokens)))
    return np.concatenate(found)


def agreeing_sequences(decision: Decision, parts: Sequence[ReportPart], *, accepted: Array) -> Array:
    """Return on which sequences trainer and replay agree, turns included, [B] bool. Args: accepted: the trainer's."""
    agree: Array = decision.accepted == accepted
    sent = accepted_turns(parts)
    if decision.turns is not None and sent is not None:
        agree[decision.turns.turns.sequences[decision.turns.accepted != sent]] = False
    return agree


def turn_mask_rates(merged: MergedBatch) -> dict[str, float]:
    """Return the rejected shares of turns and of their tokens; nothing unless the trainer decided on all turns.

    Returns: turn_mask_rate, of turns with valid tokens; turn_mask_rate_tokens, of the valid tokens of turns; NaN
    without such a turn.
    Source: formulas, section 5.
    """
    accepted, turns = accepted_turns(merged.parts), merged.columns.turns
    if accepted is None or turns is None:
        return {}
    n_tokens = turns.n_tokens
    n_turns, total = int(np.count_nonzero(n_tokens)), int(n_tokens.sum())
    rejected = ~accepted & (n_tokens > 0)
    return {
        "turn_mask_rate": int(np.count_nonzero(rejected)) / n_turns if n_turns else math.nan,
        "turn_mask_rate_tokens": int(n_tokens[rejected].sum()) / total if total else math.nan,
    }


UNKNOWN_POLICY = "unknown_policy"
DISAGREEMENT = "disagreement"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedDecisions:
    """The decisions on a batch, the active one first, and the signals that they give, such as mask rates.

    `mismatches` counts the sequences on which trainer and replay disagree under equal semantics, about the sequence or
    one of its turns; `unreplayed` counts the reports whose policy is unknown, or needs columns that they lack.
    """

    signals: dict[str, float]
    decisions: tuple[DecisionRow, ...]
    mismatches: int
    unreplayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActiveDecision:
    """The trainer's decision of each sequence, [B] bool, the counts of reasons, and the comparison with the replay.

    `soft_weights` [B]: of the replay, where a report's policy is soft, and 0 or 1 elsewhere; None if none is soft.
    """

    accepted: Array
    soft_weights: Array | None
    reasons: Counter[str]
    mismatches: int
    unreplayed: int


def replay_decisions(closing: ClosingBatch, merged: MergedBatch) -> ReplayedDecisions:
    """Return a decision for the active policy and for each shadow, and their mask rates."""
    policies = closing.context.policies
    cache = StatisticCache(merged.columns)
    active = _replay_active(merged, cache, policies=policies)
    shadows = _shadows(merged, cache, current=policies.current)
    columns, config, weights = merged.columns, closing.context.run.config, active.soft_weights
    active_signals = {
        **mask_rates(columns, active.accepted),
        **sequence_weights(columns, active.accepted, soft_weights=weights),
        **minorizer_signals(columns, active.accepted, config=config, soft_weights=weights),
        **turn_mask_rates(merged),
        "policy_versions": float(len({part.stored.report.policy for part in merged.parts})),
    }
    rates = {f"{SHADOW_PREFIX}{name}": shadow.mask_rate if shadow else math.nan for name, shadow in shadows.items()}
    return ReplayedDecisions(
        signals={**active_signals, **rates},
        decisions=(
            _active_row(closing, merged, active, mask_rate=active_signals["mask_rate"]),
            *[
                DecisionRow(
                    key=closing.batch.key,
                    policy_hash=decision.policy.hash,
                    policy_name=decision.policy.name,
                    role=PolicyRole.SHADOW,
                    counts=decision.counts(),
                    mask_rate=decision.mask_rate,
                    accepted=pack_bits(decision.accepted),
                )
                for decision in shadows.values()
                if decision is not None
            ],
        ),
        mismatches=active.mismatches,
        unreplayed=active.unreplayed,
    )


def _replay_active(merged: MergedBatch, cache: StatisticCache, *, policies: PolicyRegistry) -> _ActiveDecision:
    """Decide each report by the policy that it names, over its own columns: merged ones are less exact."""
    bits = np.concatenate([unpack_bits(part.stored.accepted, part.columns.n_sequences) for part in merged.parts])
    reasons: Counter[str] = Counter()
    mismatches = unreplayed = 0
    soft_weights: Array | None = None
    for parts, read, rows in _decided_together(merged, cache):
        report, accepted = parts[0].stored.report, bits[rows]
        decision = _decide(read, policies.find(report.policy))
        agree = None if decision is None else agreeing_sequences(decision, parts, accepted=accepted)
        if decision is not None and decision.soft_weights is not None:
            soft_weights = bits.astype(np.float64) if soft_weights is None else soft_weights
            soft_weights[rows] = decision.soft_weights
        reasons.update(_reasons(decision, accepted, agree=agree))
        if agree is None:
            unreplayed += len(parts)
        elif report.policy is not None and report.semantics == SEMANTICS_VERSION:
            mismatches += len(agree) - int(np.count_nonzero(agree))
    return _ActiveDecision(
        accepted=bits, soft_weights=soft_weights, reasons=reasons, mismatches=mismatches, unreplayed=unreplayed
    )


def _decided_together(
    merged: MergedBatch, cache: StatisticCache
) -> list[tuple[tuple[ReportPart, ...], StatisticCache, slice]]:
    """Return the parts that one decision covers, of one policy and kind of columns, with their cache and their rows."""
    if len(merged.parts) == 1 or len({_decision_inputs(part) for part in merged.parts}) == 1:
        return [(merged.parts, cache, slice(None))]
    return [((part,), StatisticCache(part.columns), part.rows) for part in merged.parts]


def _decision_inputs(part: ReportPart) -> tuple[object, ...]:
    """Return all inputs of a decision except the values of the columns."""
    report, columns = part.stored.report, part.columns
    versions = columns.trainer_version, columns.old_version
    return (
        report.policy,
        report.semantics,
        columns.kl_is,
        columns.kl_pair,
        versions,
        columns.turns is None,
        frozenset(columns),
    )


def _reasons(decision: Decision | None, bits: Array, *, agree: Array | None) -> Counter[str]:
    """Return the counts of reasons: those of the replay where trainer and replay agree."""
    if decision is None or agree is None:
        n_accepted = int(np.count_nonzero(bits))
        return +Counter({"accepted": n_accepted, UNKNOWN_POLICY: len(bits) - n_accepted})
    n_forced = int(np.count_nonzero(bits & ~agree))
    found = Counter({"accepted": n_forced, DISAGREEMENT: int(np.count_nonzero(~agree)) - n_forced})
    counts = np.bincount(decision.codes[agree]).tolist()
    for name, n in zip(("accepted", *decision.reason_names), counts, strict=False):
        found[name] += n
    return +found


def _shadows(merged: MergedBatch, cache: StatisticCache, *, current: PolicyVersion) -> dict[str, Decision | None]:
    active = {part.stored.report.policy or current.policy.hash for part in merged.parts}
    others = [policy for policy in current.shadows if policy.hash not in active]
    has_pair = bool(merged.columns.pairs)
    return {policy.name: _decide(cache, policy) if has_pair or not policy.reads_pair else None for policy in others}


def _decide(cache: StatisticCache, policy: Policy | None) -> Decision | None:
    if policy is None:
        return None
    try:
        return cache.decide(policy)
    except PolicyError:
        return None


def _active_row(
    closing: ClosingBatch, merged: MergedBatch, active: _ActiveDecision, *, mask_rate: float
) -> DecisionRow:
    policies, named = closing.context.policies, merged.parts[0].stored.report.policy
    policy = policies.find(named)
    return DecisionRow(
        key=closing.batch.key,
        policy_hash=named or policies.current.policy.hash,
        policy_name=policy.name if policy else UNKNOWN_POLICY,
        role=PolicyRole.ACTIVE,
        counts={"accepted": 0, **active.reasons},
        mask_rate=mask_rate,
        accepted=pack_bits(active.accepted),
    )
