"""The steps of a run that a calibration measures. Source: formulas, section 8."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trmon.domain.model.identity import BatchKey

SAMPLE_STEPS = 20
SETTLED_STEPS = 5
"""How many steps the learning rate must not have risen for: warm-up is over."""
FIRST_STEP = 20
"""The first step of the sample where the trainer does not send `lr`, as an index."""
SECOND_STEP = 100
"""After how many steps bounds are measured once more."""
LR_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class CalibrationStep:
    """One step: the row with its sequences, how many of them have a mismatch pair, and the learning rate or NaN."""

    key: BatchKey
    n_sequences: int
    lr: float


def first_sample(steps: Sequence[CalibrationStep], *, sequences: int) -> Sequence[CalibrationStep] | None:
    """Return the steps of the first calibration: from the end of the warm-up until there are enough; None: not yet.

    Args: steps: the steps of the run whose rows are final, oldest first.
    """
    start = _start(steps)
    if start is None:
        return None
    found = 0
    for end in range(start, len(steps)):
        found += steps[end].n_sequences
        if end + 1 - start >= SAMPLE_STEPS and found >= sequences:
            return steps[start : end + 1]
    return None


def second_sample(steps: Sequence[CalibrationStep], *, sequences: int) -> Sequence[CalibrationStep] | None:
    """Return the newest steps up to the 100th that are enough; None before it, or if they are too few.

    Args: steps: the steps of the run whose rows are final, oldest first.
    """
    if len(steps) < SECOND_STEP:
        return None
    found = 0
    for start in reversed(range(SECOND_STEP)):
        found += steps[start].n_sequences
        if SECOND_STEP - start >= SAMPLE_STEPS and found >= sequences:
            return steps[start:SECOND_STEP]
    return None


def _start(steps: Sequence[CalibrationStep]) -> int | None:
    """Return the index of the first step of the sample; None while the warm-up lasts."""
    if all(math.isnan(step.lr) for step in steps[:FIRST_STEP]):
        return FIRST_STEP if len(steps) > FIRST_STEP else None
    first = next(index for index, step in enumerate(steps) if not math.isnan(step.lr))
    highest, risen = steps[first].lr, first
    for index in range(first, len(steps)):
        if steps[index].lr > highest + LR_NOISE * abs(highest):
            highest, risen = steps[index].lr, index
        elif index - risen >= SETTLED_STEPS:
            return index
    return None
