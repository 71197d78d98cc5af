"""Replay: decides the batch again by its policies, and compares the result with the trainer's decisions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trmon.domain.batches.batch import DecisionRow, PolicyRole
from trmon.domain.pipeline.stages.maskrates import mask_rates, sequence_weights
from trmon.domain.pipeline.stages.measure import MeasuredBatch
from trmon.domain.pipeline.stages.merge import MergedBatch, ReportPart
from trmon.domain.pipeline.stages.minorizer_signals import minorizer_signals
from trmon.domain.pipeline.stages.turn_agreement import agreeing_sequences, turn_mask_rates
from trmon.domain.signals.derived_signals import REFERENCE_POLICY, SHADOW_PREFIX
from trmon_client.core.arrays import Array
from trmon_client.core.policies.decision import SEMANTICS_VERSION, Decision, StatisticCache
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.wire import pack_bits, unpack_bits

UNKNOWN_POLICY = "unknown_policy"
DISAGREEMENT = "disagreement"
REFERENCE = preset(REFERENCE_POLICY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedBatch:
    """The measured batch with its decisions, the active one first, and with the mask rates among its signals.

    `mismatches` counts the sequences on which trainer and replay disagree under equal semantics, about the sequence or
    one of its turns; `unreplayed` counts the reports whose policy is unknown, or needs columns that they lack.
    """

    measured: MeasuredBatch
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


def replay_decisions(measured: MeasuredBatch) -> ReplayedBatch:
    """Return the batch with a decision for its active policy and for each shadow, and their mask rates."""
    merged = measured.merged
    cache = StatisticCache(merged.columns)
    active = _replay_active(merged, cache)
    shadows = _shadows(merged, cache)
    active_signals = {
        **mask_rates(merged.columns, active.accepted),
        **sequence_weights(merged.columns, active.accepted, soft_weights=active.soft_weights),
        **minorizer_signals(
            merged.columns,
            active.accepted,
            config=merged.closing.context.run.config,
            soft_weights=active.soft_weights,
        ),
        **turn_mask_rates(merged),
        "policy_versions": float(len({part.stored.report.policy for part in merged.parts})),
    }
    rates = {f"{SHADOW_PREFIX}{name}": shadow.mask_rate if shadow else math.nan for name, shadow in shadows.items()}
    return ReplayedBatch(
        measured=measured,
        signals={**measured.signals, **active_signals, **_reference_rate(merged, cache), **rates},
        decisions=(
            _active_row(merged, active, mask_rate=active_signals["mask_rate"]),
            *_shadow_rows(merged, shadows.values()),
        ),
        mismatches=active.mismatches,
        unreplayed=active.unreplayed,
    )


def _replay_active(merged: MergedBatch, cache: StatisticCache) -> _ActiveDecision:
    """Decide each report by the policy that it names, over its own columns.

    Ranks may have different policy versions, and merged columns are only as exact as the least exact report.
    """
    bits = np.concatenate([unpack_bits(part.stored.accepted, part.columns.n_sequences) for part in merged.parts])
    reasons: Counter[str] = Counter()
    mismatches = unreplayed = 0
    soft_weights: Array | None = None
    for parts, read, rows in _decided_together(merged, cache):
        report, accepted = parts[0].stored.report, bits[rows]
        decision = _decide(read, merged.closing.context.policies.find(report.policy))
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
    """Return groups of parts that one decision can cover, with their cache and their rows.

    Parts with one policy and the same kinds of columns form one group, so a batch of 64 ranks costs one decision.
    """
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
    if agree.all():
        return +Counter(decision.counts())
    n_forced = int(np.count_nonzero(bits & ~agree))
    found = Counter({"accepted": n_forced, DISAGREEMENT: int(np.count_nonzero(~agree)) - n_forced})
    counts = np.bincount(decision.codes[agree]).tolist()
    for name, n in zip(("accepted", *decision.reason_names), counts, strict=False):
        found[name] += n
    return +found


def _shadows(merged: MergedBatch, cache: StatisticCache) -> dict[str, Decision | None]:
    current = merged.closing.context.policies.current
    active = {part.stored.report.policy or current.policy.hash for part in merged.parts}
    others = [policy for policy in current.shadows if policy.hash not in active]
    has_pair = bool(merged.columns.pairs)
    return {policy.name: _decide(cache, policy) if has_pair or not policy.reads_pair else None for policy in others}


def _reference_rate(merged: MergedBatch, cache: StatisticCache) -> dict[str, float]:
    """Return the mask rate of geo_mask where it is active: escalation reads it under one name, as of a shadow."""
    if all(part.stored.report.policy != REFERENCE.hash for part in merged.parts):
        return {}
    decision = _decide(cache, REFERENCE)
    return {} if decision is None else {f"{SHADOW_PREFIX}{REFERENCE.name}": decision.mask_rate}


def _decide(cache: StatisticCache, policy: Policy | None) -> Decision | None:
    if policy is None:
        return None
    try:
        return cache.decide(policy)
    except PolicyError:
        return None


def _active_row(merged: MergedBatch, active: _ActiveDecision, *, mask_rate: float) -> DecisionRow:
    policies = merged.closing.context.policies
    named = merged.parts[0].stored.report.policy
    policy = policies.find(named)
    return DecisionRow(
        key=merged.closing.batch.key,
        policy_hash=named or policies.current.policy.hash,
        policy_name=policy.name if policy else UNKNOWN_POLICY,
        role=PolicyRole.ACTIVE,
        counts={"accepted": 0, **active.reasons},
        mask_rate=mask_rate,
        accepted=pack_bits(active.accepted),
    )


def _shadow_rows(merged: MergedBatch, shadows: Iterable[Decision | None]) -> list[DecisionRow]:
    return [
        DecisionRow(
            key=merged.closing.batch.key,
            policy_hash=decision.policy.hash,
            policy_name=decision.policy.name,
            role=PolicyRole.SHADOW,
            counts=decision.counts(),
            mask_rate=decision.mask_rate,
            accepted=pack_bits(decision.accepted),
        )
        for decision in shadows
        if decision is not None
    ]
