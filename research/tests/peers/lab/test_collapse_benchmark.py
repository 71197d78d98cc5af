"""The benchmark of collapse: what it scores, what it holds out, and that a fitted model is the one that is read."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from trmon.domain.collapse_risk.risk_inputs import FEATURE_NAMES
from trmon.domain.collapse_risk.risk_model import decode_model
from trmon_research.collapse.command import encoded, fitted
from trmon_research.collapse.fitting import fit_model
from trmon_research.collapse.moments import Moments, scored_moments
from trmon_research.collapse.report import Benchmark, report_sections
from trmon_research.collapse.report_page import report_page
from trmon_research.collapse.scores import alarm_score, auroc, calibration_error, threshold_at
from trmon_research.collapse.stored_runs import RUNS, Floats, StoredRun, read_runs
from trmon_research.collapse.validation import by_configuration, leaving_a_mechanism_out
from trmon_research.sweep.sweep_plan import first_change

DRAWDOWN = FEATURE_NAMES.index("reward_mean.drawdown")


@pytest.fixture(scope="module")
def runs() -> list[StoredRun]:
    """Stored runs: enough for both outcomes in each fold."""
    return read_runs(RUNS)[::3]


def _run(runs: list[StoredRun], *, collapsed: bool) -> StoredRun:
    return next(run for run in runs if run.has_collapsed is collapsed and run.end > 100)


def test_moments_end_at_the_onset_and_where_the_label_is_not_known(runs: list[StoredRun]) -> None:
    ill, well = _run(runs, collapsed=True), _run(runs, collapsed=False)
    moments = scored_moments([ill, well])
    of_ill, of_well = (moments.where(moments.run == place) for place in (0, 1))
    assert of_ill.update.max() < ill.end
    assert (of_ill.collapses == (ill.end - of_ill.update <= 200)).all()
    assert not of_well.collapses.any()
    assert of_well.update.max() <= well.label.n_updates - 300
    assert (moments.update % 10 == 0).all()
    assert moments.can_show[0] == (first_change(ill.config) <= 60)


def test_the_inputs_of_a_rollout_are_those_of_the_updates_before_it(runs: list[StoredRun]) -> None:
    run = runs[0]
    place = -1
    np.testing.assert_array_equal(run.inputs[1:, place], run.columns["clip_fraction"][:-1])
    assert np.isnan(run.inputs[0, place])


def test_scores_equal_what_is_counted_by_hand() -> None:
    predicted, collapses = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    assert auroc(predicted, collapses) == 0.75
    assert np.isnan(auroc(predicted, np.ones(4, bool)))
    assert calibration_error(np.array([0.05, 0.05, 0.95, 0.95]), collapses) == pytest.approx(0.05)
    assert calibration_error(np.array([0.95, 0.95, 0.05, 0.05]), collapses) == pytest.approx(0.95)


def test_alarms_are_scored_by_run(runs: list[StoredRun]) -> None:
    ill, well = _run(runs, collapsed=True), _run(runs, collapsed=False)
    early = np.zeros(ill.label.n_updates)
    early[ill.end - 20 :] = 0.9
    late = np.zeros(ill.label.n_updates)
    late[ill.end :] = 0.9
    quiet = np.full(well.label.n_updates, 0.3)
    predicted: list[Floats] = [early, late, quiet]
    threshold = threshold_at([ill, ill, well], predicted, false_alarms=0.0)
    assert threshold == pytest.approx(0.3)
    score = alarm_score([ill, ill, well], predicted, threshold=threshold)
    assert (score.found, score.collapses, score.median_lead) == (1, 2, 20)
    assert (score.others_alarmed, score.others) == (0, 1)


def test_held_out_runs_are_no_part_of_what_a_model_is_fitted_to(runs: list[StoredRun]) -> None:
    twin = structs.replace(runs[0].record, config=structs.replace(runs[0].config, seed=1))
    both = [*runs, StoredRun(twin, runs[0].columns)]
    times_held = np.zeros(len(both), int)
    for fitted_runs, held in by_configuration(both):
        assert not (fitted_runs & held).any()
        assert held[0] == held[-1], "another seed of a configuration stays with it"
        times_held += held
    assert (times_held == 1).all()
    for name, fitted_runs, held in leaving_a_mechanism_out(runs):
        assert not (fitted_runs & held).any()
        assert {runs[place].config.mechanism for place in np.flatnonzero(held)} == {name, "healthy"}


def test_a_model_finds_what_precedes_a_collapse_and_its_file_is_the_model() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, len(FEATURE_NAMES)))
    features[rng.random(features.shape) < 0.1] = np.nan
    collapses = np.nan_to_num(features[:, DRAWDOWN]) + 0.3 * rng.normal(size=3000) > 1.0
    model = fit_model(features[:2000], collapses[:2000])
    assert auroc(model.probabilities(features[2000:]), collapses[2000:]) > 0.9
    read = decode_model(encoded(model))
    assert read.file == model.file
    np.testing.assert_array_equal(read.probabilities(features), model.probabilities(features))


def test_the_report_has_every_section_and_the_model_is_fitted_to_the_runs(runs: list[StoredRun]) -> None:
    benchmark = Benchmark(runs)
    told: list[str] = []
    page = report_page(runs, list(report_sections(benchmark, told.append)))
    assert all(f"## {title}\n" in page for title in told)
    assert f"on {len(runs)} labelled runs" in page
    assert "{" not in page
    model = fitted(benchmark)
    assert model.file.fitted_on["runs"] == len(runs)
    assert 0.0 < model.file.warn_at <= model.file.page_at < 1.0
    moments: Moments = benchmark.shown
    everything = moments.values([run.features for run in runs])
    assert auroc(model.probabilities(everything), moments.collapses) > 0.9, "of the runs that it was fitted to"
