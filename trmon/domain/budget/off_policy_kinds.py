"""Kinds of off-policyness of a run, and its pipeline: present, absent, or unknown from its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.configuration import config_number, config_value, facts_of
from trmon.domain.findings.verdict import Found, Judgement
from trmon.domain.signals.history import Array, History
from trmon_client.api.answers import OpenEnum
from trmon_client.api.budget import OffPolicyKindInfo, ShownByInfo
from trmon_client.core.policies.policy import Policy

HEALTHY = builtin_catalogue().ranges
CHECKED_STEPS = 20
"""The agreement at equal weights is the median of so many steps."""
AGREEMENT = ("mismatch_prob_pearson", "mismatch_kl_k1")
KIND_SIGNALS = (*AGREEMENT, "version_span_max", "version_lag_max", "engine_lag", "router_flip_rate")
TOP_P_OPTIONS = ("actor_rollout_ref.rollout.top_p", "sampling.top_p", "top_p")
TOP_K_OPTIONS = ("actor_rollout_ref.rollout.top_k", "sampling.top_k", "top_k")


class Presence(OpenEnum, Enum):
    """Whether a run shows a kind or an anti-pattern; unknown where the evidence was not sent."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInput:
    """What advice reads of a run: its newest steps, its configuration, its active policy and what the judge says."""

    history: History
    config: Mapping[str, Any]
    policy: Policy
    judgement: Judgement | None = None

    @property
    def is_replayed(self) -> bool:
        """Whether the configuration declares a replay of the rollout's routing."""
        return "replay_declared" in facts_of(self.config)

    @property
    def engine_lags(self) -> Array:
        """The lag between the two sides of the engines' pair by step; that of the versions where only it is known."""
        lags = self.history.find("engine_lag")[1]
        return self.history.find("version_lag_max")[1] if np.isnan(lags).all() else lags

    def stands(self, finding: str) -> Found | None:
        """Return a finding of the judge that stands, or None."""
        findings = () if self.judgement is None else self.judgement.findings
        return next((found for found in findings if found.finding == finding), None)

    def value(self, signal: str) -> float:
        """Return the newest known value of a signal; NaN without one."""
        return self.history.newest(signal)[1]

    def shown(self, *signals: str) -> tuple[ShownByInfo, ...]:
        """Return the newest values of signals that are known."""
        found = (self.history.newest(signal) for signal in signals)
        return tuple(ShownByInfo(name=name, value=f"{value:.4g}") for name, value in found if not math.isnan(value))

    def option(self, *names: str) -> ShownByInfo | None:
        """Return the first option that the configuration has with a value."""
        found = ((name, config_value(self.config, name)) for name in names)
        return next((ShownByInfo(name=name, value=str(value)) for name, value in found if value is not None), None)


QUANTISED_OPTIONS = (
    *("actor_rollout_ref.rollout.quantization", "rollout_quantization", "quantization"),
    *("actor_rollout_ref.rollout.dtype", "engine.weight_format"),
)
QUANTISED_FORMATS = ("fp8", "float8", "int8", "int4", "int3", "fp4", "nvfp4", "mxfp", "awq", "gptq", "w8a8", "w4a16")


def off_policy_kinds(given: PipelineInput, *, updates_per_step: float) -> tuple[OffPolicyKindInfo, ...]:
    """Return all kinds: those that log-probs and labels show, those that only a declaration shows, and the others.

    Args: updates_per_step: optimizer steps on each rollout.
    Source: [DRIFT], typed off-policyness; formulas, section 11.
    """
    replayed = "; a replay is declared, which hides the difference" if given.is_replayed else ""
    return (
        _engine_mismatch(given),
        _of_largest(
            given,
            "staleness",
            "version_lag_max",
            why="the weights moved between rollout and training",
            absent="every batch was sampled with the weights that it trains",
            needs="needs versions and trainer_version",
        ),
        _reuse(updates_per_step),
        _of_largest(
            given,
            "versions within a response",
            "version_span_max",
            why="responses go on over changes of the weights",
            absent="each response is of one version, if versions are of tokens",
            needs="needs versions of tokens",
        ),
        _missing_old(given),
        _of_largest(
            given,
            "router decisions",
            "router_flip_rate",
            why=f"training selects other experts than the rollout{replayed}",
            absent=f"training selects the rollout's experts{replayed}",
            needs=f"needs trmon_client.moe.flips; only mixtures of experts have a router{replayed}",
        ),
        _quantisation(given),
        _sampling_mask(given),
        *UNMEASURED,
    )


def _engine_mismatch(given: PipelineInput) -> OffPolicyKindInfo:
    if math.isnan(given.value("mismatch_kl_k1")):
        return _unknown("engine mismatch", "needs rollout_logprobs and old_logprobs")
    lag, usual = given.engine_lags, dict[str, float]()
    for name in AGREEMENT:
        values = given.history.find(name)[1]
        known = values[~np.isnan(values) & ~(lag > 0)][-CHECKED_STEPS:]
        usual[name] = float(np.median(known)) if len(known) else math.nan
    if math.isnan(usual["mismatch_kl_k1"]):
        return _unknown(
            "engine mismatch", "old_logprobs were always of newer weights, so that the pair holds staleness"
        )
    pearson, kl = HEALTHY["prob_pearson"].least, HEALTHY["kl_k1"].most
    agrees = abs(usual["mismatch_kl_k1"]) < kl and not usual["mismatch_prob_pearson"] < pearson
    found = given.stands("engine_mismatch")
    limits = f"at lag 0; agreement is a correlation of {pearson:g} and a KL below {kl:g}"
    return OffPolicyKindInfo(
        name="engine mismatch",
        presence=Presence.ABSENT if agrees and found is None else Presence.PRESENT,
        why=limits if found is None else f"{found.title} stands since step {found.since.step}",
        shown_by=tuple(
            ShownByInfo(name=name, value=f"{usual[name]:.4g}") for name in usual if not math.isnan(usual[name])
        ),
    )


def _unknown(name: str, why: str) -> OffPolicyKindInfo:
    return OffPolicyKindInfo(name=name, presence=Presence.UNKNOWN, why=why, shown_by=())


UNMEASURED = (
    _unknown(
        "KV cache of older weights", "no column shows it; a response that went on over a change of weights may have it"
    ),
    _unknown("speculative drafting", "no column shows it; log-probs must be of the model that verified the draft"),
)


def _of_largest(
    given: PipelineInput, name: str, signal: str, *, why: str, absent: str, needs: str
) -> OffPolicyKindInfo:
    """Return a kind that is present where a signal was above 0 in one of the newest steps."""
    values = given.history.find(signal)[1]
    known = values[~np.isnan(values)]
    if not len(known):
        return _unknown(name, needs)
    largest = float(known.max())
    shown_by = (ShownByInfo(name=signal, value=f"{largest:.4g}"),)
    presence, reason = (Presence.PRESENT, why) if largest > 0 else (Presence.ABSENT, absent)
    return OffPolicyKindInfo(name=name, presence=presence, why=reason, shown_by=shown_by)


def _reuse(updates_per_step: float) -> OffPolicyKindInfo:
    shown_by = (ShownByInfo(name="updates on a rollout", value=f"{updates_per_step:g}"),)
    presence, why = Presence.ABSENT, "one update on each rollout, unless updates are not reported"
    if updates_per_step > 1:
        presence, why = Presence.PRESENT, "later updates train on a rollout that earlier ones made stale"
    return OffPolicyKindInfo(name="reuse of rollouts", presence=presence, why=why, shown_by=shown_by)


def _missing_old(given: PipelineInput) -> OffPolicyKindInfo:
    pairs = {pair for pair in ("mismatch", "staleness", "total") if not math.isnan(given.value(f"{pair}_ess_seq"))}
    presence, why = Presence.UNKNOWN, "needs log-probs of two policies"
    if pairs:
        presence = Presence.PRESENT if pairs == {"total"} else Presence.ABSENT
        why = "old_logprobs were sent"
    if presence is Presence.PRESENT:
        why = "without old_logprobs, mismatch and staleness cannot be told apart"
    return OffPolicyKindInfo(name="missing old log-probs", presence=presence, why=why, shown_by=())


def _quantisation(given: PipelineInput) -> OffPolicyKindInfo:
    options = (given.option(name) for name in QUANTISED_OPTIONS)
    shown_by = tuple(one for one in options if one is not None and one.value.lower().startswith(QUANTISED_FORMATS))
    if not shown_by:
        return _unknown("quantised rollout", "only the configuration can declare it")
    why = "declared by the configuration"
    return OffPolicyKindInfo(name="quantised rollout", presence=Presence.PRESENT, why=why, shown_by=shown_by)


def _sampling_mask(given: PipelineInput) -> OffPolicyKindInfo:
    top_p, top_k = (given.option(*names) for names in (TOP_P_OPTIONS, TOP_K_OPTIONS))
    shown_by = tuple(option for option in (top_p, top_k) if option is not None)
    if not shown_by:
        return _unknown("sampling mask", "declare top_p and top_k in the configuration")
    numbers = {option.name: config_number(given.config, option.name) for option in shown_by}
    cuts_p = any((numbers.get(name) or 1.0) < 1.0 for name in TOP_P_OPTIONS)
    cuts_k = any((numbers.get(name) or 0.0) > 0.0 for name in TOP_K_OPTIONS)
    presence = Presence.PRESENT if cuts_p or cuts_k else Presence.ABSENT
    why = "tokens outside top_p or top_k are never sampled" if cuts_p or cuts_k else "every token can be sampled"
    return OffPolicyKindInfo(name="sampling mask", presence=presence, why=why, shown_by=shown_by)


class PipelineKind(OpenEnum, Enum):
    """A property of a pipeline that decides which method suits it; a run may have several."""

    SYNC_DENSE = "sync_dense"
    ASYNC = "async"
    MOE = "moe"
    QUANTISED = "quantised"


def pipeline_kinds(
    given: PipelineInput, off_policy: Sequence[OffPolicyKindInfo]
) -> dict[PipelineKind, tuple[ShownByInfo, ...]]:
    """Return the kinds of a pipeline with what shows each; else synchronous and dense. Source: [DRIFT], by pipeline."""
    shown_by = {kind.name: kind.shown_by for kind in off_policy if kind.presence != Presence.UNKNOWN}
    lags = given.history.find("version_lag_max")[1]
    is_usual = np.nanmedian(lags) > 0 if not np.isnan(lags).all() else False
    replay = (ShownByInfo(name="router_replay", value="declared"),) if given.is_replayed else ()
    shown = {
        PipelineKind.ASYNC: shown_by.get("staleness", ()) if is_usual else (),  # A lag now and then is a late rollout.
        PipelineKind.MOE: (*shown_by.get("router decisions", ()), *given.shown("max_vio"), *replay),
        PipelineKind.QUANTISED: shown_by.get("quantised rollout", ()),
    }
    found = {kind: evidence for kind, evidence in shown.items() if evidence}
    return found or {PipelineKind.SYNC_DENSE: given.shown("version_lag_max")}
