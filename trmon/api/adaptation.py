"""The adaptation of a run's bounds: its setting, and what the controllers propose now."""

from __future__ import annotations

import math
import time

from fastapi import APIRouter
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import Named, RequestBody
from trmon.domain.access import Access
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
from trmon.domain.errors import InvalidInput
from trmon.domain.policies import default_version
from trmon.domain.runs.run import Run, RunState
from trmon.worker.adaptation import stored_samples
from trmon_client.api.policies import AdaptationInfo, MoveInfo, ProposalInfo

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


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"], route_class=AnswerRoute)

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
        return _adaptation_info(setting)
    current = store.policies.current(run.id, access=access)
    keys = store.batches.gauge_keys(run.id, access=access, limit=MAX_STEPS)
    history = stored_samples(store.reports.of_batch, keys, policy=current.policy)
    sample = SampleWindow.of(history, n_sequences=setting.window_sequences).sample()
    versions = [default_version(now=run.created_at), *store.policies.history(run.id, access=access)]
    nothing = NoChange(NoChangeReason.TOO_FEW, "no stored sequence has the columns that the policy needs")
    gain = _gain(service, run, access)
    return _adaptation_info(
        setting,
        recommended=propose(
            sample,
            setting=setting,
            current=current,
            anchor=anchor_of(versions),
            is_stalled=run.state is RunState.STALLED,
            calibrated=calibrated_limits(versions),
        ),
        bound_budget=nothing if sample is None else recommend(sample, policy=current.policy, gain=gain),
    )


@router.put("/adaptation")
def put_adaptation(key: Named, given: AdaptationSettingIn, access: Admin, service: Service) -> AdaptationInfo:
    """Set how the bounds are adapted: off, shown only, or applied as policy versions."""
    run = service.store.runs.get(key, access=access)
    setting = given.setting()
    service.store.adaptations.put(run.id, setting, access=access, now=time.time()).result()
    return _adaptation_info(setting)


def _gain(service: Components, run: Run, access: Access) -> float:
    """Return the increase of the mean reward since the start, from the first to the last of 20 intervals."""
    series = service.store.signals.series(run.id, names=["reward_mean"], points=GAIN_POINTS, access=access)
    means = series.bands["reward_mean"].mean
    return float(means[-1] - means[0]) if len(means) else math.nan


def _proposal_info(verdict: ControllerResult | None) -> ProposalInfo | None:
    if verdict is None:
        return None
    if isinstance(verdict, NoChange):
        return ProposalInfo.from_fields(hold=verdict.reason, reason=verdict.detail)
    moves = [MoveInfo.from_fields(move, limit=move.limit and move.limit.value) for move in verdict.moves]
    return ProposalInfo.from_fields(verdict, policy=verdict.policy.spec(), moves=moves)


def _adaptation_info(
    setting: AdaptationSetting,
    *,
    recommended: ControllerResult | None = None,
    bound_budget: ControllerResult | None = None,
) -> AdaptationInfo:
    return AdaptationInfo.from_fields(
        setting,
        recommended=_proposal_info(recommended),
        bound_budget=_proposal_info(bound_budget),
    )
