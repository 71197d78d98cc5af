"""What the risk of a collapse, as the service computed it, foretold of the stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon_research.collapse.moments import EVERY, FIRST_UPDATE
from trmon_research.collapse.scores import Draws, Figure, weighted_auroc, weighted_calibration_error
from trmon_research.collapse.severity import COLLAPSE, HURT, Course, Floats

LASTS = 20
"""Updates that a fall must last. The label of the lab asks for 100 and looks 200 ahead: these runs have 140."""
WANTED = ("", "80%", "0.80", "0.06", "50%", "10%", "5%")
"""What is wanted of each figure of the sealed half."""


@dataclass(frozen=True, eq=False)
class Foretold:
    """A run: the update since which something is wrong, 0 without, its risk at each update and its clean evaluations.

    `risk` [updates] is NaN where the predictor is silent. `evaluated` are rewards by update, in force until the next.
    """

    configuration: str
    begins: int
    risk: Floats
    evaluated: dict[int, float]

    @cached_property
    def course(self) -> Course:
        """The course of its clean evaluation."""
        known = np.array(sorted(self.evaluated))
        in_force = known[np.maximum(np.searchsorted(known, np.arange(len(self.risk)), side="right") - 1, 0)]
        return Course.of([self.evaluated[update] for update in in_force.tolist()], lasts=LASTS)

    @cached_property
    def onset(self) -> int | None:
        """The update at which it loses 30% of its peak, and keeps it lost; None if it does not."""
        return self.course.onset(COLLAPSE)

    @property
    def was_never_hurt(self) -> bool:
        """Whether it never was 20% below its peak."""
        return bool(self.course.lost.max() < HURT)

    @property
    def moments(self) -> range:
        """Every ten updates from update 60, and from the fault on, until it collapses or no fall could last.

        None of a run that ends in a fall, too early to tell whether it lasts.
        """
        if self.course.is_open(COLLAPSE):
            return range(0)
        end = len(self.risk) - LASTS if self.onset is None else self.onset
        first = max(FIRST_UPDATE, self.begins)
        return range(first + -first % EVERY, end, EVERY)


def risk_figures(runs: Sequence[Foretold]) -> dict[str, str]:
    """Return of all moments how well the risk ranks them, where it speaks, and whom it alarms; silence counts as 0."""
    draws = Draws.of([run.configuration for run in runs])
    place = np.array([i for i, run in enumerate(runs) for _ in run.moments])
    risk = np.array([run.risk[update] for run in runs for update in run.moments])
    falls = np.array([run.onset is not None for run in runs for _ in run.moments])
    spoken = ~np.isnan(risk)
    given = np.where(spoken, risk, 0.0)
    area, error = weighted_auroc(given, falls), weighted_calibration_error(given, falls)
    collapses = np.array([run.onset is not None and run.onset > FIRST_UPDATE for run in runs])
    well = np.array([run.was_never_hurt for run in runs])

    def share(chosen: npt.NDArray[np.bool_], of: npt.NDArray[np.bool_]) -> Figure:
        return draws.figure(lambda count: float((count * chosen * of).sum() / max((count * of).sum(), 1e-9)))

    def alarmed(of: npt.NDArray[np.bool_], *, at: float) -> str:
        before = [run.risk[: run.onset] for run in runs]
        is_alarmed = np.array([bool((values[FIRST_UPDATE:] > at).any()) for values in before])
        return f"{(is_alarmed & of).sum()} of {of.sum()}: {share(is_alarmed, of).words('.0%')}"

    file = shipped_model().file
    coverage = draws.figure(lambda count: float(count[place][spoken].sum() / count[place].sum()))
    return {
        "moments, and the runs with a collapse among them": f"{len(risk)}, {collapses.sum()} of {len(runs)}",
        "coverage: moments at which it speaks": coverage.words(".0%"),
        "AUROC": draws.figure(lambda count: area(count[place])).words(),
        "expected calibration error": draws.figure(lambda count: error(count[place])).words(),
        "collapses found, at the threshold of a warning": alarmed(collapses, at=file.warn_at),
        "never-hurt runs alarmed, at the threshold of a warning": alarmed(well, at=file.warn_at),
        "never-hurt runs alarmed, at the higher threshold": alarmed(well, at=file.page_at),
    }
