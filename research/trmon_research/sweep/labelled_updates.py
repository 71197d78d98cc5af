"""Trains until the label of a run is certain."""

from __future__ import annotations

from collections.abc import Iterable

from trmon.lab.grpo.grpo_trainer import EVALUATE_EVERY, UpdateOutcome
from trmon_research.sweep.run_labels import RunLabel, label_run


def label_updates(
    updates: Iterable[UpdateOutcome], *, earlier: Iterable[UpdateOutcome] = ()
) -> tuple[list[UpdateOutcome], RunLabel]:
    """Return the updates of a run and its label; no update is asked for once a collapse is certain.

    Args: earlier: those before the given ones. The onset is an index of the returned list.
    """
    outcomes = list(earlier)
    for outcome in updates:
        outcomes.append(outcome)
        if outcome.update % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            label = _label(outcomes)
            if label.onset is not None:
                return outcomes, label
    return outcomes, _label(outcomes)


def _label(outcomes: list[UpdateOutcome]) -> RunLabel:
    return label_run([each.evaluated.reward for each in outcomes], [each.grad_norm for each in outcomes])
