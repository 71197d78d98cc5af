"""The shipped model of collapse risk loads, and answers as it did when it was fitted."""

from __future__ import annotations

import numpy as np
import pytest

from trmon.domain.collapse_risk.risk_inputs import N_INPUTS, N_KINDS
from trmon.domain.collapse_risk.risk_model import shipped_model

ANSWERS = {-2.0: 0.1608571766844092, 0.0: 0.10486123669812268, 0.5: 0.5852356003236024, 3.0: 0.8620161664955317}
"""The risk where every feature has one value."""


@pytest.mark.parametrize("value", ANSWERS)
def test_the_shipped_model_gives_the_stored_answers(value: float) -> None:
    estimate = shipped_model().estimate(np.full((N_KINDS, N_INPUTS), value))
    assert estimate.probability == pytest.approx(ANSWERS[value], abs=1e-12)
