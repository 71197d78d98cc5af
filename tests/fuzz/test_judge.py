"""No row stops the judge: random illnesses with values left out, not finite or absurd, restarts and changes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.findings.series import COUNT, Case, one_of_series
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.verdict import judge_run

pytestmark = pytest.mark.fuzz

CATALOGUE = builtin_catalogue()
JUDGE = Judge(CATALOGUE)
STRANGE = (0.0, -1.0, 5e-324, 1e300, -1e300, math.nan, math.inf, -math.inf)
RESTARTS = 0.02


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(0, COUNT - 1), st.sampled_from([0.0, 0.02, 0.3]))
def test_every_row_is_judged(seed: int, place: int, strange: float) -> None:
    case, rng, state = one_of_series(seed, place), random.Random(seed), JudgeState()
    for row in disturbed(case, strange, rng):
        state = JUDGE.fold(state, row)
    for found in (state, JUDGE.finish(state)):
        assert judge_run(found, CATALOGUE) is not None
    assert state.rows == len(case.rows)


def disturbed(case: Case, strange: float, rng: random.Random) -> Iterator[Row]:
    """Yield rows with values left out or replaced, whose trainer goes back in steps and changes its configuration."""
    attempt, step, config = 0, 0, 0
    for values in case.rows:
        if rng.random() < RESTARTS:
            attempt, step = attempt + 1, max(0, step - rng.randint(0, 5))
        config += rng.random() < RESTARTS
        facts = {"replay_declared": 1.0} if rng.random() < 0.5 else {}
        yield Row(place=Place(attempt, step), values=changed(values, strange, rng), facts=facts, config=str(config))
        step += 1


def changed(values: Mapping[str, float], strange: float, rng: random.Random) -> dict[str, float]:
    """Return the values of a row, each left out, replaced or scaled with a probability."""
    found = {}
    for name, value in values.items():
        kind = rng.choice(("left out", "replaced", "scaled")) if rng.random() < strange else ""
        if kind == "replaced":
            value = rng.choice(STRANGE)
        elif kind == "scaled":
            value *= 10.0 ** rng.randint(-12, 12)
        if kind != "left out":
            found[name] = value
    return found
