"""The live service: its rows are those of a sweep's file, and its bounds those that the service calibrates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
from msgspec import structs

from tests.lab.grpo.experiments import small
from trmon.domain.collapse_risk.risk_model import RiskCalibration, RiskModel, shipped_model
from trmon.domain.collapse_risk.risk_reading import FIRST_ROWS, RISK
from trmon.lab.grpo.experiment_config import EngineMismatch, ExperimentConfig, constant
from trmon.lab.grpo.grpo_trainer import train_experiment
from trmon_client.config.settings import Mode
from trmon_client.core.policies.policy import preset
from trmon_research.interventions.live_monitor import LiveMonitor, live_settings
from trmon_research.interventions.live_service import LiveService
from trmon_research.sweep.run_file import SIGNAL_COLUMNS, read_columns, rounded_column
from trmon_research.sweep.spooled_signals import StepRows
from trmon_research.sweep.swept_run import sweep_run

NOISY = small(n_updates=6, engine=EngineMismatch(router_noise=constant(1.0), lag=constant(2.0)))


@contextmanager
def _watched(
    config: ExperimentConfig, *, model: RiskModel | None = None
) -> Iterator[tuple[LiveService, Iterator[StepRows]]]:
    """Yield a service and the steps that it closes while a run trains."""
    service = LiveService(msgspec.to_builtins(config), model=model)
    settings = live_settings(config, policy=preset("trm_auto"), mode=Mode.OBSERVE)
    with LiveMonitor(settings, receive=service.receive) as monitor:
        yield service, (service.close_step() for _ in train_experiment(config, monitor))


def test_its_rows_are_those_of_a_swept_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    with _watched(NOISY) as (_, closed):
        steps = list(closed)
    path = tmp_path_factory.mktemp("swept") / "run.parquet"
    path.write_bytes(sweep_run(NOISY).file)
    swept = read_columns(path)
    for name in set(SIGNAL_COLUMNS) & swept.keys():
        live = np.array([step.value(name) for step in steps])
        np.testing.assert_array_equal(rounded_column(name, live), swept[name], err_msg=name)
    assert len(swept) > 25


def test_bounds_are_ceilings_until_there_are_enough_sequences() -> None:
    with _watched(small(n_updates=2)) as (service, closed):
        list(closed)
    assert service.policy == preset("trm_auto")
    assert service.cause().finding is None


def test_another_model_predicts_the_risk_in_place_of_the_shipped_one() -> None:
    calm = structs.replace(shipped_model().file, calibration=RiskCalibration(-5.0, 0.0))
    config = small(n_updates=FIRST_ROWS + 5)
    risks = {}
    for name, model in (("none", None), ("shipped", shipped_model()), ("calm", RiskModel(calm))):
        with _watched(config, model=model) as (_, closed):
            risks[name] = [step.value(RISK) for step in closed]
    assert risks["shipped"][-5:] == risks["none"][-5:]
    assert math.isnan(risks["shipped"][10])
    assert risks["calm"][-1] == pytest.approx(1 / (1 + math.exp(5.0)))


@pytest.mark.slow
def test_bounds_are_calibrated_on_the_runs_own_early_steps() -> None:
    config = small(n_updates=30, n_prompts=12, n_responses=8, engine=EngineMismatch(router_noise=constant(0.3)))
    with _watched(config) as (service, closed):
        named = [service.policy.name for _ in closed]
    assert named[:25] == ["trm_auto"] * 25
    assert named[-1] == "trm_auto (calibrated)"
    ceilings = [criterion.upper for criterion in preset("trm_auto").criteria]
    bounds = [criterion.upper for criterion in service.policy.criteria]
    assert bounds != ceilings
    assert all(
        bound is not None and ceiling is not None and bound <= ceiling
        for bound, ceiling in zip(bounds, ceilings, strict=True)
    )
