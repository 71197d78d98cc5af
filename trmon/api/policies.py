"""The policy of a run: read, change, roll back; the adaptation of its bounds; and error bounds."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader, require_reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import After, Limit, Named, RequestBody
from trmon.domain.access import Access, AuditAction
from trmon.domain.adaptation.calibration import calibrated_limits
from trmon.domain.adaptation.proposal import (
    AdaptationMode,
    AdaptationSetting,
    ControllerResult,
    NoChange,
    NoChangeReason,
    SampleWindow,
)
from trmon.domain.adaptation.target_mask_rate import anchor_of, propose, recommend
from trmon.domain.errors import Conflict, InvalidInput, NotFound
from trmon.domain.policies import PolicyRegistry, PolicyVersion, default_version
from trmon.domain.runs.run import Run, RunState
from trmon.worker.adaptation import stored_samples
from trmon_client.api.answers import ItemPage
from trmon_client.api.policies import AdaptationInfo, BoundsInfo, PolicyInfo, ProposalInfo
from trmon_client.core.bounds import error_bounds, max_delta
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError

Spec = str | dict[str, Any]
"""A preset's name, or a policy with its name, criteria and token rules."""


class PolicyChange(RequestBody):
    """A policy to activate; without `shadows`, the run keeps its shadow policies."""

    policy: Spec = Field(examples=["geo_mask"])
    shadows: list[Spec] | None = Field(None, max_length=16)
    reason: str = Field("", max_length=1000)
    from_step: int = Field(0, ge=0, lt=1 << 62, description="The first step it applies to, on a best-effort basis.")
    pinned: bool = Field(False, description="Prevent controllers from changing it.")
    replaces: str | None = Field(
        None,
        max_length=64,
        description="The hash of the policy that it replaces; 409 if another one is current by now.",
    )


class Rollback(RequestBody):
    """The earlier version to activate again; without a hash, the previous one."""

    hash: str | None = Field(None, max_length=64)
    reason: str = Field("", max_length=1000)


def parse_policy(spec: Spec, *, field: str) -> Policy:
    """Return a policy. Errors: InvalidInput naming the field."""
    try:
        return Policy.parse(spec)
    except PolicyError as error:
        raise InvalidInput(field, str(error)) from error


def parse_shadow_policy(spec: Spec, *, field: str) -> Policy:
    """Return a policy that the service can replay. Errors: InvalidInput unless it has criteria for sequences."""
    policy = parse_policy(spec, field=field)
    if not policy.criteria:
        raise InvalidInput(
            field, f"{policy.name} has no criteria for sequences, which a shadow needs; token rules run in the trainer"
        )
    return policy


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"], route_class=AnswerRoute)


@router.get("/policy")
def get_policy(key: Named, access: Reader, service: Service) -> PolicyInfo:
    """Return the active policy."""
    run = service.store.runs.get(key, access=access)
    return policy_info(service.store.policies.current(run.id, access=access))


@router.get("/policy/history")
def list_policy_versions(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> ItemPage[PolicyInfo]:
    """List the versions of the run's policy, newest first; the last one is the default of every run."""
    run = service.store.runs.get(key, access=access)
    page = service.store.policies.list(run.id, access=access, after=after, limit=limit)
    return ItemPage(items=[policy_info(version) for version in page.items], next=page.next)


@router.put("/policy")
def put_policy(key: Named, change: PolicyChange, access: Admin, service: Service) -> PolicyInfo:
    """Activate a policy; trainers receive it with their next acknowledgement."""
    run = service.store.runs.get(key, access=access)
    current = service.store.policies.current(run.id, access=access)
    shadows = current.shadows
    if change.shadows is not None:
        shadows = tuple(parse_shadow_policy(spec, field=f"shadows[{i}]") for i, spec in enumerate(change.shadows))
    version = PolicyVersion(
        policy=parse_policy(change.policy, field="policy"),
        shadows=shadows,
        author=access.name,
        reason=change.reason,
        created_at=time.time(),
        from_step=change.from_step,
        pinned=change.pinned,
    )
    service.store.policies.put(
        run.id, version, access=access, action=AuditAction.POLICY_CHANGE, replaces=change.replaces
    ).result()
    return policy_info(version)


@router.post("/policy/rollback")
def roll_back_policy(key: Named, rollback: Rollback, access: Admin, service: Service) -> PolicyInfo:
    """Activate an earlier version again, as a new version; it is pinned if a controller set the current one."""
    run = service.store.runs.get(key, access=access)
    history = [default_version(now=run.created_at), *service.store.policies.history(run.id)]
    earlier = _earlier(history, rollback.hash)
    version = replace(
        earlier,
        author=access.name,
        reason=rollback.reason or f"rolled back to {earlier.policy.hash[:8]}",
        created_at=time.time(),
        from_step=0,
        # Otherwise the controller would repeat its change, because it sees the same sequences.
        pinned=earlier.pinned or history[-1].is_adapted,
    )
    service.store.policies.put(run.id, version, access=access, action=AuditAction.POLICY_ROLLBACK).result()
    return policy_info(version)


def _earlier(history: list[PolicyVersion], wanted: str | None) -> PolicyVersion:
    """Return a version to go back to. Args: history: the default version and all later ones, oldest first."""
    *before, current = history
    for version in reversed(before):
        if version.policy.hash == wanted or (wanted is None and version.policy.hash != current.policy.hash):
            return version
    if wanted is None:
        raise Conflict("there is no earlier version to roll back to")
    raise NotFound("policy version", wanted)


def registry_of(service: Components, run_id: int) -> PolicyRegistry:
    """Return the policies of a run by their hashes."""
    policies = service.store.policies
    return PolicyRegistry.of(policies.current(run_id), versions=policies.history(run_id))


def policy_info(version: PolicyVersion) -> PolicyInfo:
    """Return the response for a version."""
    return PolicyInfo.from_fields(
        version,
        name=version.policy.name,
        hash=version.policy.hash,
        policy=version.policy.spec(),
        shadows=[shadow.spec() for shadow in version.shadows],
    )


_DEFAULT = AdaptationSetting()


class AdaptationSettingIn(RequestBody):
    """The adaptation setting of a run; omitted fields take the defaults of a new run."""

    mode: AdaptationMode
    target_mask_rate: float | None = Field(
        None, description="The fraction of sequences to reject; null: 0.05, or the rate of a calibrated policy."
    )
    window_sequences: int = Field(_DEFAULT.window_sequences, description="The number of newest sequences to use.")
    every_steps: int = Field(_DEFAULT.every_steps, description="Minimum number of steps between two changes.")
    floor_factor: float = Field(
        _DEFAULT.floor_factor, description="The smallest bound, as a factor of the one a person set."
    )
    ceiling_factor: float = Field(
        _DEFAULT.ceiling_factor, description="The largest bound, as a factor of the one a person set."
    )

    def setting(self) -> AdaptationSetting:
        """Return the setting. Errors: InvalidInput naming the field."""
        try:
            return AdaptationSetting(**self.model_dump())
        except ValueError as error:
            raise InvalidInput(str(error).split(" ", 1)[0], str(error)) from error


MAX_STEPS = 256
"""The maximum number of steps that a recommendation reads, however few sequences each has."""
GAIN_POINTS = 20


@router.get("/adaptation")
def get_adaptation(key: Named, access: Reader, service: Service) -> AdaptationInfo:
    """Return the adaptation setting and, unless it is off, what the controllers propose now."""
    store = service.store
    run = store.runs.get(key, access=access)
    setting = store.adaptations.get(run.id, access=access)
    if setting.mode is AdaptationMode.OFF:
        return AdaptationInfo.from_fields(setting)
    current = store.policies.current(run.id, access=access)
    keys = store.batches.gauge_keys(run.id, access=access, limit=MAX_STEPS)
    history = stored_samples(store.reports.of_batch, keys, policy=current.policy)
    sample = SampleWindow.of(history, n_sequences=setting.window_sequences).sample()
    versions = [default_version(now=run.created_at), *store.policies.history(run.id, access=access)]
    nothing = NoChange(NoChangeReason.TOO_FEW, "no stored sequence has the columns that the policy needs")
    gain = _gain(service, run, access)
    recommended = propose(
        sample,
        setting=setting,
        current=current,
        anchor=anchor_of(versions),
        is_stalled=run.state is RunState.STALLED,
        calibrated=calibrated_limits(versions),
    )
    bound_budget = nothing if sample is None else recommend(sample, policy=current.policy, gain=gain)
    return AdaptationInfo.from_fields(
        setting, recommended=_proposal_info(recommended), bound_budget=_proposal_info(bound_budget)
    )


@router.put("/adaptation")
def put_adaptation(key: Named, given: AdaptationSettingIn, access: Admin, service: Service) -> AdaptationInfo:
    """Set how the bounds are adapted: off, shown only, or applied as policy versions."""
    run = service.store.runs.get(key, access=access)
    setting = given.setting()
    service.store.adaptations.put(run.id, setting, access=access, now=time.time()).result()
    return AdaptationInfo.from_fields(setting)


def _gain(service: Components, run: Run, access: Access) -> float:
    """Return the increase of the mean reward since the start, from the first to the last of 20 intervals."""
    series = service.store.signals.series(run.id, names=["reward_mean"], points=GAIN_POINTS, access=access)
    means = series.bands["reward_mean"].mean
    return float(means[-1] - means[0]) if len(means) else math.nan


def _proposal_info(verdict: ControllerResult) -> ProposalInfo:
    if isinstance(verdict, NoChange):
        return ProposalInfo.from_fields(hold=verdict.reason, reason=verdict.detail)
    return ProposalInfo.from_fields(verdict, policy=verdict.policy.spec())


bounds_router = APIRouter(
    prefix="/api/v1/bounds", tags=["bounds"], dependencies=[Depends(require_reader)], route_class=AnswerRoute
)


@bounds_router.get("")
async def get_bounds(
    horizon: Annotated[int, Query(ge=1, le=1 << 32, description="Length of the longest response, in tokens.")],
    kl_max: Annotated[float, Query(description="Largest token KL, in nats.")],
    kl_seq: Annotated[float, Query(description="Mean KL of whole sequences, in nats.")],
    budget: Annotated[float | None, Query(description="Largest acceptable bound, in units of reward.")] = None,
) -> BoundsInfo:
    """Return the error bounds of [TRM], and the threshold that keeps them within a budget."""
    try:
        found = error_bounds(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq)
        delta = None if budget is None else max_delta(horizon=horizon, budget=budget, kl_seq=kl_seq)
    except ValueError as error:
        raise InvalidInput(str(error).split(" ", 1)[0], str(error)) from error
    return BoundsInfo.from_fields(found, max_delta=delta)
