"""The benchmark of collapse: what it scores, what it holds out, and that a fitted model is the one that is read."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from trmon.domain.collapse_risk.risk_inputs import FEATURE_NAMES
from trmon.domain.collapse_risk.risk_model import decode_model
from trmon_research.collapse.command import encoded, fitted
from trmon_research.collapse.fitting import fit_model
from trmon_research.collapse.moments import scored_moments
from trmon_research.collapse.report import Benchmark, shown
from trmon_research.collapse.scores import (
    Alarms,
    Draws,
    auroc,
    of_moments,
    threshold_at,
    weighted_auroc,
    weighted_calibration_error,
)
from trmon_research.collapse.stored_runs import RUNS, StoredRun, read_runs
from trmon_research.collapse.validation import by_configuration, leaving_a_mechanism_out, speaks

DRAWDOWN = FEATURE_NAMES.index("reward_mean.drawdown")


@pytest.fixture(scope="module")
def runs() -> list[StoredRun]:
    """Stored runs: enough for both outcomes in each fold."""
    return read_runs(RUNS)[::5]


def _run(runs: list[StoredRun], *, collapsed: bool) -> StoredRun:
    return next(run for run in runs if (run.onset is not None) is collapsed and run.end > 100)


def test_moments_end_at_the_onset_and_where_the_label_is_not_known(runs: list[StoredRun]) -> None:
    ill, well = _run(runs, collapsed=True), next(run for run in runs if run.was_never_hurt)
    moments = scored_moments([ill, well])
    of_ill, of_well = (moments.where(moments.run == place) for place in (0, 1))
    assert of_ill.update.max() < ill.end
    assert (of_ill.falls == (ill.end - of_ill.update <= 200)).all()
    assert not of_well.falls.any()
    assert of_well.update.max() < well.n_updates - 300
    assert (moments.update % 10 == 0).all()
    assert moments.can_show[0] == (ill.begins <= 60)


def test_a_page_is_harm_if_the_run_is_hurt_or_collapses_within_200_updates(runs: list[StoredRun]) -> None:
    ill, well = _run(runs, collapsed=True), next(run for run in runs if run.was_never_hurt)
    hurt = int(np.flatnonzero(ill.course.lost >= 0.2)[0])
    first = min(hurt, ill.end) - 200
    assert [ill.is_harm(update) for update in (first - 1, first, ill.end, ill.n_updates)] == [False, True, True, True]
    assert not any(well.is_harm(update) for update in range(well.n_updates))


def test_the_inputs_of_a_rollout_are_those_of_the_updates_before_it(runs: list[StoredRun]) -> None:
    run = runs[0]
    np.testing.assert_array_equal(run.inputs[1:, -1], run.columns["clip_fraction"][:-1])
    assert np.isnan(run.inputs[0, -1])


def test_scores_equal_what_is_counted_by_hand() -> None:
    predicted, falls = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    assert auroc(predicted, falls) == 0.75
    assert weighted_auroc(predicted, falls)(np.array([1.0, 0.0, 1.0, 5.0])) == 1.0
    assert auroc(np.zeros(4), falls) == 0.5, "ties count by half"
    assert np.isnan(auroc(predicted, np.ones(4, bool)))
    error = weighted_calibration_error(np.array([0.05, 0.05, 0.95, 0.95]), falls)
    assert error(np.ones(4)) == pytest.approx(0.05)
    assert error(np.array([1.0, 1.0, 0.0, 0.0])) == pytest.approx(0.05)
    assert threshold_at([0.1, 0.2, 0.3, 0.9], alarmed=0.25) == 0.3


def test_an_interval_is_over_configurations_and_holds_the_figure(runs: list[StoredRun]) -> None:
    twin = structs.replace(runs[0].record, config=structs.replace(runs[0].record.config, seed=1))
    both = [*runs, StoredRun.of(twin, runs[0].columns)]
    draws = Draws.of([run.configuration for run in both], draws=50)
    assert (draws.counts[0] == 1.0).all()
    assert (draws.counts[:, 0] == draws.counts[:, -1]).all(), "another seed of a configuration goes with it"
    well = np.array([run.was_never_hurt for run in both])
    alarms = Alarms.of(both, [np.full(run.n_updates, 0.5) for run in both], np.where(well, 1.0, 0.1))
    figure = draws.figure(alarms.share(alarms.is_target))
    assert (figure.value, figure.low, figure.high) == (1.0, 1.0, 1.0)
    assert draws.figure(alarms.share(well)).value == 0.0
    moments = scored_moments(both)
    area = draws.figure(of_moments(moments, weighted_auroc(moments.update.astype(float), moments.falls)))
    assert area.low < area.value < area.high


def test_held_out_runs_are_no_part_of_what_a_model_is_fitted_to(runs: list[StoredRun]) -> None:
    twin = structs.replace(runs[0].record, config=structs.replace(runs[0].record.config, seed=1))
    both = [*runs, StoredRun.of(twin, runs[0].columns)]
    for folds in (by_configuration(both), leaving_a_mechanism_out(both)):
        times_held = np.zeros(len(both), int)
        for _, fitted_runs, held in folds:
            assert not (fitted_runs & held).any()
            assert held[0] == held[-1], "another seed of a configuration stays with it"
            times_held += held
        assert (times_held >= 1).all()
    for name, _, held in leaving_a_mechanism_out(runs):
        kinds = {runs[place].mechanism for place in np.flatnonzero(held)} - {"healthy"}
        assert name == "the others" or kinds == {name}


def test_a_model_finds_what_precedes_a_collapse_and_its_file_is_the_model() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, len(FEATURE_NAMES)))
    features[rng.random(features.shape) < 0.1] = np.nan
    falls = np.nan_to_num(features[:, DRAWDOWN]) + 0.3 * rng.normal(size=3000) > 1.0
    model = fit_model(features[:2000], falls[:2000])
    assert auroc(model.probabilities(features[2000:]), falls[2000:]) > 0.9
    read = decode_model(encoded(model))
    assert read.file == model.file
    np.testing.assert_array_equal(read.probabilities(features), model.probabilities(features))


def test_the_model_is_fitted_to_the_runs_and_scored_on_others(runs: list[StoredRun]) -> None:
    benchmark = Benchmark(runs)
    model = fitted(benchmark)
    assert model.file.fitted_on["runs"] == len(runs)
    assert 0.0 < model.file.warn_at <= model.file.page_at < 1.0
    moments = shown(benchmark.moments)
    everything = moments.values([run.features for run in runs])
    assert auroc(model.probabilities(everything), moments.falls) > 0.9, "of the runs that it was fitted to"
    assert not any(name.file.features == model.file.features for name in benchmark.held_out.models)
    for run, said, values in zip(runs, benchmark.held_out.spoken, benchmark.held_out.calibrated, strict=True):
        assert (values[~said] == 0.0).all()
        assert not said[:59].any()
        assert speaks(model, run).shape == said.shape
