"""The score of a model, as it is, on runs of another trainer that no fit and no threshold has seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon_research.collapse.markdown import table
from trmon_research.collapse.moments import scored_moments
from trmon_research.collapse.scores import Alarms, Draws, of_moments, weighted_auroc, weighted_calibration_error
from trmon_research.collapse.stored_runs import StoredRun
from trmon_research.collapse.validation import speaks


def sealed_rows(runs: Sequence[StoredRun], model: RiskModel) -> Iterator[str]:
    """Yield the lines of the table: each figure with its 90% interval over configurations and its goal."""
    moments, draws = scored_moments(runs), Draws.of(runs)
    spoken = [speaks(model, run) for run in runs]
    predicted = [np.where(said, model.probabilities(run.features), 0.0) for said, run in zip(spoken, runs, strict=True)]
    values, said = moments.values(predicted), moments.values(spoken).astype(float)
    alarms = Alarms.of(runs, predicted, np.full(len(runs), model.file.page_at))
    well = np.array([run.was_never_hurt for run in runs])
    ill = len(set(moments.run[moments.falls].tolist()))
    area = draws.figure(of_moments(moments, weighted_auroc(values, moments.falls)))
    error = draws.figure(of_moments(moments, weighted_calibration_error(values, moments.falls)))
    coverage = draws.figure(of_moments(moments, lambda weights: float((weights * said).sum() / weights.sum())))
    yield f"{len(runs)} runs, {ill} with a collapse at a moment, {well.sum()} never hurt, {len(moments)} moments."
    yield ""
    yield from table(
        ["figure", "value", "goal"],
        [
            ["AUROC over all moments", area.words(), "0.80"],
            ["collapses found", draws.figure(alarms.share(alarms.is_target)).words(".0%"), "50%"],
            ["never-hurt runs alarmed meanwhile", draws.figure(alarms.share(well)).words(".0%"), "5%"],
            ["expected calibration error", error.words(), "0.06"],
            ["coverage", coverage.words(".0%"), "80%"],
        ],
    )
