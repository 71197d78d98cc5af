"""Routes of adaptation; recommendations are computed from stored sequences on request."""

from __future__ import annotations

import math
import time

from fastapi import APIRouter

from trmon.api.adaptation.schemas import AdaptationOut, AdaptationSettingIn
from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.runs.routes import Named
from trmon.domain.adaptation.adaptation_setting import AdaptationMode
from trmon.domain.adaptation.bound_budget import recommend
from trmon.domain.adaptation.calibration_plan import calibrated_limits
from trmon.domain.adaptation.control import anchor_of, run_controller
from trmon.domain.adaptation.proposal import NoChange, NoChangeReason
from trmon.domain.adaptation.window import SampleWindow
from trmon.domain.model.access import Access
from trmon.domain.policies.policy_version import default_version
from trmon.domain.runs.run import Run, RunState
from trmon.runner.bound_controller import stored_samples

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])

MAX_STEPS = 256
"""The maximum number of steps that a recommendation reads, however few sequences each has."""
GAIN_POINTS = 20


@router.get("/adaptation")
def get_adaptation(key: Named, access: Reader, service: Service) -> AdaptationOut:
    """Return the adaptation setting and, unless it is off, what the controllers propose now."""
    store = service.store
    run = store.runs.get(key, access=access)
    setting = store.adaptations.get(run.id, access=access)
    if setting.mode is AdaptationMode.OFF:
        return AdaptationOut.of(setting)
    current = store.policies.current(run.id, access=access)
    keys = store.batches.gauge_keys(run.id, access=access, limit=MAX_STEPS)
    history = stored_samples(store.run_log, keys, policy=current.policy)
    sample = SampleWindow.of(history, n_sequences=setting.window_sequences).sample()
    versions = [default_version(now=run.created_at), *store.policies.history(run.id, access=access)]
    nothing = NoChange(NoChangeReason.TOO_FEW, "no stored sequence has the columns that the policy needs")
    gain = _gain(service, run, access)
    return AdaptationOut.of(
        setting,
        recommended=run_controller(
            setting,
            sample,
            current=current,
            anchor=anchor_of(versions),
            is_stalled=run.state is RunState.STALLED,
            calibrated=calibrated_limits(versions),
        ),
        bound_budget=nothing if sample is None else recommend(sample, policy=current.policy, gain=gain),
    )


@router.put("/adaptation")
def put_adaptation(key: Named, given: AdaptationSettingIn, access: Admin, service: Service) -> AdaptationOut:
    """Set how the bounds are adapted: off, shown only, or applied as policy versions."""
    run = service.store.runs.get(key, access=access)
    setting = given.setting()
    service.store.adaptations.put(run.id, setting, access=access, now=time.time()).result()
    return AdaptationOut.of(setting)


def _gain(service: Components, run: Run, access: Access) -> float:
    """Return the increase of the mean reward since the start, from the first to the last of 20 intervals."""
    series = service.store.signals.series(run.id, names=["reward_mean"], points=GAIN_POINTS, access=access)
    means = series.bands["reward_mean"].mean
    return float(means[-1] - means[0]) if len(means) else math.nan
