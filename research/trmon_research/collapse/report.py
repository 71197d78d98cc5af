"""The page of the benchmark: docs/collapse-benchmark.md, written from the stored runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from trmon.domain.collapse_risk.fleet_calibration import PAGED
from trmon_research.collapse import baselines
from trmon_research.collapse.boosted import predictions_of_boosted_trees
from trmon_research.collapse.markdown import table
from trmon_research.collapse.moments import FIRST_UPDATE, Moments, scored_moments
from trmon_research.collapse.provenance import digest_of_page
from trmon_research.collapse.report_others import interventions, other_monitors
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert
from trmon_research.collapse.scores import (
    Alarms,
    Draws,
    Falls,
    Figure,
    of_moments,
    weighted_auroc,
    weighted_calibration_error,
)
from trmon_research.collapse.severity import COLLAPSE, DECLINE, Floats
from trmon_research.collapse.stored_runs import StoredRun
from trmon_research.collapse.told import is_page
from trmon_research.collapse.validation import (
    Folds,
    HeldOut,
    by_configuration,
    leaving_a_mechanism_out,
)

TEMPLATE = Path(__file__).with_name("report_template.md")
SOON = 20
Told = Mapping[str, Sequence[MonitorAlert]]


@dataclass(frozen=True)
class Benchmark:
    """Runs, the moments that are scored, and the predictions of runs that a model was not fitted to."""

    runs: Sequence[StoredRun]

    @cached_property
    def moments(self) -> Moments:
        """All moments at which it is known whether a collapse begins."""
        return scored_moments(self.runs)

    @cached_property
    def declines(self) -> Moments:
        """The same of a fall by 15%."""
        return scored_moments(self.runs, grade=DECLINE)

    @cached_property
    def draws(self) -> Draws:
        """The draws of all intervals."""
        return Draws.of([run.configuration for run in self.runs])

    @cached_property
    def held_out(self) -> HeldOut:
        """By folds of configurations."""
        return HeldOut.of(self.runs, self.moments, by_configuration(self.runs))

    @cached_property
    def unseen(self) -> HeldOut:
        """By leaving a mechanism out."""
        return HeldOut.of(self.runs, self.moments, leaving_a_mechanism_out(self.runs), is_nested=True)

    def auroc(self, predicted: Sequence[Floats], moments: Moments) -> Figure:
        """Return the area over moments with its interval."""
        n = len(set(moments.run[moments.falls].tolist()))
        score = of_moments(moments, weighted_auroc(moments.values(predicted), moments.falls))
        return self.draws.figure(score, of=f"{n} of {len(set(moments.run.tolist()))} runs")

    def auroc_within(self, found: HeldOut, moments: Moments) -> Figure:
        """Return the mean area within the folds, each weighted by its collapses: their models are not compared."""
        parts = []
        for place in sorted(set(found.fold.tolist())):
            of = moments.where(found.fold[moments.run] == place)
            n = len(set(of.run[of.falls].tolist()))
            parts.append((n, of_moments(of, weighted_auroc(of.values(found.calibrated), of.falls))))

        def mean(count: Floats) -> float:
            scores = [(n, part(count)) for n, part in parts if n]
            known = [(n, score) for n, score in scores if score == score]
            return sum(n * score for n, score in known) / sum(n for n, _ in known)

        return self.draws.figure(mean, of=f"{sum(n for n, _ in parts)} runs")

    def alarms(self, found: HeldOut) -> Alarms:
        """Return the alarms at thresholds that never-hurt runs of other folds give."""
        return Alarms.of(self.runs, found.calibrated, found.thresholds(alarmed=PAGED))

    @cached_property
    def never_hurt(self) -> Falls:
        """The runs that were never hurt."""
        return np.array([run.was_never_hurt for run in self.runs])


def shown(moments: Moments) -> Moments:
    """Return the moments at which signals can show what comes."""
    return moments.where(moments.can_show)


NOT_MEASURED = [
    "Not measured since the rules, the model or the label changed; `make collapse` does, in half an hour of a core."
]


def page(benchmark: Benchmark, told: Told | None, progress: Callable[[str], None], *, is_quick: bool = False) -> str:
    """Return the page as markdown; `progress` gets each title first.

    Args: told: None if the runs were not replayed, which leaves out what is of it; is_quick: no other predictors.
    """
    parts: Mapping[str, Callable[[], list[str]]] = {
        "runs": lambda: _the_runs(benchmark),
        "figures": lambda: _figures(benchmark),
        "unseen": lambda: _unseen(benchmark),
        "beside": lambda: NOT_MEASURED if is_quick else _beside(benchmark),
        "pages": lambda: NOT_MEASURED if told is None else _pages(benchmark, told),
        "monitors": lambda: NOT_MEASURED if told is None else other_monitors(benchmark.runs, told),
        "interventions": interventions,
    }
    lines = {}
    for name, made in parts.items():
        progress(name)
        lines[name] = "\n".join(made())
    collapsed = sum(run.onset is not None for run in benchmark.runs)
    scored = sum(run.onset is not None and run.onset > FIRST_UPDATE for run in benchmark.runs)
    return TEMPLATE.read_text().format(
        digest=digest_of_page(), n_runs=len(benchmark.runs), n_collapsed=collapsed, n_scored=scored, **lines
    )


def _the_runs(benchmark: Benchmark) -> list[str]:
    def row(name: str, runs: Sequence[StoredRun]) -> list[str]:
        falls = [[run for run in runs if run.course.onset(grade) is not None] for grade in (DECLINE, COLLAPSE)]
        still = sum(run.onset is None and (run.was_stopped or run.course.is_open(COLLAPSE)) for run in runs)
        well = sum(run.was_never_hurt for run in runs)
        onsets = [run.end for run in falls[1]]
        return [
            name,
            *map(str, (len(runs), well, *map(len, falls), still)),
            f"{np.median(onsets):.0f}" if onsets else "-",
        ]

    names = sorted({run.mechanism for run in benchmark.runs})
    of = {name: [run for run in benchmark.runs if run.mechanism == name] for name in names}
    head = ["mechanism", "runs", "never hurt", "lost 15%", "lost 30%", "censored", "median onset"]
    return table(head, [*(row(name.replace("_", " "), of[name]) for name in names), row("**all**", benchmark.runs)])


def _figures(benchmark: Benchmark) -> list[str]:
    columns = [_column(benchmark, found) for found in (benchmark.held_out, benchmark.unseen)]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return table(["figure", "other configurations", "other mechanisms"], rows)


def _column(benchmark: Benchmark, found: HeldOut) -> dict[str, str]:
    moments, draws = shown(benchmark.moments), benchmark.draws
    spoken = moments.values(found.spoken).astype(bool)
    alarms = benchmark.alarms(found)
    error = weighted_calibration_error(moments.values(found.calibrated), moments.falls)
    coverage = of_moments(moments, lambda weights: float((weights * spoken).sum() / weights.sum()))
    target, well = alarms.is_target, benchmark.never_hurt
    n = len(set(moments.run[moments.falls].tolist()))
    return {
        "AUROC, a fall by 30% begins within 200 updates": benchmark.auroc(found.calibrated, moments).words(),
        "the same within each fold": benchmark.auroc_within(found, moments).words(),
        "AUROC, a fall by 15%": benchmark.auroc(found.calibrated, shown(benchmark.declines)).words(),
        "AUROC, moments before the fault begins included": benchmark.auroc(found.calibrated, benchmark.moments).words(),
        f"collapses found, of {target.sum()}": draws.figure(alarms.share(target)).words(".0%"),
        f"never-hurt runs alarmed meanwhile, of {well.sum()} (wanted 5%)": draws.figure(alarms.share(well)).words(
            ".0%"
        ),
        "median lead of those found, updates": f"{np.median(alarms.leads):.0f}" if len(alarms.leads) else "-",
        "expected calibration error": draws.figure(of_moments(moments, error)).words(),
        "coverage: moments at which it speaks": draws.figure(coverage).words(".0%"),
        "moments, and the runs with a collapse among them": f"{len(moments)}, {n}",
    }


def _unseen(benchmark: Benchmark) -> list[str]:
    rows, found = [], benchmark.unseen
    moments = shown(benchmark.moments)
    for place, (name, _, _) in enumerate(leaving_a_mechanism_out(benchmark.runs)):
        of = moments.where(found.fold[moments.run] == place)
        figure = benchmark.auroc(found.calibrated, of)
        spoken = of.values(found.spoken).astype(float).mean()
        rows.append([name.replace("_", " "), figure.of, figure.words(), f"{spoken:.0%}"])
    return table(["left out, with a part of the healthy", "collapses", "AUROC", "coverage"], rows)


def _beside(benchmark: Benchmark) -> list[str]:
    runs, moments, draws = benchmark.runs, benchmark.moments, benchmark.draws
    folds, others = by_configuration(runs), leaving_a_mechanism_out(runs)
    before = baselines.moments_of_before(runs)
    predictors: Mapping[str, Callable[[Folds], list[Floats]]] = {
        "the model of before: with the learning rate, fitted to the label of before": lambda folds: (
            baselines.predictions(runs, before, folds, inputs=baselines.OF_BEFORE)
        ),
        "boosted trees on relative features of the same inputs": lambda folds: predictions_of_boosted_trees(
            runs, moments, folds
        ),
        "reward alone": lambda folds: baselines.predictions(runs, moments, folds, inputs=baselines.REWARD_ALONE),
        "the four signals of [DRIFT]": lambda folds: baselines.predictions(runs, moments, folds, inputs=baselines.FOUR),
        "configuration alone, which knows the schedule": lambda folds: baselines.predictions_of_configurations(
            runs, moments, folds
        ),
        "number of the update alone": lambda _: baselines.predictions_of_time(runs),
    }
    scored = shown(moments)
    ours = [
        of_moments(scored, weighted_auroc(scored.values(found.calibrated), scored.falls))
        for found in (benchmark.held_out, benchmark.unseen)
    ]
    rows = []
    for name, predict in predictors.items():
        cells = [name]
        for own, of in zip(ours, (folds, others), strict=True):
            predicted = predict(of)
            area = of_moments(scored, weighted_auroc(scored.values(predicted), scored.falls))
            cells.append(draws.figure(area).words())
            cells.append(draws.figure(lambda count, own=own, area=area: own(count) - area(count)).words("+.3f"))
        rows.append(cells)
    head = ["predictor", "other configurations", "trmon's minus it", "other mechanisms", "trmon's minus it"]
    return table(head, rows)


def _pages(benchmark: Benchmark, told: Told) -> list[str]:
    runs, draws = benchmark.runs, benchmark.draws
    messages = [told[run.name] for run in runs]
    collapses = np.array([run.onset is not None for run in runs])

    def share(holds: Callable[[StoredRun, Sequence[MonitorAlert]], bool], chosen: Falls) -> str:
        is_so = np.array([holds(run, of) for run, of in zip(runs, messages, strict=True)])
        figure = draws.figure(lambda count: float((count * chosen * is_so).sum() / (count * chosen).sum()))
        return f"{(is_so & chosen).sum()} of {chosen.sum()}: {figure.words('.0%')}"

    def by(last: int, *, paged: bool) -> Callable[[StoredRun, Sequence[MonitorAlert]], bool]:
        return lambda run, of: any(one.step < (run.onset or 0) + last for one in of if is_page(one) or not paged)

    pages = np.array([sum(map(is_page, of)) for of in messages])
    harm = np.array(
        [sum(is_page(one) and run.is_harm(one.step) for one in of) for run, of in zip(runs, messages, strict=True)]
    )
    right = draws.figure(lambda count: float((count * harm).sum() / max((count * pages).sum(), 1)))
    rows = [
        ["never-hurt runs paged", share(lambda _, of: any(map(is_page, of)), benchmark.never_hurt), "6 of 177"],
        ["never-hurt runs paged or warned", share(lambda _, of: bool(of), benchmark.never_hurt), "25%"],
        ["pages that were harm", f"{harm.sum()} of {pages.sum()}: {right.words('.0%')}", "90%"],
        ["collapses told before they began", share(by(0, paged=False), collapses), "75%"],
        [f"by {SOON} updates after", share(by(SOON + 1, paged=False), collapses), "80%"],
        ["collapses paged before they began", share(by(0, paged=True), collapses), ""],
        [f"paged by {SOON} updates after", share(by(SOON + 1, paged=True), collapses), ""],
    ]
    return table(["figure", "count and share", "wanted"], rows)
