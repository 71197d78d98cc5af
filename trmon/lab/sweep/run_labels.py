"""Labels of a run: where it collapsed by its clean evaluation, and what a predictor should have said before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trmon.lab.testbed.collapse import WITHIN, CollapseSign, find_collapse

HORIZON = 200
"""A predictor estimates the chance that a collapse begins within this many updates."""


class RunLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The first update of a run's collapse and its sign, None without one, and how many updates were labelled."""

    onset: int | None
    sign: CollapseSign | None
    n_updates: int

    def collapses_after(self, update: int) -> bool | None:
        """Return whether a collapse begins in the HORIZON updates after one.

        None where that is not known: from the onset on, and where the run ended too early to tell.
        """
        if self.onset is not None:
            return None if update >= self.onset else self.onset - update <= HORIZON
        return False if update + HORIZON <= self.n_updates - WITHIN else None


def label_run(evaluated_rewards: Sequence[float], grad_norms: Sequence[float]) -> RunLabel:
    """Return the label of a run from the clean evaluation in force and the gradient norm at each update.

    Source: formulas, section 9, collapse.
    """
    found = find_collapse(evaluated_rewards, grad_norms=grad_norms)
    return RunLabel(
        onset=None if found is None else found.step,
        sign=None if found is None else found.sign,
        n_updates=len(evaluated_rewards),
    )
