"""Replay: the batch's policies decide once more, and what the trainer decided is compared with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trmon.domain.batches.batch import DecisionRow, PolicyRole
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon.domain.stages.maskrates import mask_rates
from trmon.domain.stages.measure import MeasuredBatch
from trmon.domain.stages.merge import MergedBatch, ReportPart
from trmon_client.core.columns.columns import Array
from trmon_client.core.policies.acceptance import SEMANTICS_VERSION, Decision, Policy, PolicyError, StatisticCache
from trmon_client.core.wire import pack_bits, unpack_bits

UNKNOWN_POLICY = "unknown_policy"
DISAGREEMENT = "disagreement"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedBatch:
    """The measured batch with its decisions, the active one first; signals now have the mask rates.

    `mismatches` counts sequences on which trainer and replay disagree under equal semantics; `unreplayed` counts
    reports whose policy is not known here, or cannot decide without columns that they lack.
    """

    measured: MeasuredBatch
    signals: dict[str, float]
    decisions: tuple[DecisionRow, ...]
    mismatches: int
    unreplayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """What stands for each sequence, [B] bool, why by count, and how it compares with the replay."""

    accepted: Array
    reasons: Counter[str]
    mismatches: int
    unreplayed: int


def replay_decisions(measured: MeasuredBatch) -> ReplayedBatch:
    """Return the batch with a decision for its active policy and for each shadow, and their mask rates."""
    merged = measured.merged
    readings = StatisticCache(merged.columns)
    standing = _replay_active(merged, readings)
    shadows = _shadows(merged, readings)
    active = {
        **mask_rates(merged.columns, standing.accepted),
        "policy_versions": float(len({part.stored.report.policy for part in merged.parts})),
    }
    rates = {f"{SHADOW_PREFIX}{name}": shadow.mask_rate if shadow else math.nan for name, shadow in shadows.items()}
    return ReplayedBatch(
        measured=measured,
        signals={**measured.signals, **active, **rates},
        decisions=(
            _active_row(merged, standing, mask_rate=active["mask_rate"]),
            *_shadow_rows(merged, shadows.values()),
        ),
        mismatches=standing.mismatches,
        unreplayed=standing.unreplayed,
    )


def _replay_active(merged: MergedBatch, readings: StatisticCache) -> _Standing:
    """Judge each report by the policy it names, over its own columns.

    Ranks may be on different versions, and merged columns are as exact only as their weakest part.
    """
    bits = np.concatenate([unpack_bits(part.stored.accepted, part.columns.n_sequences) for part in merged.parts])
    reasons: Counter[str] = Counter()
    mismatches = unreplayed = 0
    for parts, read, rows in _judged_at_once(merged, readings):
        report, stands = parts[0].stored.report, bits[rows]
        decision = _decide(read, merged.closing.context.policies.find(report.policy))
        agree = None if decision is None else decision.accepted == stands
        reasons.update(_reasons(decision, stands, agree=agree))
        if agree is None:
            unreplayed += len(parts)
        elif report.policy is not None and report.semantics == SEMANTICS_VERSION:
            mismatches += len(agree) - int(np.count_nonzero(agree))
    return _Standing(accepted=bits, reasons=reasons, mismatches=mismatches, unreplayed=unreplayed)


def _judged_at_once(
    merged: MergedBatch, readings: StatisticCache
) -> list[tuple[tuple[ReportPart, ...], StatisticCache, slice]]:
    """Parts of one policy whose columns say the same as the merged ones are decided together: each sequence for itself.

    So a batch of 64 ranks, which are nearly always alike, costs one decision.
    """
    if len(merged.parts) == 1 or len({_manner(part) for part in merged.parts}) == 1:
        return [(merged.parts, readings, slice(None))]
    return [((part,), StatisticCache(part.columns), part.rows) for part in merged.parts]


def _manner(part: ReportPart) -> tuple[object, ...]:
    """All that a decision hangs on beside the numbers."""
    report, columns = part.stored.report, part.columns
    versions = columns.trainer_version, columns.old_version
    return report.policy, report.semantics, columns.kl_is, columns.kl_pair, versions, frozenset(columns)


def _reasons(decision: Decision | None, bits: Array, *, agree: Array | None) -> Counter[str]:
    """Count the reasons of sequences as they stand: the replay's, where the two agree."""
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


def _shadows(merged: MergedBatch, readings: StatisticCache) -> dict[str, Decision | None]:
    current = merged.closing.context.policies.current
    active = {part.stored.report.policy or current.policy.hash for part in merged.parts}
    others = [policy for policy in current.shadows if policy.hash not in active]
    return {policy.name: _decide(readings, policy) for policy in others}


def _decide(readings: StatisticCache, policy: Policy | None) -> Decision | None:
    if policy is None:
        return None
    try:
        return readings.decide(policy)
    except PolicyError:
        return None


def _active_row(merged: MergedBatch, standing: _Standing, *, mask_rate: float) -> DecisionRow:
    policies = merged.closing.context.policies
    named = merged.parts[0].stored.report.policy
    policy = policies.find(named)
    return DecisionRow(
        key=merged.closing.batch.key,
        policy_hash=named or policies.current.policy.hash,
        policy_name=policy.name if policy else UNKNOWN_POLICY,
        role=PolicyRole.ACTIVE,
        counts={"accepted": 0, **standing.reasons},
        mask_rate=mask_rate,
        accepted=pack_bits(standing.accepted),
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
