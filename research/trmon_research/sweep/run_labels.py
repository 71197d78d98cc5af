"""Labels of a run: where it collapsed by its clean evaluation, and what a predictor should have said before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trmon.domain.analysis.collapse import SPAN, WITHIN, Collapse, CollapseSign, find_collapse

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

    The moving average begins at the first evaluation, which is no noisier than later ones: a run that falls at once
    has collapsed. Source: formulas, section 9, collapse.
    """
    found = [each for each in (_fall(evaluated_rewards), _spike(evaluated_rewards, grad_norms)) if each is not None]
    first = min(found, key=lambda collapse: collapse.step, default=None)
    return RunLabel(
        onset=None if first is None else first.step,
        sign=None if first is None else first.sign,
        n_updates=len(evaluated_rewards),
    )


def _fall(rewards: Sequence[float]) -> Collapse | None:
    """Return the fall of the reward; as many updates as the average waits for are put before the first one."""
    found = find_collapse([*(list(rewards[:1]) * SPAN), *rewards])
    return None if found is None else Collapse(max(0, found.step - SPAN), found.sign)


def _spike(rewards: Sequence[float], grad_norms: Sequence[float]) -> Collapse | None:
    """Return the first spike of the gradient norm, unless the reward falls before it."""
    found = find_collapse(rewards, grad_norms=grad_norms)
    return found if found is not None and found.sign is CollapseSign.GRADIENT_SPIKED else None
