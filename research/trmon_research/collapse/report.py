"""The report of the benchmark: docs/collapse-benchmark.md, written from the stored runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trmon.domain.analysis.collapse import CollapseSign
from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES
from trmon.domain.collapse_risk.risk_model import HORIZON
from trmon_research.collapse import baselines
from trmon_research.collapse.conjectures import CONJECTURES
from trmon_research.collapse.markdown import number, table
from trmon_research.collapse.moments import Moments, scored_moments
from trmon_research.collapse.report_others import interventions, other_monitors
from trmon_research.collapse.scores import AlarmScore, alarm_score, auroc, calibration_error, threshold_at
from trmon_research.collapse.stored_runs import Floats, StoredRun
from trmon_research.collapse.validation import (
    Chosen,
    by_configuration,
    calibrated,
    fit_to,
    fit_to_moments,
    leaving_a_mechanism_out,
    leaving_out,
    predictions,
)

AT_UPDATE, AROUND = 200, 20
FALSE_ALARMS = (0.05, 0.10)
BEST_INPUTS = 10


@dataclass(frozen=True)
class Benchmark:
    """The stored runs, the moments that are scored, and the calibrated predictions of held-out configurations."""

    runs: Sequence[StoredRun]

    @cached_property
    def moments(self) -> Moments:
        """All moments whose label is known."""
        return scored_moments(self.runs)

    @cached_property
    def shown(self) -> Moments:
        """The moments at which signals can show what comes."""
        return self.moments.where(self.moments.can_show)

    @cached_property
    def every_run(self) -> Chosen:
        """All runs, chosen."""
        return np.ones(len(self.runs), bool)

    @cached_property
    def uncalibrated(self) -> list[Floats]:
        """What models predict at each update of the runs that they were not fitted to."""
        return predictions(self.runs, self.moments, by_configuration(self.runs))

    @cached_property
    def predicted(self) -> list[Floats]:
        """The same by the one calibration that the shipped model has, which changes no order."""
        return calibrated(self.uncalibrated, fit_to_moments(self.shown, self.uncalibrated))

    @cached_property
    def cross_calibrated(self) -> list[Floats]:
        """The same by calibrations that the runs of a fold had no part in, for the calibration error."""
        found = list(self.uncalibrated)
        for fitted, held in by_configuration(self.runs):
            calibration = fit_to_moments(self.shown.where(fitted[self.shown.run]), self.uncalibrated)
            for place in np.flatnonzero(held):
                (found[place],) = calibrated([self.uncalibrated[place]], calibration)
        return found

    def aurocs(self, predicted: Sequence[Floats]) -> tuple[float, float]:
        """Return the AUROC at update 200 and over all moments."""
        values = self.shown.values(predicted)
        near = np.abs(self.shown.update - AT_UPDATE) <= AROUND
        return auroc(values[near], self.shown.collapses[near]), auroc(values, self.shown.collapses)

    def alarms(self, predicted: Sequence[Floats], *, false_alarms: float) -> AlarmScore:
        """Return the score of alarms at the threshold with a share of false ones."""
        threshold = threshold_at(self.runs, predicted, false_alarms=false_alarms)
        return alarm_score(self.runs, predicted, threshold=threshold)


def report_sections(benchmark: Benchmark, progress: Callable[[str], None]) -> Iterator[str]:
    """Yield the measured sections of the report as markdown, in order; `progress` gets each title first."""
    for title, lines in (
        ("The runs", _the_runs),
        ("Held-out configurations", _held_out),
        ("By mechanism and by sign", _by_mechanism),
        ("Kinds of runs that the model has not seen", _left_out),
        ("Beside other predictors", _beside),
        ("Single inputs", _single_inputs),
        ("Beside other monitors", lambda benchmark: other_monitors(benchmark.runs)),
        ("Acting on the prediction", lambda _: interventions()),
        ("What the runs say of the conjectures", _conjectures),
    ):
        progress(title)
        yield "\n".join([f"## {title}", "", *lines(benchmark), ""])


def _the_runs(benchmark: Benchmark) -> list[str]:
    runs = benchmark.runs
    mechanisms = sorted({run.config.mechanism for run in runs})
    rows = [
        _runs_row(name.replace("_", " "), [run for run in runs if run.config.mechanism == name]) for name in mechanisms
    ]
    return table(
        ["mechanism", "runs", "collapsed", "reward fell", "gradient spiked", "median onset"],
        [*rows, _runs_row("**all**", runs)],
    )


def _runs_row(name: str, runs: Sequence[StoredRun]) -> list[str]:
    onsets = [run.end for run in runs if run.has_collapsed]
    signs = [sum(run.label.sign is sign for run in runs) for sign in CollapseSign]
    return [name, str(len(runs)), str(len(onsets)), *map(str, signs), f"{np.median(onsets):.0f}" if onsets else "-"]


def _held_out(benchmark: Benchmark) -> list[str]:
    at_update, over_all = benchmark.aurocs(benchmark.predicted)
    values, every = benchmark.shown.values(benchmark.cross_calibrated), benchmark.moments
    rows = [
        [f"AUROC at update {AT_UPDATE} (±{AROUND}), {HORIZON} updates ahead", number(at_update, digits=3)],
        ["AUROC over all moments", number(over_all, digits=3)],
        [
            "AUROC over all moments, those before the fault begins included",
            number(auroc(every.values(benchmark.predicted), every.collapses), digits=3),
        ],
        ["expected calibration error", number(calibration_error(values, benchmark.shown.collapses), digits=3)],
        [
            "moments, and collapses within 200 updates",
            f"{len(benchmark.shown)}, {int(benchmark.shown.collapses.sum())}",
        ],
    ]
    for share in FALSE_ALARMS:
        score = benchmark.alarms(benchmark.predicted, false_alarms=share)
        found = (
            f"{score.found} of {score.collapses} ({score.share_found:.0%}), median lead {score.median_lead:.0f} updates"
        )
        rows.append([f"collapses found at {share:.0%} false alarms (threshold {score.threshold:.2f})", found])
    return table(["measure", "value"], rows)


def _by_mechanism(benchmark: Benchmark) -> list[str]:
    groups = [(run.config.mechanism.replace("_", " "), run) for run in benchmark.runs]
    groups += [(f"sign: {run.label.sign.value.replace('_', ' ')}", run) for run in benchmark.runs if run.label.sign]
    threshold = benchmark.alarms(benchmark.predicted, false_alarms=FALSE_ALARMS[0]).threshold
    found = dict(zip(map(id, benchmark.runs), benchmark.predicted, strict=True))
    rows = []
    for name in sorted({name for name, _ in groups}):
        runs = [run for group, run in groups if group == name]
        score = alarm_score(runs, [found[id(run)] for run in runs], threshold=threshold)
        lead = number(score.median_lead, digits=0)
        rows.append([name, f"{score.found} of {score.collapses}", lead, f"{score.others_alarmed} of {score.others}"])
    return table(["at 5% false alarms", "found", "median lead", "others alarmed"], rows)


def _left_out(benchmark: Benchmark) -> list[str]:
    kinds: tuple[tuple[str, Callable[[StoredRun], str]], ...] = (
        ("task", lambda run: run.config.task),
        ("architecture", lambda run: run.config.architecture.value),
    )
    folds = [("mechanism", fold) for fold in leaving_a_mechanism_out(benchmark.runs)]
    folds += [(kind, fold) for kind, of in kinds for fold in leaving_out(benchmark.runs, of)]
    rows, scores = [], dict[str, list[float]]()
    for kind, (name, fitted, held) in folds:
        moments = benchmark.shown.where(held[benchmark.shown.run])
        model = fit_to(benchmark.runs, benchmark.moments, fitted)
        predicted = [
            model.probabilities(run.features) if is_held else np.zeros(0)
            for run, is_held in zip(benchmark.runs, held, strict=True)
        ]
        score = auroc(moments.values(predicted), moments.collapses)
        n = len(set(moments.run[moments.collapses].tolist()))
        rows.append([f"{kind}: {name.replace('_', ' ')}", str(n), number(score, digits=3)])
        scores.setdefault(kind, []).extend([score] if n else [])
    means = [[f"**mean over {kind}s**", "", number(float(np.mean(of)), digits=3)] for kind, of in scores.items()]
    return table(["left out", "collapses", "AUROC"], [*rows, *means])


def _beside(benchmark: Benchmark) -> list[str]:
    def of(inputs: Sequence[str]) -> list[Floats]:
        return baselines.predictions_of_inputs(runs, moments, by_configuration(runs), inputs=inputs)

    runs, moments = benchmark.runs, benchmark.moments
    predictors: tuple[tuple[str, list[Floats]], ...] = (
        ("trmon's model", benchmark.predicted),
        ("all inputs that a history holds", of(INPUT_NAMES)),
        ("the four signals of the conjecture", of(baselines.FOUR)),
        ("the same with reward, gradient norm, entropy, k3", of(baselines.EIGHT)),
        ("reward alone", of(baselines.REWARD_ALONE)),
        ("configuration alone", baselines.predictions_of_configurations(runs, moments, by_configuration(runs))),
        ("number of the update alone", baselines.predictions_of_time(runs)),
        ("published limits, how many are broken", baselines.published_limits(runs)),
    )
    rows = []
    for name, predicted in predictors:
        scores = [benchmark.alarms(predicted, false_alarms=share) for share in FALSE_ALARMS]
        cells = [f"{score.share_found:.0%}, {number(score.median_lead, digits=0)}" for score in scores]
        rows.append([name, *(number(value, digits=3) for value in benchmark.aurocs(predicted)), *cells])
    return table(["predictor", "AUROC at 200", "AUROC, all", "found, lead at 5%", "found, lead at 10%"], rows)


def _single_inputs(benchmark: Benchmark) -> list[str]:
    runs, moments = benchmark.runs, benchmark.moments
    scored = []
    for name in INPUT_NAMES:
        if not any(np.isfinite(run.inputs[:, INPUT_NAMES.index(name)]).any() for run in runs):
            continue
        predicted = baselines.predictions_of_inputs(runs, moments, by_configuration(runs), inputs=(name,))
        scored.append((name, *benchmark.aurocs(predicted)))
    scored.sort(key=lambda row: -row[2])
    rows = [
        [f"`{name}`", number(near, digits=3), number(every, digits=3)] for name, near, every in scored[:BEST_INPUTS]
    ]
    return table(["input", "AUROC at 200", "AUROC, all"], rows)


def _conjectures(benchmark: Benchmark) -> list[str]:
    lines = []
    for title, rows in CONJECTURES:
        lines += [f"**{title}.**", "", *rows(benchmark.runs), ""]
    return lines[:-1]
